"""All resources of a cluster in its project, in the order in which they can be removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from resolute.errors import ResoluteError
from resolute_deploy.cloud import MARK
from resolute_deploy.gcp.api import GoogleApi

GONE_S = 1200.0
POLL_S = 2.0


def last_element(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A project, and the region of a cluster in it."""

    project: str
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One resource. `type` and `id` are those of Terraform's state."""

    noun: str
    type: str
    id: str
    service: str
    path: str
    command: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def what(self) -> str:
        return f"{self.noun} {last_element(self.id)}"


def resources(api: GoogleApi, place: Place, cluster_id: str) -> Iterator[Found]:
    """All resources except the bucket; a contained resource comes before its container."""
    yield from machines(api, place, cluster_id)
    yield from _labelled_of_compute(api, place, cluster_id, "disks", "disk")
    yield from _databases(api, place, cluster_id)
    yield from _file_systems(api, place, cluster_id)
    yield from _secrets(api, place, cluster_id)
    yield from _network(api, place, f"resolute-{cluster_id}", cluster_id)
    yield from _accounts(api, place, f"resolute-{cluster_id}")
    yield from _roles(api, place, f"resolute-{cluster_id}")


def remove(api: GoogleApi, found: Found, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Returns when it no longer exists. Raises `ResoluteError` on timeout."""
    api.delete(found.service, found.path)
    waited = 0.0
    while (still := api.found(found.service, found.path)) is not None and not still.get("deleted"):
        if waited >= GONE_S:
            raise ResoluteError(f"{found.what} is not gone after {GONE_S / 60:.0f} min; `{found.command}` removes it")
        sleep(POLL_S)
        waited += POLL_S


def machines(api: GoogleApi, place: Place, cluster_id: str) -> Iterator[Found]:
    yield from _labelled_of_compute(api, place, cluster_id, "instances", "machine")


def _labelled_of_compute(api: GoogleApi, place: Place, cluster_id: str, collection: str, noun: str) -> Iterator[Found]:
    """The marked resources of all zones and regions."""
    wanted = f'labels.{MARK} = "{cluster_id}"'
    for page in api.pages("compute", f"compute/v1/projects/{place.project}/aggregated/{collection}", filter=wanted):
        for scope, listed in page.get("items", {}).items():
            for each in listed.get(collection, ()):
                yield _of_compute(place, f"{scope}/{collection}/{each['name']}", noun, each.get("labels", {}))


NOUNS_OF_GCLOUD = {
    "instances": ("google_compute_instance", "instances"),
    "disks": ("google_compute_disk", "disks"),
    "addresses": ("google_compute_address", "addresses"),
    "firewalls": ("google_compute_firewall", "firewall-rules"),
    "routers": ("google_compute_router", "routers"),
    "subnetworks": ("google_compute_subnetwork", "networks subnets"),
    "networks": ("google_compute_network", "networks"),
}
"""Names that Terraform and gcloud have for collections of Compute Engine."""


def _of_compute(place: Place, path: str, noun: str, labels: Mapping[str, str]) -> Found:
    """`path` begins with its scope: `zones/us-west1-a/instances/name`, `global/networks/name`."""
    *scope, collection, name = path.split("/")
    type_, words = NOUNS_OF_GCLOUD[collection]
    if collection == "addresses" and scope == ["global"]:
        type_ = "google_compute_global_address"
    where = {"zones": f" --zone {scope[-1]}", "regions": f" --region {scope[-1]}", "global": ""}[scope[0]]
    if type_ == "google_compute_global_address":
        where = " --global"
    return Found(
        noun=noun,
        type=type_,
        id=f"projects/{place.project}/{path}",
        service="compute",
        path=f"compute/v1/projects/{place.project}/{path}",
        command=f"gcloud compute {words} delete {name}{where} --project {place.project}",
        labels=labels,
    )


def _network(api: GoogleApi, place: Place, name: str, cluster_id: str) -> Iterator[Found]:
    """Finds parts by name: most parts of a network have no labels on Google Cloud."""
    yield from _labelled_of_compute(api, place, cluster_id, "addresses", "address")
    region = f"regions/{place.region}"
    for path, noun in (
        *(
            (f"global/firewalls/{name}-{rule}", "firewall rule")
            for rule in ("people", "to-master", "agents", "to-agents")
        ),
        (f"{region}/routers/{name}", "router"),
        (f"{region}/subnetworks/{name}", "subnetwork"),
        (f"global/networks/{name}", "network"),
    ):
        if api.found("compute", f"compute/v1/projects/{place.project}/{path}") is not None:
            yield _of_compute(place, path, noun, {})


def _databases(api: GoogleApi, place: Place, cluster_id: str) -> Iterator[Found]:
    wanted = f"settings.userLabels.{MARK}:{cluster_id}"
    for page in api.pages("sqladmin", f"v1/projects/{place.project}/instances", filter=wanted):
        for each in page.get("items", ()):
            yield Found(
                noun="database",
                type="google_sql_database_instance",
                id=each["name"],
                service="sqladmin",
                path=f"v1/projects/{place.project}/instances/{each['name']}",
                command=f"gcloud sql instances delete {each['name']} --project {place.project}",
            )


def _file_systems(api: GoogleApi, place: Place, cluster_id: str) -> Iterator[Found]:
    wanted = f'labels.{MARK}="{cluster_id}"'
    for page in api.pages("file", f"v1/projects/{place.project}/locations/-/instances", filter=wanted):
        for each in page.get("instances", ()):
            zone = each["name"].split("/")[3]
            yield Found(
                noun="file system",
                type="google_filestore_instance",
                id=each["name"],
                service="file",
                path=f"v1/{each['name']}",
                command=f"gcloud filestore instances delete {last_element(each['name'])} --zone {zone} "
                f"--project {place.project}",
            )


def _secrets(api: GoogleApi, place: Place, cluster_id: str) -> Iterator[Found]:
    wanted = f"labels.{MARK}={cluster_id}"
    for page in api.pages("secretmanager", f"v1/projects/{place.project}/secrets", filter=wanted):
        for each in page.get("secrets", ()):
            # The interface identifies a project by its number.
            name = f"projects/{place.project}/secrets/{last_element(each['name'])}"
            yield Found(
                noun="secret",
                type="google_secret_manager_secret",
                id=name,
                service="secretmanager",
                path=f"v1/{name}",
                command=f"gcloud secrets delete {last_element(name)} --project {place.project}",
            )


def _accounts(api: GoogleApi, place: Place, name: str) -> Iterator[Found]:
    for page in api.pages("iam", f"v1/projects/{place.project}/serviceAccounts"):
        for each in page.get("accounts", ()):
            if each.get("description") == name:
                yield Found(
                    noun="service account",
                    type="google_service_account",
                    id=each["name"],
                    service="iam",
                    path=f"v1/{each['name']}",
                    command=f"gcloud iam service-accounts delete {each['email']} --project {place.project}",
                )


def _roles(api: GoogleApi, place: Place, name: str) -> Iterator[Found]:
    """The API lists a deleted role for a month."""
    for part in ("look", "machines", "database"):
        role = f"{name.replace('-', '_')}_{part}"
        path = f"projects/{place.project}/roles/{role}"
        there = api.found("iam", f"v1/{path}")
        if there is not None and not there.get("deleted"):
            yield Found(
                noun="role",
                type="google_project_iam_custom_role",
                id=path,
                service="iam",
                path=f"v1/{path}",
                command=f"gcloud iam roles delete {role} --project {place.project}",
            )


def region_of_quota(told: Mapping[str, Any], metric: str) -> tuple[float, float] | None:
    """Limit and usage of a quota of a region; None if the region has no quota of that name."""
    for each in told.get("quotas", ()):
        if each["metric"] == metric:
            return float(each["limit"]), float(each["usage"])
    return None
