"""What a killed Terraform has made on AWS and not written down: see `resolute_deploy.cloud.remove_orphans`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from resolute_deploy.aws.kinds import kinds_of_ec2
from resolute_deploy.cloud import Known, Orphan

if TYPE_CHECKING:
    from resolute_deploy.aws.account import AwsAccount

AGENT_TAG = "resolute:cluster"
"""Of machines that the master buys, which are never in a state."""


def orphans(account: AwsAccount, cluster_id: str, known: Known) -> Iterator[Orphan]:
    """In the order in which they can be removed: what stands in another before that."""
    name = f"resolute-{cluster_id}"
    yield from _databases(account.client("rds"), name, known)
    yield from _machines(account, cluster_id, known)
    yield from _network(account.client("ec2"), cluster_id, known)
    yield from _secrets(account.client("secretsmanager"), name, known)
    yield from _roles(account.client("iam"), [f"{name}-{part}-{account.region}" for part in ("agent", "master")], known)


def _machines(account: AwsAccount, cluster_id: str, known: Known) -> Iterator[Orphan]:
    for machine, tags in account.machines_with_tags(cluster_id):
        if AGENT_TAG not in tags and ("aws_instance", machine) not in known:
            yield Orphan(what=f"machine {machine}", remove=partial(account.end, [machine]))


def _network(ec2: Any, cluster_id: str, known: Known) -> Iterator[Orphan]:
    """Disks are parts of machines."""
    for kind, each in kinds_of_ec2(ec2, cluster_id):
        if kind.remove is not None and (kind.type, each[kind.key]) not in known:
            yield Orphan(what=f"{kind.noun} {each[kind.key]}", remove=partial(kind.remove, ec2, each))


def _databases(rds: Any, name: str, known: Known) -> Iterator[Orphan]:
    for each in rds.describe_db_instances()["DBInstances"]:
        if each["DBInstanceIdentifier"] == name and ("aws_db_instance", name) not in known:
            yield Orphan(what=f"database {name}", remove=partial(_end_database, rds, name))
    for each in rds.describe_db_subnet_groups()["DBSubnetGroups"]:
        if each["DBSubnetGroupName"] == name and ("aws_db_subnet_group", name) not in known:
            yield Orphan(
                what=f"subnet group {name}", remove=partial(rds.delete_db_subnet_group, DBSubnetGroupName=name)
            )


def _end_database(rds: Any, name: str) -> None:
    """Nothing was ever written to it: the master starts when it is complete."""
    rds.delete_db_instance(DBInstanceIdentifier=name, SkipFinalSnapshot=True)
    rds.get_waiter("db_instance_deleted").wait(DBInstanceIdentifier=name)


def _secrets(client: Any, name: str, known: Known) -> Iterator[Orphan]:
    for page in client.get_paginator("list_secrets").paginate():
        for each in page["SecretList"]:
            if each["Name"].startswith(f"{name}/") and ("aws_secretsmanager_secret", each["ARN"]) not in known:
                end = partial(client.delete_secret, SecretId=each["ARN"], ForceDeleteWithoutRecovery=True)
                yield Orphan(what=f"secret {each['Name']}", remove=end)


def _roles(iam: Any, names: Collection[str], known: Known) -> Iterator[Orphan]:
    for page in iam.get_paginator("list_instance_profiles").paginate():
        for each in page["InstanceProfiles"]:
            name = each["InstanceProfileName"]
            if name in names and ("aws_iam_instance_profile", name) not in known:
                yield Orphan(what=f"instance profile {name}", remove=partial(_end_profile, iam, each))
    for page in iam.get_paginator("list_roles").paginate():
        for each in page["Roles"]:
            if each["RoleName"] in names and ("aws_iam_role", each["RoleName"]) not in known:
                yield Orphan(what=f"role {each['RoleName']}", remove=partial(_end_role, iam, each["RoleName"]))


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
