"""All resources of a cluster in its account except its bucket, in the order in which they can be removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from resolute.errors import ResoluteError
from resolute_deploy.aws.kinds import kinds_of_ec2
from resolute_deploy.cloud import MARK

AGENT_TAG = "resolute:cluster"
"""Tag of machines that the master buys, which no state records."""
ALIVE = ("pending", "running", "stopping", "stopped")
GONE_S = 600.0
POLL_S = 2.0
UNSETTLED = ("creating", "updating", "deleting")
"""States in which EFS refuses a removal, or removes already."""

Clients = Callable[[str], Any]
"""A client of the account by the name of its service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One resource. `type` and `id` are those of Terraform's state."""

    noun: str
    type: str
    id: str
    command: str
    remove: Callable[[], object] | None
    """Returns when it no longer blocks the removal of others. None if it is removed with its machine."""
    name: str = ""
    """Its name for users; empty if the id serves as the name."""
    bought: bool = False
    """By the master."""
    going: bool = False
    """Its removal has started. `remove` waits until it ends."""

    @property
    def what(self) -> str:
        return f"{self.noun} {self.name or self.id}"


def resources(client: Clients, region: str, cluster_id: str) -> Iterator[Found]:
    """All resources; a contained resource comes before its container."""
    name = f"resolute-{cluster_id}"
    yield from _databases(client("rds"), region, name)
    yield from machines(client("ec2"), region, cluster_id)
    yield from _file_systems(client("efs"), client("ec2"), region, cluster_id)
    yield from _of_ec2(client("ec2"), region, cluster_id)
    yield from _logs(client("logs"), region, cluster_id)
    yield from _secrets(client("secretsmanager"), region, name)
    yield from _roles(client("iam"), [f"{name}-{part}-{region}" for part in ("agent", "master")])


# ---------------------------------------------------------------------------------------------------------------------- EC2


def machines(ec2: Any, region: str, cluster_id: str) -> Iterator[Found]:
    """The machines that are not terminated."""
    filters = [
        {"Name": f"tag:{MARK}", "Values": [cluster_id]},
        {"Name": "instance-state-name", "Values": list(ALIVE)},
    ]
    for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
        for group in page["Reservations"]:
            for each in group["Instances"]:
                machine = each["InstanceId"]
                yield Found(
                    noun="machine",
                    type="aws_instance",
                    id=machine,
                    command=f"aws ec2 terminate-instances --region {region} --instance-ids {machine}",
                    remove=partial(end_machines, ec2, [machine]),
                    bought=AGENT_TAG in {tag["Key"] for tag in each["Tags"]},
                )


def end_machines(ec2: Any, machines: Sequence[str]) -> None:
    """Returns when they no longer exist."""
    if machines:
        ec2.terminate_instances(InstanceIds=list(machines))
        ec2.get_waiter("instance_terminated").wait(
            InstanceIds=list(machines), WaiterConfig={"Delay": 5, "MaxAttempts": 120}
        )


def _of_ec2(ec2: Any, region: str, cluster_id: str) -> Iterator[Found]:
    for kind, each in kinds_of_ec2(ec2, cluster_id):
        id_ = each[kind.key]
        yield Found(
            noun=kind.noun,
            type=kind.type,
            id=id_,
            command=f"aws ec2 {kind.command} {id_} --region {region}",
            remove=partial(kind.remove, ec2, each) if kind.remove is not None else None,
            going=str(each.get("State", "")).lower() == "deleting",
        )


# ----------------------------------------------------------------------------------------------------------------- databases


def _databases(rds: Any, region: str, name: str) -> Iterator[Found]:
    for each in rds.describe_db_instances()["DBInstances"]:
        if each["DBInstanceIdentifier"] == name:
            going = each["DBInstanceStatus"] == "deleting"
            command = f"aws rds delete-db-instance --region {region} --skip-final-snapshot"
            yield Found(
                noun="database",
                type="aws_db_instance",
                id=name,
                command=f"{command} --db-instance-identifier {name}",
                remove=partial(_end_database, rds, name, going=going),
                going=going,
            )
    for each in rds.describe_db_subnet_groups()["DBSubnetGroups"]:
        if each["DBSubnetGroupName"] == name:
            yield Found(
                noun="subnet group",
                type="aws_db_subnet_group",
                id=name,
                command=f"aws rds delete-db-subnet-group --region {region} --db-subnet-group-name {name}",
                remove=partial(rds.delete_db_subnet_group, DBSubnetGroupName=name),
            )


def _end_database(rds: Any, name: str, *, going: bool) -> None:
    """An unrecorded database is empty: the master starts after the database is complete."""
    if not going:
        rds.delete_db_instance(DBInstanceIdentifier=name, SkipFinalSnapshot=True)
    rds.get_waiter("db_instance_deleted").wait(DBInstanceIdentifier=name)


# -------------------------------------------------------------------------------------------------------------- file systems


def _file_systems(efs: Any, ec2: Any, region: str, cluster_id: str) -> Iterator[Found]:
    """The file systems of the cluster, after their mount targets."""
    mark = {"Key": MARK, "Value": cluster_id}
    for page in efs.get_paginator("describe_file_systems").paginate():
        for each in page["FileSystems"]:
            if mark in each["Tags"] and each["LifeCycleState"] != "deleted":
                id_ = each["FileSystemId"]
                yield from _mount_targets(efs, ec2, region, cluster_id, id_)
                yield _of_efs(
                    each,
                    noun="file system",
                    type_="aws_efs_file_system",
                    id_=id_,
                    command=f"aws efs delete-file-system --region {region} --file-system-id {id_}",
                    describe=partial(efs.describe_file_systems, FileSystemId=id_),
                    among="FileSystems",
                    delete=partial(efs.delete_file_system, FileSystemId=id_),
                    not_there=efs.exceptions.FileSystemNotFound,
                )


