"""The types of EC2 resources that a cluster has beside its machines; each resource carries the cluster's tag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from resolute_deploy.cloud import MARK


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How EC2 lists and removes the resources of one Terraform type."""

    type: str
    noun: str
    describe: str
    field: str
    """Key of the list in the response."""
    key: str
    """Key of the id in an item of the list."""
    command: str
    """Subcommand of `aws ec2`, and its option for the id."""
    remove: Callable[[Any, Mapping[str, Any]], None] | None
    """Returns when it no longer blocks the removal of others. None if it is removed with its machine."""


def kinds_of_ec2(ec2: Any, cluster_id: str) -> Iterator[tuple[Kind, Mapping[str, Any]]]:
    """All resources of a cluster that are not deleted, in the order in which they can be removed: a part before its container."""
    mine = [{"Name": f"tag:{MARK}", "Values": [cluster_id]}]
    for kind in KINDS:
        for each in getattr(ec2, kind.describe)(Filters=mine)[kind.field]:
            if str(each.get("State", "")).lower() != "deleted":
                yield kind, each


def _end_nat_gateway(ec2: Any, found: Mapping[str, Any]) -> None:
    """It blocks its subnet and its address until it no longer exists."""
    gateway = found["NatGatewayId"]
    if found["State"] != "deleting":
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


KINDS = (
    Kind(
        type="aws_ebs_volume",
        noun="disk",
        describe="describe_volumes",
        field="Volumes",
        key="VolumeId",
        command="delete-volume --volume-id",
        remove=None,
    ),
    Kind(
        type="aws_nat_gateway",
        noun="NAT gateway",
        describe="describe_nat_gateways",
        field="NatGateways",
        key="NatGatewayId",
        command="delete-nat-gateway --nat-gateway-id",
        remove=_end_nat_gateway,
    ),
    Kind(
        type="aws_eip",
        noun="address",
        describe="describe_addresses",
        field="Addresses",
        key="AllocationId",
        command="release-address --allocation-id",
        remove=_release,
    ),
    Kind(
        type="aws_vpc_endpoint",
        noun="endpoint",
        describe="describe_vpc_endpoints",
        field="VpcEndpoints",
        key="VpcEndpointId",
        command="delete-vpc-endpoints --vpc-endpoint-ids",
        remove=_end_endpoint,
    ),
    Kind(
        type="aws_security_group",
        noun="security group",
        describe="describe_security_groups",
        field="SecurityGroups",
        key="GroupId",
        command="delete-security-group --group-id",
        remove=_end_group,
    ),
    Kind(
        type="aws_subnet",
        noun="subnet",
        describe="describe_subnets",
        field="Subnets",
        key="SubnetId",
        command="delete-subnet --subnet-id",
        remove=_end_subnet,
    ),
    Kind(
        type="aws_route_table",
        noun="route table",
        describe="describe_route_tables",
        field="RouteTables",
        key="RouteTableId",
        command="delete-route-table --route-table-id",
        remove=_end_route_table,
    ),
    Kind(
        type="aws_internet_gateway",
        noun="internet gateway",
        describe="describe_internet_gateways",
        field="InternetGateways",
        key="InternetGatewayId",
        command="delete-internet-gateway --internet-gateway-id",
        remove=_end_internet_gateway,
    ),
    Kind(
        type="aws_vpc",
        noun="network",
        describe="describe_vpcs",
        field="Vpcs",
        key="VpcId",
        command="delete-vpc --vpc-id",
        remove=_end_network,
    ),
)
