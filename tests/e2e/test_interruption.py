"""Machines that are taken away, with notice and without: what is saved, where work goes on, what it cost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from resolute.testing.event_log import read_event_log
from resolute.wire.rest.extensions import GetLedgerResponse, Instance, LedgerRow, TrialAllocation
from support.event_log_checker import TrialRecord, check
from support.live import LiveCluster, live_cluster, record_of, until
from support.new_db import NewDb

STEPS = 140
CHECKPOINT_EVERY = 15
NOTICE_S = 10.0
KILL_AT = 70

INTERRUPTIONS = [
    {"instance": 1, "after_steps": 20, "notice": f"{NOTICE_S:g}s"},
    {"instance": 2, "after_steps": KILL_AT},
]

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is on record of one trial that lost two machines."""

    cluster: LiveCluster
    event_log: list[dict[str, Any]]
    record: TrialRecord
    runs: tuple[TrialAllocation, ...]
    instances: Mapping[str, Instance]
    ledger: GetLedgerResponse

    def of_run(self, run: int, event: str) -> list[Entry]:
        return [e for e in self.event_log if (e["trial_run_id"], e["event"]) == (run, event)]

    def machine(self, run: int) -> Instance:
        (id_,) = self.runs[run - 1].instance_ids
        return self.instances[id_]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory, new_db: NewDb) -> Iterator[Scenario]:
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 2,
        "max_idle_agent_period": "1s",
        "price_per_hour": 3,
        "interruptions": INTERRUPTIONS,
    }
    pool = {"provider": provider, "agent_reconnect_wait": "2s"}
    with live_cluster(tmp_path_factory.mktemp("interruption"), pool=pool, **new_db()) as cluster:
        script = [f"report {STEPS} every 0.05s", f"checkpoint every {CHECKPOINT_EVERY}"]
        experiment = cluster.submit({"script": script, "event_log": f"{cluster.event_log}/"}, max_restarts=0)
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
        (trial,) = experiment.list_trials()
        instances = until("the books are closed", lambda: closed(cluster))
        yield Scenario(
            cluster=cluster,
            event_log=read_event_log(cluster.event_log),
            record=record_of(experiment, steps=STEPS, lost=cluster.lost_machines()),
            runs=trial.list_allocations(),
            instances={each.id: each for each in instances},
            ledger=cluster.client.cluster.ledger(),
        )
    assert cluster.left_over() == []


def closed(cluster: LiveCluster) -> tuple[Instance, ...] | None:
    """Every machine, once none is paid any more."""
    instances = cluster.client.cluster.instances()
    return instances if all(each.paid_until is not None for each in instances) else None


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_nothing_was_lost_and_nothing_ran_twice(scenario: Scenario) -> None:
    assert check(scenario.event_log, [scenario.record]) == []
    assert len(scenario.runs) == 3
    assert len({scenario.machine(run).id for run in (1, 2, 3)}) == 3


def test_a_notice_becomes_a_checkpoint_before_the_deadline(scenario: Scenario) -> None:
    notice = scenario.machine(1).notice
    assert notice is not None and notice.deadline is not None
    told_at = notice.deadline - timedelta(seconds=NOTICE_S)
    last_save = scenario.of_run(1, "save")[-1]
    assert told_at <= moment(last_save["at"]) <= notice.deadline
    (end,) = scenario.of_run(1, "end")
    assert end["why"] == "preempted" and moment(end["at"]) <= notice.deadline
    assert scenario.runs[0].preempted and scenario.runs[0].exit_code == 0


def test_after_a_notice_not_one_step_is_done_again(scenario: Scenario) -> None:
    (start,) = scenario.of_run(2, "start")
    saved = scenario.of_run(1, "save")[-1]
    assert start["step"] == saved["step"] == scenario.of_run(1, "step")[-1]["step"]
    assert start["resumed_from"] == saved["uuid"]
    assert scenario.runs[1].steps_at_start == scenario.runs[0].steps_kept == saved["step"]


def test_the_replacement_is_asked_for_at_the_notice_and_not_at_the_end(scenario: Scenario) -> None:
    first, second = scenario.machine(1), scenario.machine(2)
    assert first.notice is not None and first.notice.deadline is not None and second.requested_at is not None
    told_at = first.notice.deadline - timedelta(seconds=NOTICE_S)
    assert told_at <= second.requested_at <= first.notice.deadline
    assert first.paid_until is not None and second.requested_at < first.paid_until
    launches = [d for d in scenario.cluster.client.cluster.decisions(1000) if d.subject == second.id]
    assert [d.kind for d in launches][:1] == ["launch"]


def test_a_machine_that_dies_without_a_word_costs_the_steps_since_the_last_checkpoint(scenario: Scenario) -> None:
    saved = scenario.of_run(2, "save")[-1]
    last = scenario.of_run(2, "step")[-1]["step"]
    (start,) = scenario.of_run(3, "start")
    assert start["step"] == saved["step"] < last
    assert not scenario.of_run(2, "end"), "it had no time to write one"
    assert scenario.machine(2).notice is None
    with_notice, without = scenario.ledger.interruptions
    assert (with_notice.noticed, with_notice.steps_lost) == (True, 0)
    # The very last step may have died with the machine before the master heard of it.
    assert without.steps_done is not None and KILL_AT <= without.steps_done <= last
    assert (without.noticed, without.steps_lost) == (False, without.steps_done - saved["step"])
    assert with_notice.instance_id == scenario.machine(1).id and without.instance_id == scenario.machine(2).id


def test_what_a_machine_did_sums_to_what_was_paid(scenario: Scenario) -> None:
    for book in scenario.ledger.instances:
        assert book.paid_from is not None and book.paid_until is not None
        paid_s = (book.paid_until - book.paid_from).total_seconds()
        assert book.row.paid_s == pytest.approx(paid_s * book.slots, abs=1e-3)
        assert parts_of(book.row) == pytest.approx(book.row.paid_s, abs=1e-3), book.instance_id
        assert book.row.cost == pytest.approx(book.row.paid_s * book.price_per_hour / 3600, rel=1e-6)
        assert sum(book.row.costs.values()) == pytest.approx(book.row.cost, rel=1e-6)
    totals = scenario.ledger.totals
    assert parts_of(totals) == pytest.approx(totals.paid_s, abs=1e-3)
    for name in ("paid_s", "useful_s", "starting_s", "checkpointing_s", "lost_s", "idle_s", "cost"):
        whole = sum(getattr(book.row, name) for book in scenario.ledger.instances)
        assert getattr(totals, name) == pytest.approx(whole, abs=1e-3), name
    lost = {book.instance_id: book.row.lost_s for book in scenario.ledger.instances}
    assert lost[scenario.machine(1).id] == 0 and lost[scenario.machine(2).id] > 0


def parts_of(row: LedgerRow) -> float:
    return row.useful_s + row.starting_s + row.checkpointing_s + row.lost_s + row.idle_s


def test_the_manifest_of_each_checkpoint_names_its_step(scenario: Scenario) -> None:
    (start,) = scenario.of_run(2, "start")
    saved = scenario.cluster.storage / start["resumed_from"] / "state.json"
    assert json.loads(saved.read_text())["step"] == start["step"]
