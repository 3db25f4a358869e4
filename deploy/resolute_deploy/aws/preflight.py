"""Checks before anything is created, and the cost of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resolute.errors import InvalidInput
from resolute_deploy.cloud import Finding, HourlyCost, in_the_way
from resolute_deploy.cloud import hourly_cost as cost_of
from resolute_provisioner.catalogue.shipped import shipped
from resolute_provisioner.clouds.aws.catalogue import quota

if TYPE_CHECKING:
    from resolute_deploy.aws.account import AwsAccount


def preflight(account: AwsAccount, values: Mapping[str, Any], *, new: bool) -> list[Finding]:
    """All findings together. Raises `InvalidInput` if the account cannot be read."""
    if not account.has_region():
        raise InvalidInput(f"--region {account.region}: AWS has no such region")
    account.number()
    found: list[Finding] = []
    if not account.has_keypair(values["keypair"]):
        found.append(
            Finding(
                text=f"--keypair {values['keypair']}: {account.region} has no key pair of that name; "
                f"make it with `aws ec2 create-key-pair --region {account.region} --key-name {values['keypair']}`"
            )
        )
    for name in ("master_image_id", "compute_image_id", "aux_image_id"):
        if values.get(name) and account.image(values[name]) is None:
            flag = "--" + name.replace("_", "-")
            found.append(
                Finding(text=f"{flag} {values[name]}: {account.region} has no such image that this account may use")
            )
    if new:
        taken = [each.what for each in in_the_way(account, values["cluster_id"])]
        if taken:
            found.append(
                Finding(
                    text=f"--cluster-id {values['cluster_id']}: a cluster of that name exists already ({', '.join(taken[:3])}"
                    f"{', ...' if len(taken) > 3 else ''}), and its state is not here; "
                    "give the --state-path or --state-bucket that it was created with, or choose another name"
                )
            )
    found += _types_and_quota(account, values)
    return found


def _types_and_quota(account: AwsAccount, values: Mapping[str, Any]) -> Iterator[Finding]:
    compute, aux = values["compute_agent_instance_type"], values["aux_agent_instance_type"]
    processors = account.processors([*compute, *aux, values["master_instance_type"]])
    for name, types in (
        ("compute-agent-instance-type", compute),
        ("aux-agent-instance-type", aux),
        ("master-instance-type", [values["master_instance_type"]]),
    ):
        for each in types:
            if each not in processors:
                yield Finding(text=f"--{name} {each}: {account.region} has no such machine type")
    needs: dict[str, list[tuple[str, int]]] = {}
    machines = values["max_dynamic_agents"]
    for types, spot in ((compute, bool(values["spot"])), (aux, False)):
        there = [each for each in types if each in processors]
        codes = {each: quota(each, spot=spot).code(spot=spot) for each in there}
        for code in dict.fromkeys(codes.values()):
            largest = max((each for each in there if codes[each] == code), key=lambda each: processors[each])
            needs.setdefault(code, []).append((f"{machines} {largest}", machines * processors[largest]))
    for code, pools in needs.items():
        yield from _quota(account, code, pools)


def _quota(account: AwsAccount, code: str, pools: Sequence[tuple[str, int]]) -> Iterator[Finding]:
    """`pools` contains the largest number of machines of each pool that count towards the quota, and their vCPUs."""
    words, needed = " and ".join(each for each, _ in pools), sum(vcpus for _, vcpus in pools)
    allowed = account.quota(code)
    if allowed is None:
        yield Finding(text=f"the quota {code} of EC2 cannot be read; {words} need {needed} vCPUs of it", fatal=False)
    elif allowed < needed:
        yield Finding(
            text=f"{words} need {needed} vCPUs, and the quota {code} of EC2 in {account.region} is {allowed:g}; "
            "ask for more in Service Quotas, or lower --max-dynamic-agents"
        )


def hourly_cost(values: Mapping[str, Any], region: str) -> HourlyCost:
    """See `resolute_deploy.cloud.hourly_cost`."""
    listed = shipped("aws").prices
    pools = [
        [listed.get((each, region)) for each in types]
        for types in (values["compute_agent_instance_type"], values["aux_agent_instance_type"])
    ]
    master = listed.get((values["master_instance_type"], region))
    return cost_of(master, pools, values["min_dynamic_agents"], values["max_dynamic_agents"])
