"""What a cluster has in EC2: told with the command that removes it, and removed where no state has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from resolute_deploy.aws.account import AwsAccount
from resolute_provisioner.clouds.aws.fake_ec2 import REGION
from support.deployed_aws import Aws, aws


@pytest.fixture(scope="module")
def account_of_aws() -> Iterator[Aws]:
    with aws() as account:
        yield account


@pytest.fixture
def account(account_of_aws: Aws, monkeypatch: pytest.MonkeyPatch) -> AwsAccount:
    for name, value in account_of_aws.environment().items():
        monkeypatch.setenv(name, value)
    return AwsAccount(boto3.Session(region_name=REGION))


def tagged(kind: str, cluster_id: str) -> dict[str, Any]:
    return {
        "TagSpecifications": [{"ResourceType": kind, "Tags": [{"Key": "resolute-deployment", "Value": cluster_id}]}]
    }


def made(ec2: Any, cluster_id: str) -> dict[str, str]:
    """One of each kind, by its type of Terraform."""
    network = ec2.create_vpc(CidrBlock="10.9.0.0/16", **tagged("vpc", cluster_id))["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=network, CidrBlock="10.9.0.0/20", **tagged("subnet", cluster_id))["Subnet"]
    table = ec2.create_route_table(VpcId=network, **tagged("route-table", cluster_id))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet["SubnetId"])
    gateway = ec2.create_internet_gateway(**tagged("internet-gateway", cluster_id))["InternetGateway"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=network)
    group = ec2.create_security_group(
        GroupName="master", Description="master", VpcId=network, **tagged("security-group", cluster_id)
    )
    address = ec2.allocate_address(Domain="vpc", **tagged("elastic-ip", cluster_id))["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet["SubnetId"], AllocationId=address, **tagged("natgateway", cluster_id))[
        "NatGateway"
    ]
    endpoint = ec2.create_vpc_endpoint(
        VpcId=network,
        ServiceName=f"com.amazonaws.{REGION}.s3",
        VpcEndpointType="Gateway",
        RouteTableIds=[table],
        **tagged("vpc-endpoint", cluster_id),
    )["VpcEndpoint"]
    return {
        "aws_nat_gateway": nat["NatGatewayId"],
        "aws_eip": address,
        "aws_vpc_endpoint": endpoint["VpcEndpointId"],
        "aws_security_group": group["GroupId"],
        "aws_subnet": subnet["SubnetId"],
        "aws_route_table": table,
        "aws_internet_gateway": gateway["InternetGatewayId"],
        "aws_vpc": network,
    }


def test_all_of_a_cluster_is_told_with_its_command(account: AwsAccount) -> None:
    there = made(account.client("ec2"), "told")
    told = {each.what.split()[-1]: each.command for each in account.left("told")}
    assert list(told) == list(there.values())
    assert told[there["aws_route_table"]].startswith("aws ec2 delete-route-table --route-table-id rtb-")
    assert told[there["aws_vpc_endpoint"]].startswith("aws ec2 delete-vpc-endpoints --vpc-endpoint-ids vpce-")


def test_what_no_state_has_is_removed_and_the_rest_stays(account: AwsAccount) -> None:
    there = made(account.client("ec2"), "half")
    kept = ("aws_vpc", "aws_internet_gateway", "aws_subnet")
    for orphan in account.orphans("half", frozenset((kind, there[kind]) for kind in kept)):
        orphan.remove()
    assert {each.what.split()[-1] for each in account.left("half")} == {there[kind] for kind in kept}
    for orphan in account.orphans("half", frozenset()):
        orphan.remove()
    assert list(account.left("half")) == []
