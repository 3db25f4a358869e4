"""Routes, associations and rules that a killed Terraform created and did not record: see `resolute_deploy.cloud.remove_planned`.

They are parts of a recorded route table or security group and carry no mark, unlike a part that a user added. The plan identifies
them: it is about to create the same route, association or rule, which EC2 refuses a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from resolute_deploy.cloud import Orphan, Planned

ANY_PORT = (None, -1)
"""A rule for all protocols has no ports: Terraform plans none, and EC2 returns -1."""
RULES = {"aws_vpc_security_group_ingress_rule": False, "aws_vpc_security_group_egress_rule": True}
"""Whether rules of a type allow outgoing connections."""


def parts(ec2: Any, planned: Sequence[Planned]) -> Iterator[Orphan]:
    """The planned parts that exist already. A part of a table or group that does not exist yet cannot."""
    for each in planned:
        if each.type == "aws_route" and "route_table_id" in each.values:
            yield from _routes(ec2, each.values)
        elif each.type == "aws_route_table_association" and "subnet_id" in each.values:
            yield from _associations(ec2, each.values)
        elif each.type in RULES and "security_group_id" in each.values:
            yield from _rules(ec2, each.values, out=RULES[each.type])


def _routes(ec2: Any, wanted: Mapping[str, Any]) -> Iterator[Orphan]:
    table, destination = wanted["route_table_id"], wanted["destination_cidr_block"]
    filters = [{"Name": "route-table-id", "Values": [table]}]
    for found in ec2.describe_route_tables(Filters=filters)["RouteTables"]:
        if destination in {route.get("DestinationCidrBlock") for route in found["Routes"]}:
            remove = partial(ec2.delete_route, RouteTableId=table, DestinationCidrBlock=destination)
            yield Orphan(what=f"route to {destination} of {table}", remove=remove)


def _associations(ec2: Any, wanted: Mapping[str, Any]) -> Iterator[Orphan]:
    """The association of a subnet, which has one at most."""
    subnet = wanted["subnet_id"]
    filters = [{"Name": "association.subnet-id", "Values": [subnet]}]
    for found in ec2.describe_route_tables(Filters=filters)["RouteTables"]:
        for each in found["Associations"]:
            if each.get("SubnetId") == subnet:
                remove = partial(ec2.disassociate_route_table, AssociationId=each["RouteTableAssociationId"])
                yield Orphan(what=f"association of {subnet} with {found['RouteTableId']}", remove=remove)


def _rules(ec2: Any, wanted: Mapping[str, Any], *, out: bool) -> Iterator[Orphan]:
    group = wanted["security_group_id"]
    filters = [{"Name": "group-id", "Values": [group]}]
    for page in ec2.get_paginator("describe_security_group_rules").paginate(Filters=filters):
        for found in page["SecurityGroupRules"]:
            if found["IsEgress"] is out and _same_rule(wanted, found):
                revoke = ec2.revoke_security_group_egress if out else ec2.revoke_security_group_ingress
                rule = found["SecurityGroupRuleId"]
                remove = partial(revoke, GroupId=group, SecurityGroupRuleIds=[rule])
                yield Orphan(what=f"rule {rule} of security group {group}", remove=remove)


def _same_rule(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """The properties that EC2 compares. A rule whose other group does not exist yet equals no existing rule."""
    if wanted["ip_protocol"] != found["IpProtocol"]:
        return False
    for field, key in (("from_port", "FromPort"), ("to_port", "ToPort")):
        planned, told = wanted.get(field), found.get(key)
        if planned != told and not (planned in ANY_PORT and told in ANY_PORT):
            return False
    ends = (wanted.get("cidr_ipv4"), wanted.get("referenced_security_group_id"))
    return any(ends) and ends == (found.get("CidrIpv4"), found.get("ReferencedGroupInfo", {}).get("GroupId"))
