"""Roles of a master's deleted service account: a killed Terraform granted them and did not record it.

Roles are parts of the project's policy, which carries no marks. While the account exists, the module or a user owns its roles.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from resolute_deploy.gcp.api import GoogleApi, GoogleError
from resolute_deploy.gcp.resources import Place

CONFLICT = 409
TRIES = 5
POLICY_VERSION = 3
"""The first version with conditions; Google drops conditions from a policy of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """`member` is the entry in the policy, in which Google marks a deleted account."""

    role: str
    member: str
    command: str


def master_account(place: Place, cluster_id: str) -> str:
    """The address that the module gives the master's account."""
    stem = cluster_id
    if len(cluster_id) > 19:
        stem = f"{cluster_id[:12].removesuffix('-')}-{hashlib.sha1(cluster_id.encode()).hexdigest()[:6]}"
    return f"det-{stem}-master@{place.project}.iam.gserviceaccount.com"


def bindings_of_deleted_account(api: GoogleApi, place: Place, account: str) -> Iterator[Binding]:
    """The bindings of a deleted account."""
    if api.found("iam", f"v1/projects/{place.project}/serviceAccounts/{account}") is not None:
        return
    for binding in _policy(api, place).get("bindings", ()):
        for member in binding["members"]:
            if _is(member, account):
                command = f"gcloud projects remove-iam-policy-binding {place.project} --member '{member}'"
                yield Binding(role=binding["role"], member=member, command=f"{command} --role {binding['role']} --all")


def remove_bindings(api: GoogleApi, place: Place, account: str) -> None:
    """Raises `GoogleError` if each of `TRIES` writes conflicts with another change of the policy."""
    for left in reversed(range(TRIES)):
        policy = _policy(api, place)
        kept = [
            {**each, "members": [member for member in each["members"] if not _is(member, account)]}
            for each in policy.get("bindings", ())
        ]
        wanted = {**policy, "bindings": [each for each in kept if each["members"]], "version": POLICY_VERSION}
        try:
            api.post("cloudresourcemanager", f"v1/projects/{place.project}:setIamPolicy", {"policy": wanted})
        except GoogleError as error:
            if error.status != CONFLICT or not left:
                raise
        else:
            return


def _policy(api: GoogleApi, place: Place) -> Mapping[str, Any]:
    wanted = {"options": {"requestedPolicyVersion": POLICY_VERSION}}
    return api.post("cloudresourcemanager", f"v1/projects/{place.project}:getIamPolicy", wanted)


def _is(member: str, account: str) -> bool:
    return member.removeprefix("deleted:").partition("?")[0] == f"serviceAccount:{account}"
