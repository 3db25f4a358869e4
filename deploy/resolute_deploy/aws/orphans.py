"""What a killed Terraform has made on AWS and not written down: see `resolute_deploy.cloud.remove_orphans`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from resolute_deploy.cloud import MARK, Known, Orphan

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
    kinds: tuple[tuple[str, str, Callable[..., Any], str, str, Callable[[Any, Any], object]], ...] = (
        ("aws_nat_gateway", "NAT gateway", ec2.describe_nat_gateways, "NatGateways", "NatGatewayId", _end_nat_gateway),
        ("aws_eip", "address", ec2.describe_addresses, "Addresses", "AllocationId", _release),
        ("aws_vpc_endpoint", "endpoint", ec2.describe_vpc_endpoints, "VpcEndpoints", "VpcEndpointId", _end_endpoint),
        ("aws_security_group", "security group", ec2.describe_security_groups, "SecurityGroups", "GroupId", _end_group),
        ("aws_subnet", "subnet", ec2.describe_subnets, "Subnets", "SubnetId", _end_subnet),
        ("aws_route_table", "route table", ec2.describe_route_tables, "RouteTables", "RouteTableId", _end_route_table),
        (
            *("aws_internet_gateway", "internet gateway", ec2.describe_internet_gateways, "InternetGateways"),
            *("InternetGatewayId", _end_internet_gateway),
        ),
        ("aws_vpc", "network", ec2.describe_vpcs, "Vpcs", "VpcId", _end_network),
    )
    mine = [{"Name": f"tag:{MARK}", "Values": [cluster_id]}]
    for kind, noun, describe, field, key, remove in kinds:
        for found in describe(Filters=mine)[field]:
            gone = str(found.get("State", "")).lower() in ("deleted", "deleting")
            if not gone and (kind, found[key]) not in known:
                yield Orphan(what=f"{noun} {found[key]}", remove=partial(remove, ec2, found))


def _end_nat_gateway(ec2: Any, found: Mapping[str, Any]) -> None:
    """Its subnet and its address are held until it is gone."""
    gateway = found["NatGatewayId"]
    ec2.delete_nat_gateway(NatGatewayId=gateway)
    ec2.get_waiter("nat_gateway_deleted").wait(NatGatewayIds=[gateway])


def _release(ec2: Any, found: Mapping[str, Any]) -> None:
    ec2.release_address(AllocationId=found["AllocationId"])


def _end_endpoint(ec2: Any, found: Mapping[str, Any]) -> None:
    ec2.delete_vpc_endpoints(VpcEndpointIds=[found["VpcEndpointId"]])


def _end_group(ec2: Any, found: Mapping[str, Any]) -> None:
    ec2.delete_security_group(GroupId=found["GroupId"])


def _end_subnet(ec2: Any, found: Mapping[str, Any]) -> None:
    ec2.delete_subnet(SubnetId=found["SubnetId"])


def _end_route_table(ec2: Any, found: Mapping[str, Any]) -> None:
    for each in found["Associations"]:
        if not each["Main"]:
            ec2.disassociate_route_table(AssociationId=each["RouteTableAssociationId"])
    ec2.delete_route_table(RouteTableId=found["RouteTableId"])


def _end_internet_gateway(ec2: Any, found: Mapping[str, Any]) -> None:
    for attached in found["Attachments"]:
        ec2.detach_internet_gateway(InternetGatewayId=found["InternetGatewayId"], VpcId=attached["VpcId"])
    ec2.delete_internet_gateway(InternetGatewayId=found["InternetGatewayId"])


def _end_network(ec2: Any, found: Mapping[str, Any]) -> None:
    ec2.delete_vpc(VpcId=found["VpcId"])


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
