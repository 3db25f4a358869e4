"""EC2 refuses what a pool asks for first: it turns to its next offer at once, says what it has learnt, and the work is done on the
machine that was to be had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from resolute.client.sdk import Experiment
from resolute.wire.rest.extensions import Instance, TrialAllocation
from resolute.wire.rest.offers import GetPoolOffersResponse, PoolOffer
from resolute_provisioner.clouds.aws.fake_ec2 import Refuse
from support.aws_cluster import AwsCluster, aws_cluster
from support.live import until

pytestmark = pytest.mark.needs("machines")

NO_CAPACITY = Refuse("InsufficientInstanceCapacity", 500)


def offer(instance_type: str, **keys: Any) -> dict[str, Any]:
    return {"instance_types": [instance_type], **keys}


POOLS = {
    "scarce": {"offers": [offer("m5.xlarge", price=0.05), offer("t3.large", price=0.06)]},
    # The two that are cheapest use up one quota; spot machines another.
    "spent": {
        "offers": [
            offer("m5.large", price=0.05),
            offer("c5.large", price=0.06),
            offer("r5.large", markets=["spot"], spot_price=0.08),
        ]
    },
}
REFUSED = {"m5.xlarge": NO_CAPACITY, "m5.large": Refuse("VcpuLimitExceeded"), "r5.large": NO_CAPACITY}
"""Answers to launches by type. In the pool `spent`, the type in between would be granted if it was requested."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is on record of the only trial of a pool, and of the pool when the trial had ended."""

    launches: list[str]
    """The types that EC2 was asked for, in that order."""
    runs: tuple[TrialAllocation, ...]
    machine: Instance
    """The machine of the last run."""
    offers: GetPoolOffersResponse
    refusals: list[str]
    """The pool's decisions about them."""

    def offer(self, instance_type: str) -> PoolOffer:
        return offer_of(self.offers, instance_type)


def offer_of(offers: GetPoolOffersResponse, instance_type: str) -> PoolOffer:
    (found,) = [each for each in offers.offers if each.instance_type == instance_type]
    return found


@dataclass(frozen=True, slots=True)
class Scenarios:
    untried: GetPoolOffersResponse
    """Offers of the pool `scarce`, before any request."""
    scarce: Scenario
    spent: Scenario
    told_to_who_waited: str
    """Output of `det job explain` for the pool `spent`, while no machine was available."""


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    with aws_cluster(tmp_path_factory.mktemp("refusals"), POOLS) as aws:
        yield told(aws)


def told(aws: AwsCluster) -> Scenarios:
    aws.front.refused.update(REFUSED)
    untried = aws.cluster.client.queue.offers("scarce")
    scarce, spent = (
        aws.cluster.submit({"script": ["report 5"]}, resources={"slots_per_trial": 1, "resource_pool": pool})
        for pool in ("scarce", "spent")
    )
    told_of_quota = until("who waits is told of the quota", lambda: why(aws, spent, naming="quota"))
    del aws.front.refused["r5.large"]
    for experiment in (scarce, spent):
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    return Scenarios(
        untried=untried,
        scarce=scenario(aws, "scarce", scarce),
        spent=scenario(aws, "spent", spent),
        told_to_who_waited=told_of_quota,
    )


def why(aws: AwsCluster, experiment: Experiment, *, naming: str) -> str | None:
    answer = aws.cluster.client.queue.explain(experiment.details.job_id)
    text = " / ".join([answer.reason, *answer.details])
    return text if naming in text else None


def scenario(aws: AwsCluster, pool: str, experiment: Experiment) -> Scenario:
    client = aws.cluster.client
    (trial,) = experiment.list_trials()
    runs = trial.list_allocations()
    (machine,) = [each for each in client.cluster.instances() if each.id in runs[-1].instance_ids]
    tagged = ("determined-resource-pool", pool)
    return Scenario(
        launches=[asked["InstanceType"] for asked in aws.front.launches() if tagged in tags_asked_for(asked)],
        runs=runs,
        machine=machine,
        offers=client.queue.offers(pool),
        refusals=[d.reason for d in client.cluster.decisions(1000) if (d.pool, d.kind) == (pool, "refused")],
    )


def tags_asked_for(asked: dict[str, str]) -> set[tuple[str, str]]:
    keys = {name.removesuffix(".Key"): value for name, value in asked.items() if name.endswith(".Key")}
    return {(key, asked[f"{name}.Value"]) for name, key in keys.items()}


# ------------------------------------------------------------------------------------------------------- no capacity


def test_the_next_offer_is_asked_for_at_once(scenarios: Scenarios) -> None:
    """Before the first is asked again, which backs off."""
    assert scenarios.scarce.launches == ["m5.xlarge", "t3.large"]
    (refusal,) = scenarios.scarce.refusals
    assert "InsufficientInstanceCapacity" in refusal


def test_the_work_is_done_on_the_machine_of_the_next_offer(scenarios: Scenarios) -> None:
    (run,) = scenarios.scarce.runs
    assert run.exit_code == 0
    assert scenarios.scarce.machine.offer == "aws/us-east-1/t3.large/on_demand"
    assert scenarios.scarce.machine.joined_at is not None


def test_what_was_learnt_of_the_offers_is_shown(scenarios: Scenarios) -> None:
    refused, granted = scenarios.scarce.offer("m5.xlarge"), scenarios.scarce.offer("t3.large")
    assert (refused.launches, refused.consecutive_refusals, refused.last_refusal) == (0, 1, "no_capacity")
    assert "InsufficientInstanceCapacity" in refused.last_message and refused.join_time_s is None
    assert (granted.launches, granted.consecutive_refusals, granted.last_refusal) == (1, 0, "")
    assert granted.join_time_s is not None
    untried = offer_of(scenarios.untried, "m5.xlarge")
    assert refused.expected_price is not None and untried.expected_price is not None
    assert refused.expected_price > untried.expected_price, "the wait for a refusal is part of what it costs"


# ------------------------------------------------------------------------------------------------------------- quota


def test_a_spent_quota_stops_its_family_and_no_other(scenarios: Scenarios) -> None:
    first, second, *again = scenarios.spent.launches
    assert (first, second) == ("m5.large", "r5.large")
    assert set(again) == {"r5.large"}, (
        "of the family nothing is asked for again, and not the type that would be granted"
    )
    assert scenarios.spent.machine.offer == "aws/us-east-1/r5.large/spot"
    (run,) = scenarios.spent.runs
    assert run.exit_code == 0


def test_who_waits_is_told_of_the_quota(scenarios: Scenarios) -> None:
    told = scenarios.told_to_who_waited
    assert "the quota of aws/us-east-1/on_demand/Standard" in told and "is used up" in told
    assert "VcpuLimitExceeded" in told and "InsufficientInstanceCapacity" in told


def test_the_operator_is_told_of_the_quota(scenarios: Scenarios) -> None:
    spent, same, other = (scenarios.spent.offer(each) for each in ("m5.large", "c5.large", "r5.large"))
    assert spent.quota == same.quota != other.quota
    assert "is used up" in spent.blocked and "VcpuLimitExceeded" in spent.blocked
    assert f"reported for offer {spent.id}" in same.blocked and same.blocked_until == spent.blocked_until
    assert other.blocked == "" and other.launches == 1
    assert "quota_exceeded: VcpuLimitExceeded" in scenarios.spent.refusals[0]
