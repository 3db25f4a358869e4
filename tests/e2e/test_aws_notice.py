"""A spot machine of AWS tells of its end by its metadata service alone, while a step lasts long: what the master does at that
word, before the machine and its work are gone.

Only the end itself is told, with no recommendation before it. The task is held still meanwhile, so that nothing that happens
then can come of work that has left or of a machine that has gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from resolute.testing.event_log import read_event_log
from resolute.wire.rest.extensions import TrialAllocation
from resolute.wire.states import NoticeKind
from support.aws_cluster import AwsCluster, aws_cluster
from support.event_log_checker import TrialRecord, check
from support.live import record_of, until

pytestmark = pytest.mark.needs("machines")

STEPS = 80
NOTICE_S = 300.0
"""Longer than EC2's two minutes, for a busy computer. Nobody waits for it to pass."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is on record of a trial whose machine told of its end, and of other work that came then."""

    ends_at: datetime
    held: tuple[TrialAllocation, ...]
    """The trial's runs when the other work was done, and its task still held."""
    launches: int
    """Requests for machines until then."""
    lived: bool
    """Whether EC2 still had the machine then."""
    other: tuple[TrialAllocation, ...]
    """The runs of the other work."""
    runs: tuple[TrialAllocation, ...]
    event_log: list[dict[str, Any]]
    record: TrialRecord
    decisions: list[tuple[str, str, str]]

    def of_run(self, run: int, event: str) -> list[dict[str, Any]]:
        return [each for each in self.event_log if (each["trial_run_id"], each["event"]) == (run, event)]

    def told(self, kind: str) -> list[str]:
        return [reason for each, _, reason in self.decisions if each == kind]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    # With room for one machine: only the word of its end lets another one come beside it.
    pools = {"default": {"instance_type": "m5.large", "spot": True, "spot_max_price": "0.05", "max_instances": 1}}
    with aws_cluster(tmp_path_factory.mktemp("notice"), pools) as aws:
        yield told(aws)


def told(aws: AwsCluster) -> Scenario:
    cluster = aws.cluster
    half = f"report {STEPS // 2} every 0.02s"
    script = [half, "checkpoint", "wait for preemption", half, "checkpoint every 50"]
    experiment = cluster.submit({"script": script, "event_log": f"{cluster.event_log}/"})
    until("it waits", lambda: any(each["event"] == "save" for each in read_event_log(cluster.event_log)))
    (trial,) = experiment.list_trials()
    (instance,) = trial.list_allocations()[0].instance_ids
    first = aws.machine_of(instance)
    (task,) = cluster.tasks()
    task.suspend()
    ends_at = aws.bridge.interrupt(first, NOTICE_S)
    until("EC2 is asked for another machine", lambda: len(aws.front.launches()) > 1, within_s=NOTICE_S / 2)
    other = done_meanwhile(aws)
    held, launches, lived = trial.list_allocations(), len(aws.front.launches()), aws.front.lives(first)
    task.resume()
    assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    until("EC2 has ended all", aws.all_ended)
    return Scenario(
        ends_at=ends_at,
        held=held,
        launches=launches,
        lived=lived,
        other=other,
        runs=trial.list_allocations(),
        event_log=read_event_log(cluster.event_log),
        record=record_of(experiment, steps=STEPS),
        decisions=aws.decisions(),
    )


def done_meanwhile(aws: AwsCluster) -> tuple[TrialAllocation, ...]:
    """The runs of work that needs no slot, so that it would find room on the machine that is going to end."""
    other = aws.cluster.submit({"script": ["report 1"]}, resources={"slots_per_trial": 0})
    assert other.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    (trial,) = other.list_trials()
    return trial.list_allocations()


def test_only_the_end_was_told(scenario: Scenario) -> None:
    (notice,) = scenario.told("notice")
    assert "interruption" in notice and not any("rebalance" in reason for _, _, reason in scenario.decisions)


def test_the_replacement_is_asked_for_while_machine_and_work_are_there(scenario: Scenario) -> None:
    (run,) = scenario.held
    assert run.end_time is None and scenario.lived
    assert scenario.launches == len(scenario.told("launch")) == 2


def test_the_work_is_asked_to_save_by_the_deadline_of_the_notice(scenario: Scenario) -> None:
    (run,) = scenario.held
    assert run.preempted and run.notice is not None
    assert (run.notice.kind, run.notice.deadline) == (NoticeKind.INTERRUPTION, scenario.ends_at)
    (asked,) = scenario.told("preempt")
    assert scenario.ends_at.isoformat(timespec="seconds") in asked


def test_nothing_more_is_placed_on_the_machine(scenario: Scenario) -> None:
    first, second = scenario.runs
    assert len({*first.instance_ids, *second.instance_ids}) == 2
    assert [run.instance_ids for run in scenario.other] == [second.instance_ids]


def test_the_work_goes_on_at_the_exact_step(scenario: Scenario) -> None:
    assert check(scenario.event_log, [scenario.record]) == []
    saved, (start,) = scenario.of_run(1, "save")[-1], scenario.of_run(2, "start")
    assert start["step"] == saved["step"] == scenario.of_run(1, "step")[-1]["step"] == STEPS // 2
    assert start["resumed_from"] == saved["uuid"]
    assert datetime.fromisoformat(saved["at"]) <= scenario.ends_at
