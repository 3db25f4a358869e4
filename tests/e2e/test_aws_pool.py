"""A pool on AWS from nothing to nothing: the real SDK speaks with moto, what moto launches is booted with the very bytes of its
user data, the machine is taken back through its metadata service, and the training goes on at the exact step elsewhere."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from resolute.testing.event_log import read_event_log
from resolute.wire.rest.extensions import Instance, TrialAllocation
from resolute_provisioner.clouds.aws.fake_ec2 import Lose
from resolute_provisioner.risk import BOOT_BACKOFF_S
from support.aws_cluster import AwsCluster, aws_cluster
from support.ec2_bridge import Ec2Bridge
from support.event_log_checker import TrialRecord, check
from support.live import LiveCluster, record_of, until

pytestmark = pytest.mark.needs("machines")

STEPS = 240
NOTICE_S = 120.0
"""As EC2 has it. Nobody waits for it to pass: the machine is given back as soon as its work has left."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is on record of one trial whose spot machine was taken back, and of a pool whose machines cannot boot."""

    aws: AwsCluster
    event_log: list[dict[str, Any]]
    record: TrialRecord
    runs: tuple[TrialAllocation, ...]
    instances: Mapping[str, Instance]
    told_at: datetime
    ends_at: datetime
    answer_to_used_token: httpx.Response
    decisions: list[tuple[str, str, str]]

    def machine(self, run: int) -> Instance:
        (id_,) = self.runs[run - 1].instance_ids
        return self.instances[id_]

    def of_run(self, run: int, event: str) -> list[Mapping[str, Any]]:
        return [e for e in self.event_log if (e["trial_run_id"], e["event"]) == (run, event)]

    def launch_of(self, instance_id: str) -> Mapping[str, str]:
        """Repeated ones are equal to the letter."""
        launch, *repeated = [asked for asked in self.aws.front.launches() if instance_id in asked.values()]
        assert all(asked["ClientToken"] == launch["ClientToken"] for asked in repeated)
        return launch


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    pools = {
        "default": {"instance_type": "m5.large", "spot": True, "spot_max_price": "0.05"},
        "broken": {"instance_type": "m5.large", "startup_script": "#!/bin/sh\necho no disk\nexit 3\n"},
    }
    with aws_cluster(tmp_path_factory.mktemp("aws"), pools) as aws:
        yield told(aws)


def told(aws: AwsCluster) -> Scenario:
    cluster, front, bridge = aws.cluster, aws.front, aws.bridge
    # The machine is taken back in the middle, however long that takes.
    half = f"report {STEPS // 2} every 0.05s"
    script = [half, "checkpoint", "wait for preemption", half, "checkpoint every 50"]
    front.fail("RunInstances", Lose(carried_out=True))
    doomed = cluster.submit({"script": ["report 1"]}, resources={"slots_per_trial": 1, "resource_pool": "broken"})
    experiment = cluster.submit({"script": script, "event_log": f"{cluster.event_log}/"}, max_restarts=0)
    until("it waits to be taken back", lambda: is_half_done(cluster, bridge))
    (trial,) = experiment.list_trials()
    (agent,) = trial.list_allocations()[0].instance_ids
    first = aws.machine_of(agent)
    used = files_of(front.user_data(first))
    answer = httpx.post(
        f"{cluster.url}/agents/boot/{agent}",
        headers={"X-Resolute-Join-Token": json.loads(used["agent.yaml"])["join_token"]},
        content=b"",
    )
    with bridge.boots_held():  # a replacement that joined before the second word would make that word needless
        bridge.recommend_rebalance(first)
        until("the master has heard of it", lambda: aws.told_of("rebalance"))
        ends_at = bridge.interrupt(first, NOTICE_S)
        until("the master has heard of that, too", lambda: aws.told_of("interruption"))
    assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    until("the broken pool has said why", lambda: boot_failures(cluster) or None)
    doomed.kill()
    until("EC2 has ended all", aws.all_ended)
    instances = until("the books are closed", lambda: closed(cluster))
    return Scenario(
        aws=aws,
        event_log=read_event_log(cluster.event_log),
        record=record_of(experiment, steps=STEPS),
        runs=trial.list_allocations(),
        instances={each.id: each for each in instances},
        told_at=ends_at - timedelta(seconds=NOTICE_S),
        ends_at=ends_at,
        answer_to_used_token=answer,
        decisions=aws.decisions(),
    )


