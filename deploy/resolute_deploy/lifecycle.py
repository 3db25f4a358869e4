"""`up`, `down`, `list` and `status` of a cluster on a cloud, in terms of Terraform, the account and the cluster's bucket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput, ResoluteError
from resolute_deploy.cloud import FOLDER, Account, Deployment, Left, Progress, remove_orphans
from resolute_deploy.cluster_directory import ClusterDirectory
from resolute_deploy.terraform import Step, Terraform

READY_S = 1200.0
"""How long `up` waits for the master's machine, which downloads its packages."""
POLL_S = 3.0


class DeployFailed(ResoluteError):
    """The operation did not complete. The next `up` or `down` continues from the present state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A cluster whose master is ready."""

    master_url: str
    authority: Path
    password: str
    stages: tuple[Mapping[str, Any], ...]


def prepared(
    cloud: Deployment,
    cluster: ClusterDirectory,
    values: Mapping[str, Any],
    environ: Mapping[str, str],
    backend: Mapping[str, Any] | None,
) -> Terraform:
    """`backend` is that of a state in a bucket; None keeps the state on this machine."""
    terraform = cluster.prepare({**values, **cloud.emulated(environ)}, environ, backend)
    oldest = cloud.oldest_for_bucket
    if backend is not None and terraform.version < oldest and terraform.program.name == "terraform":
        raise InvalidInput(
            f"--state-bucket needs Terraform {'.'.join(map(str, oldest))} or newer for its lock; "
            f"{terraform.program} is older"
        )
    terraform.init()
    return terraform


def wait_until_ready(
    account: Account, cluster: ClusterDirectory, outputs: Mapping[str, Any], told: Progress, *, limit_s: float = READY_S
) -> tuple[Mapping[str, Any], ...]:
    """Follows the status that the master's machine writes, until the master serves the desired version."""
    bucket = account.bucket(outputs["bucket"])
    desired, _ = bucket.desired()
    end, last = time.monotonic() + limit_s, ""
    while time.monotonic() < end:
        text = bucket.found("status.json")
        status = json.loads(text) if text else {}
        if status.get("desired") == desired:
            if status["ready"]:
                return tuple(status["stages"])
            now = status["error"] or f"the master's machine: {status['stage']}"
        else:
            now = "the master's machine boots" if not status else "the master's machine has not read the change yet"
        if now != last:
            told(now)
            last = now
        time.sleep(POLL_S)
    raise DeployFailed(
        f"the master does not serve after {limit_s / 60:.0f} min ({last}). "
        "The cluster is up and costs money; look at its machine with "
        f"`{account.console_command(outputs['master_instance_id'])}`, "
        f"and run `det deploy {cluster.cloud} up` or `down` again"
    )


def deployed(
    account: Account, cluster: ClusterDirectory, outputs: Mapping[str, Any], stages: tuple[Mapping[str, Any], ...]
) -> Deployed:
    """The address, the certificate and the password for a login."""
    authority = account.bucket(outputs["bucket"]).found("ca.pem")
    if authority is not None:
        cluster.authority.write_bytes(authority)
    password = account.secrets().value(outputs["password_secret"])
    return Deployed(master_url=outputs["master_url"], authority=cluster.authority, password=password, stages=stages)


# ---------------------------------------------------------------------------------------------------------------------- down


def take_down(
    cloud: Deployment,
    account: Account,
    cluster: ClusterDirectory,
    terraform: Terraform,
    *,
    delete_checkpoints: bool,
    told: Progress,
    step: Callable[[Step], None],
) -> list[Left]:
    """Removes the master, then its machines, then everything else.

    Returns the resources that still exist: none, or a bucket that is to be kept.
    """
    remove_orphans(account, terraform, cloud.bucket_resource, cluster.cluster_id, told)
    outputs = terraform.outputs()
    master = outputs.get("master_instance_id", "")
    # The master first: it would replace terminated machines.
    told("ending the master")
    account.end([master] if master in account.machines(cluster.cluster_id) else [])
    strays = account.machines(cluster.cluster_id)
    told(f"ending {len(strays)} more machines of the cluster")
    account.cancel_requests(cluster.cluster_id)
    account.end(strays)
    bucket = outputs.get("bucket", "")
    kept = bool(bucket) and not delete_checkpoints and account.holds_checkpoints(bucket)
    if bucket:
        account.empty(bucket, "" if not kept else f"{FOLDER}/")
    if kept:
        terraform.forget([each for each in terraform.resources() if each == cloud.bucket_resource])
    terraform.destroy(step)
    # Parts that an interrupted run added to a recorded resource, and resources that were created after it was killed.
    for orphan in account.orphans(cluster.cluster_id, frozenset()):
        told(f"removing {orphan.what}, which an interrupted run has left")
        orphan.remove()
    return list(account.left(cluster.cluster_id))
