"""`up`, `down`, `list` and `status` of a cluster on AWS, in terms of Terraform, the account and the cluster's bucket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput, ResoluteError
from resolute_deploy.aws.account import Account, Left
from resolute_deploy.aws.bucket import ClusterBucket, SecretStore
from resolute_deploy.aws.orphans import remove_orphans
from resolute_deploy.cluster_directory import ClusterDirectory, StateBucket, module_variables
from resolute_deploy.terraform import Step, Terraform

READY_S = 1200.0
"""How long `up` waits for the master's machine: its packages come from the internet."""
POLL_S = 3.0

Told = Callable[[str], None]


class DeployFailed(ResoluteError):
    """What was asked did not come about; what there is can be used by the next `up` or `down`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A cluster that serves."""

    master_url: str
    authority: Path
    password: str
    stages: tuple[Mapping[str, Any], ...]


def complete(values: Mapping[str, Any], account: Account) -> dict[str, Any]:
    """With the defaults of the module, and the region that the account's configuration has."""
    defaults = {each.name: each.default for each in module_variables("aws") if not each.required}
    return {**defaults, **values, "region": account.region}


def emulated(environ: Mapping[str, str]) -> dict[str, Any]:
    """Variables for an emulator of AWS, where the environment names one."""
    url = environ.get("AWS_ENDPOINT_URL", "")
    return {"endpoint_url": url} if url else {}


def prepared(
    cluster: ClusterDirectory, values: Mapping[str, Any], environ: Mapping[str, str], state_bucket: StateBucket | None
) -> Terraform:
    backend = state_bucket.backend(cluster.cluster_id) if state_bucket else None
    terraform = cluster.prepare({**values, **emulated(environ)}, environ, backend)
    if state_bucket is not None and terraform.version < (1, 10) and terraform.program.name == "terraform":
        raise InvalidInput(f"--state-bucket needs Terraform 1.10 or newer for its lock; {terraform.program} is older")
    terraform.init()
    return terraform


def wait_until_ready(
    account: Account, outputs: Mapping[str, Any], told: Told, *, limit_s: float = READY_S
) -> tuple[Mapping[str, Any], ...]:
    """Follows the status that the master's machine writes, until the master serves what is desired now."""
    bucket = ClusterBucket(account.client("s3"), outputs["bucket"])
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
            now = "the master's machine boots" if not status else "the master's machine has not seen the change yet"
        if now != last:
            told(now)
            last = now
        time.sleep(POLL_S)
    raise DeployFailed(
        f"the master does not serve after {limit_s / 60:.0f} min ({last}). "
        "The cluster is up and costs money; look at its machine with "
        f"`aws ec2 get-console-output --latest --region {account.region} --instance-id {outputs['master_instance_id']}`, "
        "and run `det deploy aws up` or `down` again"
    )


def deployed(
    account: Account, cluster: ClusterDirectory, outputs: Mapping[str, Any], stages: tuple[Mapping[str, Any], ...]
) -> Deployed:
    """What a person needs to log in."""
    authority = ClusterBucket(account.client("s3"), outputs["bucket"]).found("ca.pem")
    if authority is not None:
        cluster.authority.write_bytes(authority)
    password = SecretStore(account.client("secretsmanager")).value(outputs["password_secret_arn"])
    return Deployed(master_url=outputs["master_url"], authority=cluster.authority, password=password, stages=stages)


# ---------------------------------------------------------------------------------------------------------------------- down


def take_down(
    account: Account,
    cluster: ClusterDirectory,
    terraform: Terraform,
    *,
    delete_checkpoints: bool,
    told: Told,
    step: Callable[[Step], None],
) -> list[Left]:
    """Ends the master, then its machines, then everything else.

    Gives what is still there: nothing, or a bucket that was to be kept.
    """
    remove_orphans(account, terraform, cluster.cluster_id, told)
    outputs = terraform.outputs()
    master = outputs.get("master_instance_id", "")
    # The master first: it would replace the machines that are ended.
    told("ending the master")
    account.end([master] if master in account.machines(cluster.cluster_id) else [])
    strays = account.machines(cluster.cluster_id)
    told(f"ending {len(strays)} more machines of the cluster")
    account.cancel_spot_requests(cluster.cluster_id)
    account.end(strays)
    bucket = outputs.get("bucket", "")
    kept = bool(bucket) and not delete_checkpoints and account.holds_checkpoints(bucket)
    if bucket:
        account.empty(bucket, "" if not kept else "cluster/")
    if kept:
        terraform.forget([each for each in terraform.resources() if each.startswith("module.storage.aws_s3_bucket.")])
    terraform.destroy(step)
    return list(account.left(cluster.cluster_id))