def _mount_targets(efs: Any, ec2: Any, region: str, cluster_id: str, file_system: str) -> Iterator[Found]:
    """The mount targets in the cluster's own security group: a user may have added others. Mount targets carry no tags."""
    mine = [{"Name": f"tag:{MARK}", "Values": [cluster_id]}]
    groups = {each["GroupId"] for each in ec2.describe_security_groups(Filters=mine)["SecurityGroups"]}
    for each in efs.describe_mount_targets(FileSystemId=file_system)["MountTargets"]:
        id_ = each["MountTargetId"]
        behind = efs.describe_mount_target_security_groups(MountTargetId=id_)["SecurityGroups"]
        if groups.intersection(behind):
            yield _of_efs(
                each,
                noun="mount target",
                type_="aws_efs_mount_target",
                id_=id_,
                command=f"aws efs delete-mount-target --region {region} --mount-target-id {id_}",
                describe=partial(efs.describe_mount_targets, MountTargetId=id_),
                among="MountTargets",
                delete=partial(efs.delete_mount_target, MountTargetId=id_),
                not_there=efs.exceptions.MountTargetNotFound,
            )


def _of_efs(
    described: Mapping[str, Any],
    *,
    noun: str,
    type_: str,
    id_: str,
    command: str,
    describe: Callable[[], Mapping[str, Any]],
    among: str,
    delete: Callable[[], object],
    not_there: type[Exception],
) -> Found:
    """`describe` returns it as the only item under the key `among`."""
    return Found(
        noun=noun,
        type=type_,
        id=id_,
        command=command,
        remove=partial(end_of_efs, f"{noun} {id_}", lambda: describe()[among], delete, not_there),
        going=described["LifeCycleState"] == "deleting",
    )


def end_of_efs(
    what: str,
    told: Callable[[], Sequence[Mapping[str, Any]]],
    end: Callable[[], object],
    not_there: type[Exception],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Polls: the EFS client has no waiters, and EFS refuses to remove incomplete resources. Raises `ResoluteError` on timeout."""
    waited = 0.0
    while True:
        try:
            states = [each["LifeCycleState"] for each in told()]
            if states in ([], ["deleted"]):
                return
            if states[0] not in UNSETTLED:
                end()
        except not_there:
            return
        if waited >= GONE_S:
            raise ResoluteError(f"{what} is not gone after {GONE_S / 60:.0f} min; run the command again later")
        sleep(POLL_S)
        waited += POLL_S


# -------------------------------------------------------------------------------------------------- logs, secrets and rights


def _logs(logs: Any, region: str, cluster_id: str) -> Iterator[Found]:
    name = f"/resolute/{cluster_id}"
    for page in logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=name):
        for each in page["logGroups"]:
            if each["logGroupName"] == name and _tags_of(logs, each).get(MARK) == cluster_id:
                yield Found(
                    noun="log group",
                    type="aws_cloudwatch_log_group",
                    id=name,
                    command=f"aws logs delete-log-group --region {region} --log-group-name {name}",
                    remove=partial(logs.delete_log_group, logGroupName=name),
                )


def _tags_of(logs: Any, group: Mapping[str, Any]) -> Mapping[str, str]:
    tags: Mapping[str, str] = logs.list_tags_for_resource(resourceArn=group["arn"].removesuffix(":*"))["tags"]
    return tags


def _secrets(client: Any, region: str, name: str) -> Iterator[Found]:
    for page in client.get_paginator("list_secrets").paginate():
        for each in page["SecretList"]:
            if each["Name"].startswith(f"{name}/"):
                command = f"aws secretsmanager delete-secret --region {region} --secret-id {each['Name']}"
                yield Found(
                    noun="secret",
                    type="aws_secretsmanager_secret",
                    id=each["ARN"],
                    name=each["Name"],
                    command=f"{command} --force-delete-without-recovery",
                    remove=partial(client.delete_secret, SecretId=each["ARN"], ForceDeleteWithoutRecovery=True),
                )


def _roles(iam: Any, names: Collection[str]) -> Iterator[Found]:
    for page in iam.get_paginator("list_instance_profiles").paginate():
        for each in page["InstanceProfiles"]:
            name = each["InstanceProfileName"]
            if name in names:
                yield Found(
                    noun="instance profile",
                    type="aws_iam_instance_profile",
                    id=name,
                    command=f"aws iam delete-instance-profile --instance-profile-name {name}",
                    remove=partial(_end_profile, iam, each),
                )
    for page in iam.get_paginator("list_roles").paginate():
        for each in page["Roles"]:
            name = each["RoleName"]
            if name in names:
                yield Found(
                    noun="role",
                    type="aws_iam_role",
                    id=name,
                    command=f"aws iam delete-role --role-name {name}",
                    remove=partial(_end_role, iam, name),
                )


def _end_profile(iam: Any, found: Mapping[str, Any]) -> None:
    name = found["InstanceProfileName"]
    for role in found["Roles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role["RoleName"])
    iam.delete_instance_profile(InstanceProfileName=name)


def _end_role(iam: Any, role: str) -> None:
    for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        iam.delete_role_policy(RoleName=role, PolicyName=policy)
    for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=role)
