"""Parts of recorded resources that a killed Terraform has made and not recorded, in a network of moto."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import botocore.exceptions
import pytest

from resolute_deploy.aws.parts import parts
from resolute_deploy.cloud import Planned, planned_resources
from support.deployed_aws import Aws, aws

EVERYWHERE = "0.0.0.0/0"


@pytest.fixture(scope="module")
def account() -> Iterator[Aws]:
    with aws() as account:
        yield account


@dataclass
class Site:
    """A network whose table and groups a state has, and whose parts it has not. A person has added parts of their own."""

    ec2: Any
    subnet: str
    table: str
    gateway: str
    master: str
    agent: str

    def destinations(self) -> set[str]:
        (found,) = self.ec2.describe_route_tables(RouteTableIds=[self.table])["RouteTables"]
        return {route["DestinationCidrBlock"] for route in found["Routes"]}

    def rules(self, group: str) -> list[tuple[bool, str, str | None, str | None]]:
        told = self.ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])
        return sorted(
            (each["IsEgress"], each["IpProtocol"], each.get("CidrIpv4", ""), each.get("FromPort"))
            for each in told["SecurityGroupRules"]
        )


@pytest.fixture
def site(account: Aws) -> Site:
    ec2 = account.client("ec2")
    network = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network)
    table = ec2.create_route_table(VpcId=network)["RouteTable"]["RouteTableId"]
    for destination in (EVERYWHERE, "192.168.0.0/16"):
        ec2.create_route(RouteTableId=table, DestinationCidrBlock=destination, GatewayId=gateway)
    subnet = ec2.create_subnet(VpcId=network, CidrBlock="10.9.0.0/20")["Subnet"]["SubnetId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    master, agent = (
        ec2.create_security_group(GroupName=f"{network}-{part}", Description=part, VpcId=network)["GroupId"]
        for part in ("master", "agent")
    )
    site = Site(ec2, subnet, table, gateway, master, agent)
    for range_, port in (("10.0.0.0/8", 8080), ("10.0.0.0/8", 9090), ("172.16.0.0/12", 8080)):
        allow(site, master, port, IpRanges=[{"CidrIp": range_}])
    allow(site, master, 8080, UserIdGroupPairs=[{"GroupId": agent}])
    ec2.authorize_security_group_ingress(
        GroupId=agent, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": agent}]}]
    )
    return site


def allow(site: Site, group: str, port: int, **ends: Any) -> None:
    permission = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **ends}
    site.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])


def rule(group: str, *, out: bool = False, port: int | None = None, **ends: str) -> Planned:
    """As Terraform plans it."""
    values = {"security_group_id": group, "ip_protocol": "tcp" if port else "-1", "from_port": port, "to_port": port}
    type_ = f"aws_vpc_security_group_{'egress' if out else 'ingress'}_rule"
    return Planned(type=type_, values={"cidr_ipv4": None, "referenced_security_group_id": None, **values, **ends})


def removed(site: Site, *planned: Planned) -> list[str]:
    found = []
    for orphan in parts(site.ec2, planned):
        orphan.remove()
        found.append(orphan.what)
    return found


def test_a_route_that_is_planned_is_removed_and_no_other(site: Site) -> None:
    route = Planned(type="aws_route", values={"route_table_id": site.table, "destination_cidr_block": EVERYWHERE})
    again = {"RouteTableId": site.table, "DestinationCidrBlock": EVERYWHERE, "GatewayId": site.gateway}
    with pytest.raises(botocore.exceptions.ClientError, match="RouteAlreadyExists"):
        site.ec2.create_route(**again)
    assert removed(site, route) == [f"route to {EVERYWHERE} of {site.table}"]
    assert site.destinations() == {"10.9.0.0/16", "192.168.0.0/16"}
    site.ec2.create_route(**again)


def test_an_association_that_is_planned_is_removed(site: Site) -> None:
    values = {"route_table_id": site.table, "subnet_id": site.subnet}
    association = Planned(type="aws_route_table_association", values=values)
    assert removed(site, association) == [f"association of {site.subnet} with {site.table}"]
    assert removed(site, association) == []


def test_rules_that_are_planned_are_removed_and_no_others(site: Site) -> None:
    before = site.rules(site.master)
    told = removed(
        site,
        rule(site.master, port=8080, cidr_ipv4="10.0.0.0/8"),
        rule(site.master, port=8080, referenced_security_group_id=site.agent),
        rule(site.agent, referenced_security_group_id=site.agent),
        rule(site.agent, out=True, cidr_ipv4=EVERYWHERE),
    )
    assert len(told) == 4 and all(each.startswith("rule sgr-") for each in told)
    left = [each for each in before if each not in [(False, "tcp", "10.0.0.0/8", 8080), (False, "tcp", "", 8080)]]
    assert site.rules(site.master) == left and len(left) == 3
    assert site.rules(site.agent) == []
    allow(site, site.master, 8080, IpRanges=[{"CidrIp": "10.0.0.0/8"}])


@pytest.mark.parametrize(
    "wanted",
    [
        {"port": 443, "cidr_ipv4": "10.0.0.0/8"},
        {"port": 8080, "cidr_ipv4": "10.0.0.0/16"},
        {"out": True, "port": 8080, "cidr_ipv4": "10.0.0.0/8"},
        {"port": 8080},  # of a group that is still to be made
    ],
)
def test_a_rule_that_is_not_there_removes_none(site: Site, wanted: dict[str, Any]) -> None:
    before = site.rules(site.master)
    assert removed(site, rule(site.master, **wanted)) == []
    assert site.rules(site.master) == before


def test_parts_of_what_is_still_to_be_made_are_not_looked_for(site: Site) -> None:
    new = Planned(type="aws_route", values={"destination_cidr_block": EVERYWHERE})
    group = Planned(type="aws_vpc_security_group_ingress_rule", values={"ip_protocol": "-1"})
    association = Planned(type="aws_route_table_association", values={"route_table_id": site.table})
    assert removed(site, new, group, association) == []


def test_what_a_plan_makes_is_neither_what_it_replaces_nor_what_it_reads() -> None:
    def change(mode: str, *actions: str) -> dict[str, Any]:
        values = {"route_table_id": "-".join((mode, *actions))}
        return {
            "mode": mode,
            "type": "aws_route",
            "address": "aws_route.this",
            "change": {"actions": list(actions), "after": values},
        }

    plan = {
        "resource_changes": [
            change("managed", "create"),
            change("managed", "delete", "create"),
            change("managed", "update"),
            change("managed", "no-op"),
            change("data", "read"),
        ]
    }
    assert planned_resources(plan) == (
        Planned(type="aws_route", values={"route_table_id": "managed-create"}, address="aws_route.this"),
    )
    assert planned_resources({}) == ()