def is_half_done(cluster: LiveCluster, bridge: Ec2Bridge) -> bool:
    bridge.check()
    return any((event["event"], event["step"]) == ("save", STEPS // 2) for event in read_event_log(cluster.event_log))


def files_of(user_data: bytes) -> dict[str, str]:
    found = re.findall(r"^put (\S+) <<'END'\n(\S+)\nEND$", user_data.decode(), re.MULTILINE)
    return {name: gzip.decompress(base64.b64decode(packed)).decode() for name, packed in found}


def boot_failures(cluster: LiveCluster) -> list[Instance]:
    return [each for each in cluster.client.cluster.instances() if "boot failed" in each.end_reason]


def closed(cluster: LiveCluster) -> tuple[Instance, ...] | None:
    """Every machine, once none is paid any more."""
    instances = cluster.client.cluster.instances()
    return instances if all(each.paid_until is not None or each.state == "refused" for each in instances) else None


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_the_training_goes_on_at_the_exact_step_on_another_machine(scenario: Scenario) -> None:
    assert check(scenario.event_log, [scenario.record]) == []
    assert len(scenario.runs) == 2 and scenario.machine(1).id != scenario.machine(2).id
    saved = scenario.of_run(1, "save")[-1]
    (start,) = scenario.of_run(2, "start")
    assert start["step"] == saved["step"] == scenario.of_run(1, "step")[-1]["step"]
    assert moment(saved["at"]) <= scenario.ends_at
    assert scenario.runs[0].preempted and scenario.runs[0].exit_code == 0


def test_the_replacement_is_asked_for_at_the_notice(scenario: Scenario) -> None:
    first, second = scenario.machine(1), scenario.machine(2)
    assert first.notice is not None and first.notice.deadline == scenario.ends_at
    assert second.requested_at is not None and first.paid_until is not None
    assert second.requested_at <= min(scenario.ends_at, first.paid_until)


def test_a_spot_machine_is_asked_for_as_it_should_be(scenario: Scenario) -> None:
    asked = scenario.launch_of(scenario.machine(1).id)
    assert asked["InstanceMarketOptions.MarketType"] == "spot"
    assert asked["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.05"
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    machine_id = scenario.aws.machine_of(scenario.machine(1).id)
    tags = scenario.aws.tags_of(machine_id)
    assert tags["resolute:token"] == scenario.machine(1).token and tags["determined-resource-pool"] == "default"
    held = scenario.aws.front.user_data(machine_id)
    assert base64.b64decode(asked["UserData"]) == held
    assert (scenario.aws.bridge.machines[machine_id].directory / "user-data").read_bytes() == held


def test_a_recommendation_to_leave_is_heard_and_costs_nothing(scenario: Scenario) -> None:
    told = [reason for kind, _, reason in scenario.decisions if kind == "notice"]
    assert len(told) == 2 and "rebalance" in told[0] and "interruption" in told[1]
    assert [reason for kind, _, reason in scenario.decisions if kind == "preempt" and "rebalance" in reason] == []


def test_each_machine_is_launched_once_and_ends(scenario: Scenario) -> None:
    """Although the answer to the very first launch was lost."""
    launches, machines = scenario.aws.front.launches(), scenario.aws.front.machines()
    assert len(launches) > len(machines)
    assert len({asked["ClientToken"] for asked in launches}) == len(machines)
    assert scenario.aws.all_ended()


def test_the_token_of_the_user_data_is_of_no_use_once_the_machine_has_joined(scenario: Scenario) -> None:
    assert scenario.answer_to_used_token.status_code == 403
    assert "good once" in scenario.answer_to_used_token.text


def test_a_machine_that_cannot_boot_says_why_and_ends_itself(scenario: Scenario) -> None:
    failed = [each for each in scenario.instances.values() if each.pool == "broken"]
    assert failed and all(each.joined_at is None for each in failed)
    said = [each for each in failed if "its boot failed (startup_script)" in each.end_reason]
    assert said and all("no disk" in each.end_reason for each in said)
    # The work was ended when the first had said why: one that was booting then is ended because nobody needs it any more.
    assert len(failed) - len(said) <= 1, [each.end_reason for each in failed]
    asked = sorted(each.requested_at for each in failed if each.requested_at is not None)
    pauses_s = [(later - earlier).total_seconds() for earlier, later in pairwise(asked)]
    wanted_s = [BOOT_BACKOFF_S * 2.0**number for number in range(len(pauses_s))]
    assert all(pause >= wanted for pause, wanted in zip(pauses_s, wanted_s, strict=True)), "it asks less and less"


def test_no_secret_is_in_what_machines_say(scenario: Scenario) -> None:
    for machine_id, machine in scenario.aws.bridge.machines.items():
        token = json.loads(files_of(scenario.aws.front.user_data(machine_id))["agent.yaml"])["join_token"]
        assert token not in machine.log()
        kept = Path(machine.directory / "lib" / "resolute" / "agent" / "agent-state.json")
        assert not kept.exists() or kept.stat().st_mode & 0o077 == 0
