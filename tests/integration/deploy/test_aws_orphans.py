"""What a cluster has in an account: told with the command that removes it, and removed where no state has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from resolute.errors import ResoluteError
from resolute_deploy.aws.account import AwsAccount
from resolute_deploy.aws.resources import end_of_efs
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


def shared_files(account: AwsAccount, cluster_id: str, subnet: str, group: str) -> tuple[str, str]:
    efs = account.client("efs")
    tags = [{"Key": "resolute-deployment", "Value": cluster_id}]
    file_system = efs.create_file_system(CreationToken=cluster_id, Tags=tags)["FileSystemId"]
    target = efs.create_mount_target(FileSystemId=file_system, SubnetId=subnet, SecurityGroups=[group])
    return file_system, target["MountTargetId"]


def log_group(account: AwsAccount, name: str, cluster_id: str) -> str:
    account.client("logs").create_log_group(logGroupName=name, tags={"resolute-deployment": cluster_id})
    return name


def made(account: AwsAccount, cluster_id: str) -> dict[str, str]:
    """One of each kind, by its type of Terraform, in the order in which it is removed."""
    ec2 = account.client("ec2")
    network = ec2.create_vpc(CidrBlock="10.9.0.0/16", **tagged("vpc", cluster_id))["Vpc"]["VpcId"]
    # EC2 chooses a zone where none is named, and a file system has one mount target in a zone.
    subnet = ec2.create_subnet(
        VpcId=network, CidrBlock="10.9.0.0/20", AvailabilityZone=f"{REGION}a", **tagged("subnet", cluster_id)
    )["Subnet"]
    table = ec2.create_route_table(VpcId=network, **tagged("route-table", cluster_id))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet["SubnetId"])
    gateway = ec2.create_internet_gateway(**tagged("internet-gateway", cluster_id))["InternetGateway"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway["InternetGatewayId"], VpcId=network)
    group = ec2.create_security_group(
        GroupName="master", Description="master", VpcId=network, **tagged("security-group", cluster_id)
    )
    file_system, target = shared_files(account, cluster_id, subnet["SubnetId"], group["GroupId"])
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
    log = log_group(account, f"/resolute/{cluster_id}", cluster_id)
    return {
        "aws_efs_mount_target": target,
        "aws_efs_file_system": file_system,
        "aws_nat_gateway": nat["NatGatewayId"],
        "aws_eip": address,
        "aws_vpc_endpoint": endpoint["VpcEndpointId"],
        "aws_security_group": group["GroupId"],
        "aws_subnet": subnet["SubnetId"],
        "aws_route_table": table,
        "aws_internet_gateway": gateway["InternetGatewayId"],
        "aws_vpc": network,
        "aws_cloudwatch_log_group": log,
    }


def test_all_of_a_cluster_is_told_with_its_command(account: AwsAccount) -> None:
    there = made(account, "told")
    told = {each.what.split()[-1]: each.command for each in account.left("told")}
    assert list(told) == list(there.values())
    assert told[there["aws_route_table"]].startswith("aws ec2 delete-route-table --route-table-id rtb-")
    assert told[there["aws_efs_mount_target"]].startswith("aws efs delete-mount-target --region us-east-1")
    assert told[there["aws_cloudwatch_log_group"]].endswith("--log-group-name /resolute/told")
    assert told[there["aws_vpc_endpoint"]].startswith("aws ec2 delete-vpc-endpoints --vpc-endpoint-ids vpce-")


def test_what_no_state_has_is_removed_and_the_rest_stays(account: AwsAccount) -> None:
    there = made(account, "half")
    kept = ("aws_vpc", "aws_internet_gateway", "aws_subnet")
    for orphan in account.orphans("half", frozenset((kind, there[kind]) for kind in kept)):
        orphan.remove()
    assert {each.what.split()[-1] for each in account.left("half")} == {there[kind] for kind in kept}
    for orphan in account.orphans("half", frozenset()):
        orphan.remove()
    assert list(account.left("half")) == []


def test_what_a_person_has_added_stays(account: AwsAccount) -> None:
    """A mount target behind a group of their own, and log groups without the cluster's tag or under another name."""
    ec2 = account.client("ec2")
    there = made(account, "shared")
    network = ec2.describe_subnets(SubnetIds=[there["aws_subnet"]])["Subnets"][0]["VpcId"]
    theirs = ec2.create_security_group(GroupName="theirs", Description="theirs", VpcId=network)["GroupId"]
    elsewhere = ec2.create_subnet(VpcId=network, CidrBlock="10.9.16.0/20", AvailabilityZone=f"{REGION}c")["Subnet"]
    efs = account.client("efs")
    target = efs.create_mount_target(
        FileSystemId=there["aws_efs_file_system"], SubnetId=elsewhere["SubnetId"], SecurityGroups=[theirs]
    )["MountTargetId"]
    kept = {log_group(account, "/resolute/shared-2", "shared"), log_group(account, "/resolute/lone", "another")}
    known = frozenset(each for each in there.items() if each[0] != "aws_efs_mount_target")
    removed = []
    for orphan in account.orphans("shared", known):
        orphan.remove()
        removed.append(orphan.what)
    assert not [each.what for each in account.orphans("lone", frozenset()) if each.what.startswith("log group")]
    assert removed == [f"mount target {there['aws_efs_mount_target']}"]
    assert [each["MountTargetId"] for each in efs.describe_mount_targets(MountTargetId=target)["MountTargets"]]
    assert kept <= {each["logGroupName"] for each in account.client("logs").describe_log_groups()["logGroups"]}


def test_efs_removes_nothing_that_it_still_makes() -> None:
    """Its own states, in the order in which it tells them."""
    states, ended, slept = ["creating", "creating", "available", "deleting"], [], []

    def told() -> list[dict[str, str]]:
        return [{"LifeCycleState": states.pop(0)}] if states else []

    end_of_efs("mount target fsmt-1", told, lambda: ended.append(states[:]), KeyError, sleep=slept.append)
    assert ended == [["deleting"]] and len(slept) == 4
    with pytest.raises(ResoluteError, match="mount target fsmt-1 is not gone after 10 min"):
        end_of_efs("mount target fsmt-1", lambda: [{"LifeCycleState": "deleting"}], int, KeyError, sleep=slept.append)
