"""Snapshot files written by hand: the examples of the original's scheduling, and what the files themselves promise."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from resolute.config.durations import MAX_DURATION_S
from resolute.config.resources import LEAST_WEIGHT, MOST_WEIGHT
from resolute.errors import InvalidInput, NotFound
from resolute.wire.states import AllocationState
from resolute_master.decision.offline import decide, explained
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.snapshot_edit import edited, parsed
from resolute_master.scheduler.snapshot_file import read_snapshot, write_snapshot
from resolute_master.scheduler.snapshot_format import FIRST_YEAR, LAST_YEAR
from support.pools import NOW, a_job, a_policy, an_agent, gone, leaving, on, waiting

FILES = Path(__file__).parent / "snapshots"


def file(name: str) -> Any:
    return json.loads((FILES / f"{name}.json").read_text())


def starts(name: str, *changes: str) -> dict[str, dict[str, list[int]]]:
    return {row["task"]: row["on"] for row in decide(file(name), changes).place}


def asked_to_leave(name: str, *changes: str) -> set[str]:
    return {row["task"] for row in decide(file(name), changes).preempt}


# ---------------------------------------------------------------------------------- examples, as the original or better


def by_job(name: str, *changes: str) -> tuple[int, int]:
    started = starts(name, *changes)
    return sum(task.startswith("t") for task in started), sum(task.startswith("u") for task in started)


def test_shares_follow_the_weights_as_the_algorithm_of_the_original_has_them() -> None:
    name = "fair_share_demands_10_and_30"
    assert by_job(name) == (4, 4)
    assert by_job(name, "jobs.ten.weight=3.0") == (6, 2)


def test_sizes_are_combined_exactly_where_the_original_takes_the_largest_first_and_fails() -> None:
    assert list(starts("sizes_4_6_8")["twelve"]) == ["eight", "four"]
    assert starts("sizes_4_6_8", "policy.allow_heterogeneous_fits=false") == {}


def test_agents_of_one_size_are_preferred_even_when_they_are_more() -> None:
    assert list(starts("one_of_2_four_of_1")["gang"]) == ["b", "c", "d", "e"]


def test_what_is_no_multiple_of_the_agents_never_starts_and_is_told_so() -> None:
    assert list(starts("twelve_on_eights")) == ["sixteen"]
    (row,) = decide(file("twelve_on_eights")).waiting
    assert row["reason"] == (
        "It can never start here: it needs 12 slots on whole machines of one size, and the pool's machines by slots "
        "are: 3 of 8."
    )


def test_a_stuck_job_keeps_its_agents_also_from_its_own_priority() -> None:
    """The original lets the peer start, and the stuck one wait as long as peers come."""
    assert starts("stuck_without_preemption") == {}
    assert list(starts("stuck_without_preemption", "agents.b=1")) == ["small"]
    assert set(starts("stuck_without_preemption", "agents.b=2")) == {"small", "less"}


def test_victims_are_the_least_important_the_latest_first_and_none_that_is_not_preemptible() -> None:
    assert asked_to_leave("preempting", "tasks.w.slots=1") == {"new"}
    assert asked_to_leave("preempting") == {"old", "new"}
    assert asked_to_leave("preempting", "tasks.w.slots=3") == {"old", "new", "peer"}
    assert asked_to_leave("preempting", "tasks.w.slots=4") == set()
    assert asked_to_leave("preempting", "policy.preemption=false") == set()


@pytest.mark.parametrize(("policy", "agent"), [("best", "full"), ("worst", "empty")])
def test_best_packs_and_worst_spreads(policy: str, agent: str) -> None:
    assert list(starts("shared_agents_by_policy", f"policy.fitting_policy={policy}")["w"]) == [agent]


def test_the_chief_is_on_the_largest_and_auxiliary_work_is_in_nobodys_way() -> None:
    started = starts("chief_and_auxiliary")
    assert list(started["gang"]) == ["large", "small"]
    assert started["notebook"] == {"large": []}


# ------------------------------------------------------------------------------------------------------------ files


def test_what_is_left_out_has_its_default() -> None:
    snapshot = read_snapshot({"agents": {"a": 2}, "tasks": {"t": {}, "u": {"on": {"a": 1}}}})
    waits, runs = snapshot.allocations.values()
    assert (waits.slots_needed, waits.job_id, snapshot.jobs[waits.job_id].priority) == (1, "t", 42)
    assert runs.held_slots[0].index == 0 and waits.requested_at < runs.requested_at < snapshot.now


def test_the_order_of_the_file_is_the_order_of_the_queue() -> None:
    tasks = {name: {"slots": 1} for name in ("zeta", "alpha", "mid")}
    assert [a.id for a in read_snapshot({"tasks": tasks}).pending()] == ["zeta", "alpha", "mid"]
    jobs: dict[str, Any] = {"last": {}, "first": {"priority": 1}}
    one = {name: {"job": name} for name in jobs}
    assert [a.id for a in read_snapshot({"jobs": jobs, "tasks": one}).pending()] == ["first", "last"]


def test_who_says_which_slots_comes_before_who_says_how_many() -> None:
    tasks = {"some": {"on": {"a": 2}}, "these": {"on": {"a": [0, 2]}}}
    snapshot = read_snapshot({"agents": {"a": 4}, "tasks": tasks})
    assert {a.id: [s.index for s in a.held_slots] for a in snapshot.allocations.values()} == {
        "some": [1, 3],
        "these": [0, 2],
    }


def test_an_elastic_pool_is_one_with_a_supply() -> None:
    supply = {"max_instances": 3, "offers": {"m": {"slots": 4}}}
    decided = decide({"agents": {"a": 4}, "tasks": {"w": {"slots": 8}}, "supply": supply})
    assert decided.machines == ("w",)
    assert "machines that the pool may launch" in decided.waiting[0]["reason"]
    read = read_snapshot({"agents": {"a": 4}, "supply": supply}).supply
    assert (read.room, [offer.room for offer in read.offers]) == (2, [None])


def test_no_machines_are_wanted_for_what_none_could_hold() -> None:
    data = {
        "tasks": {"u": {"slots": 5}, "w": {"slots": 8}},
        "supply": {"max_instances": 2, "offers": {"m": {"slots": 4}}},
    }
    decided = decide(data)
    assert (decided.machines, decided.waiting_count) == (("w",), 2)
    assert decided.waiting[0]["reason"].startswith("It can never start here: it needs 5 slots")
    alone = decide(data, ["tasks.w=null", "supply.offers.m.available=false"])
    assert (alone.machines, alone.no_machines) == ((), "")


def test_no_mix_of_sizes_is_looked_for_that_would_take_all_memory() -> None:
    offers = {"o": {"slots": 4}, "p": {"slots": 6}}
    data = {
        "policy": {"allow_heterogeneous_fits": True},
        "tasks": {"t": {"slots": 10**12 + 1}},
        "supply": {"max_instances": 10**12, "offers": offers, "room": 0},
    }
    assert "no machine is available" in decide(data).waiting[0]["reason"]
    few = decide(data, ["supply.max_instances=2", "tasks.t.slots=11"])
    assert "can never start" in few.waiting[0]["reason"]
    assert "can never start" in decide(data, ["supply.max_instances=1000"]).waiting[0]["reason"]


@pytest.mark.parametrize(
    "change",
    [
        "policy.max_aux_containers_per_agent=9223372036854775807",
        "supply.max_instances=9223372036854775807",
        "supply.offers.o.slots=9223372036854775807",
        'supply.machines.m={"slots": 9223372036854775807, "expected_at": "2026-01-01T00:00:00Z"}',
    ],
)
@pytest.mark.parametrize("kind", ["priority", "fair_share"])
def test_no_number_is_too_large_to_be_decided_on_and_explained(change: str, kind: str) -> None:
    data = {
        "now": "9000-12-31T23:59:59Z",
        "policy": {"type": kind, "preemption": kind == "priority"},
        "agents": {"a": 2},
        "jobs": {"j": {"priority": 60}, "k": {"priority": 50}},
        "tasks": {
            "r": {"on": {"a": 2}, "job": "j"},
            "aux": {"slots": 0},
            "t": {"slots": 16, "job": "k"},
            "u": {"job": "k"},
        },
        "supply": {"offers": {"o": {"slots": 4}}, "machines": {}},
    }
    for agents in ({"a": 2}, {"a": None}):
        told = decide({**data, "agents": agents}, [change])
        assert told.waiting_count
        assert explained({**data, "agents": agents}, [change], "k").reason


@pytest.mark.parametrize("data", [{"jobs": {"j": {"held": "no \ud800"}}}, {"tasks": {"\ud800": {}}}])
def test_half_of_a_character_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput, match=r"half of a surrogate pair in a text \(\\ud800\); write whole characters"):
        decide(data)


def test_an_offer_may_have_less_room_than_the_pool() -> None:
    def supply(room: int) -> dict[str, Any]:
        return {"max_instances": 9, "offers": {"m": {"slots": 4, "room": room}}}

    def world(room: int) -> dict[str, Any]:
        return {"agents": {"a": 4}, "tasks": {"w": {"slots": 12}}, "supply": supply(room)}

    assert "machines that the pool may launch" in decide(world(3)).waiting[0]["reason"]
    assert "machines that the pool may launch" not in decide(world(1)).waiting[0]["reason"]
    assert write_snapshot(read_snapshot(world(1)))["supply"]["offers"]["m"]["room"] == 1


def test_what_a_past_user_is_charged_counts() -> None:
    data = {
        "policy": {"type": "fair_share", "hierarchical_shares": True, "usage_half_life": "1h"},
        "agents": {"a": 1},
        "jobs": {"heavy": {"owner": 1}, "new": {"owner": 2}},
        "tasks": {"h": {"job": "heavy"}, "n": {"job": "new"}},
        "usage": {"1/1": 4.0},
    }
    assert [row["task"] for row in decide(data).place] == ["n"]
    assert [row["task"] for row in decide(data, ["usage.1/1=0.0"]).place] == ["h"]
    assert write_snapshot(read_snapshot(data))["usage"] == {"1/1": 4.0}


def test_names_and_addresses_of_people_and_machines_are_not_in_a_file() -> None:
    written = json.dumps(write_snapshot(read_snapshot(file("preempting"))))
    assert "address" not in written and "name" not in written and "EXPERIMENT" not in written


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([], "<snapshot>: must be a mapping of keys to values"),
        ({"version": 2}, "<snapshot>.version: is the version of another program (value 2); this one reads version 1"),
        ({"polcy": {}}, "<snapshot>.polcy: is not a known key; did you mean 'policy'?"),
        ({"now": "noon"}, '<snapshot>.now: must be a time with a zone (value "noon"); write it like 2026-'),
        ({"agents": {"a": "x"}}, "<snapshot>.agents.a: must be a mapping of keys to values"),
        ({"agents": {"a": {}}}, "<snapshot>.agents.a.slots: is a required property"),
        ({"agents": {"a": {"slots": [1, 1]}}}, "<snapshot>.agents.a.slots: names a slot twice (value [1, 1])"),
        (
            {"agents": {"a": {"slots": 2, "disabled_slots": [2]}}},
            "<snapshot>.agents.a.disabled_slots: 2 is not one of its slots; they are 0, 1",
        ),
        ({"jobs": {"j": {"priority": 0}}}, "<snapshot>.jobs.j.priority: must be at least 1 (value 0)"),
        ({"jobs": {"j": {"weight": 5e-324}}}, "<snapshot>.jobs.j.weight: must be at least 1e-06 (value 5e-324)"),
        (
            {"policy": {"preemption": True, "min_runtime": 1e15}},
            "<snapshot>.policy.min_runtime: is longer than a hundred years (value 1000000000000000.0); write at most",
        ),
        (
            {"policy": {"preemption": True, "preemption_grace": 1e300}},
            "<snapshot>.policy.preemption_grace: is longer than a hundred years (value 1e+300); write at most 876000h",
        ),
        (
            {"supply": {"offers": {"o": {"slots": 8, "expected_s": 1e300}}}},
            "<snapshot>.supply.offers.o.expected_s: is longer than a hundred years (value 1e+300); write at most",
        ),
        (
            {"now": "0001-01-01T00:00:00Z"},
            '<snapshot>.now: is out of range (value "0001-01-01T00:00:00Z"); name a time of the years 1970 to 9000',
        ),
        (
            {"tasks": {"t": {"requested_at": "9999-12-31T23:59:59Z"}}},
            '<snapshot>.tasks.t.requested_at: is out of range (value "9999-12-31T23:59:59Z"); name a time of',
        ),
        (
            {"tasks": {"t": {"job": "k"}}, "jobs": {"j": {}}},
            "<snapshot>.tasks.t.job: there is no job 'k' here; there are j",
        ),
        ({"tasks": {"t": {"on": {"a": 1}}}}, "<snapshot>.tasks.t.on: there is no agent 'a' here; there are none"),
        (
            {"tasks": {"t": {"state": "runs"}}},
            "<snapshot>.tasks.t.state: is not a known key; a task with 'on' runs there",
        ),
        (
            {"agents": {"a": 2}, "tasks": {"t": {"on": {"a": 3}}}},
            "<snapshot>.tasks.t.on.a: only 2 of its slots are left (value 3)",
        ),
        (
            {"agents": {"a": 2}, "tasks": {"t": {"on": {"a": [0]}}, "u": {"on": {"a": [0]}}}},
            "<snapshot>.tasks.u.on.a: slot 0 is used by 't'",
        ),
        (
            {"agents": {"b": 1, "a": 1_000_000_000}},
            "<snapshot>.agents: they have 1000000001 slots in all ('a' alone 1000000000); at most 1048576 are read, so",
        ),
        (
            {"agents": {"a": None}, "tasks": {"t": {"on": {"a": 1_000_000_000}}}},
            "<snapshot>.tasks: they hold 1000000000 slots in all ('t' alone 1000000000); at most 1048576 are read, so",
        ),
        (
            {"agents": {"a": {"slots": 20, "disabled_slots": [20]}}},
            "20 is not one of its slots; they are 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more",
        ),
        (
            {"tasks": {"t": {"leaving": True}}},
            "<snapshot>.tasks.t.leaving: is not possible for a pending task (value true); set where it runs (on), with {} if it",
        ),
        (
            {"agents": {"a": 1, "b": 1}, "tasks": {"t": {"single_node": True, "on": {"a": 1, "b": 1}}}},
            "<snapshot>.tasks.t.single_node: is contradicted (value true): it runs on a, b; name one of them, or omit single_node",
        ),
        ({"jobs": {"": {}}}, "<snapshot>.jobs: one of them has an empty name; give each a name"),
        ({"tasks": {"": {}}}, "<snapshot>.tasks: one of them has an empty name; give each a name"),
        (
            {"supply": {"offers": {"": {"slots": 4}}, "machines": {"": {"slots": 4}}}},
            "<snapshot>.supply.machines: one of them has an empty name; give each a name\n  <snapshot>.supply.offers: one",
        ),
        ({"usage": {"me": 1.0}}, "<snapshot>.usage.me: is not a user; write <workspace>/<user>"),
        (
            {"policy": {"type": "priority", "hierarchical_shares": True}},
            "<snapshot>.policy.hierarchical_shares: belongs to the fair_share scheduler (value true); remove it",
        ),
    ],
)
def test_bad_files_are_told_where_what_and_what_to_do(data: object, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_snapshot(data)
    assert problem in str(refused.value)


@pytest.mark.parametrize("year", [FIRST_YEAR, LAST_YEAR])
@pytest.mark.parametrize("kind", ["priority", "fair_share"])
def test_the_longest_durations_at_the_first_and_the_last_times_are_decided_on(year: int, kind: str) -> None:
    """Weights at their ends are decided on, too, and explained: what would help is looked for beyond them."""
    supply = {"offers": {"o": {"slots": 8, "expected_s": float(MAX_DURATION_S)}}}
    rules = {"type": kind, "min_runtime": MAX_DURATION_S, "preemption_grace": MAX_DURATION_S}
    for now, when in itertools.product((f"{year}-01-01T00:00:00Z", f"{year}-12-31T23:59:59Z"), repeat=2):
        data = {
            "now": now,
            "policy": {**rules, "preemption": True} if kind == "priority" else rules,
            "agents": {"a": 4},
            "jobs": {"old": {"priority": 90, "weight": MOST_WEIGHT}, "new": {"weight": LEAST_WEIGHT}},
            "tasks": {
                "r": {"job": "old", "on": {"a": 4}, "requested_at": when, "evictions": 1_000_000},
                "w": {"job": "new", "slots": 4, "requested_at": when},
            },
            "supply": supply,
        }
        assert [row["task"] for row in decide(data).waiting] == ["w"]
        assert explained(data, [], "new").reason


def test_the_order_of_the_file_is_the_order_of_arrival_whichever_jobs_are_listed() -> None:
    tasks = {"first": {"job": "x", "slots": 4}, "p": {"slots": 4}, "second": {"slots": 4}, "again": {"job": "x"}}
    data = {"agents": {"a": 4}, "jobs": {"none": {}, "x": {"weight": 2.0}, "second": {}}, "tasks": tasks}
    assert [row["task"] for row in decide(data).place] == ["first"]
    assert [row["task"] for row in decide(data, ["tasks.first=null"]).place] == ["p"]
    assert [row["task"] for row in decide(data, ["jobs.x.submitted_at=2025-12-31T23:59:59Z"]).place] == ["p"]


def test_slots_of_an_agent_that_is_gone_are_as_many_as_tasks_say_they_hold() -> None:
    tasks = {"some": {"on": {"gone": 2}}, "these": {"on": {"gone": [1]}}, "more": {"on": {"gone": 1}}}
    snapshot = read_snapshot({"agents": {"gone": None}, "tasks": tasks})
    assert {a.id: [s.index for s in a.held_slots] for a in snapshot.allocations.values()} == {
        "some": [0, 2],
        "these": [1],
        "more": [3],
    }


def test_what_a_live_pool_may_come_to_is_read() -> None:
    """A limit was lowered, an agent was blocked after the start, all that was asked to end has ended, a clock was set back."""
    snapshot = PoolSnapshot.build(
        a_policy(max_aux_containers_per_agent=1),
        [an_agent("a", 2)],
        [a_job("j")],
        [
            on(waiting("aux0", "j", 0), {"a": ()}),
            on(waiting("aux1", "j", 0), {"a": ()}),
            on(waiting("r", "j", 1, blocked_agents=(AgentId("a"),), single_node=True), {"a": (0,)}, second=9999),
            leaving(waiting("over", "j")),
            leaving(replace(gone(on(waiting("ended", "j"), {"a": (1,)})), state=AllocationState.TERMINATING)),
        ],
        now=NOW,
    )
    written = json.loads(json.dumps(write_snapshot(snapshot)))
    read = read_snapshot(written)
    assert write_snapshot(read) == written
    assert read.occupancy == snapshot.occupancy and schedule(read) == schedule(snapshot)
    assert {id_ for id_, row in written["tasks"].items() if row.get("on") == {}} == {"over.1", "ended.1"}


@pytest.mark.parametrize("depth", [17, 500, 200_000])
def test_what_lies_too_deep_is_refused_in_words(depth: int) -> None:
    text = "[" * depth + "]" * depth
    for change in (lambda: parsed(text), lambda: edited({}, [f"tasks={text}"])):
        with pytest.raises(InvalidInput, match="lists and mappings are nested more than 16 deep"):
            change()
    assert parsed("[" * 16 + "]" * 16) is not None


# ---------------------------------------------------------------------------------------------------------- changes


def test_changes_reach_names_with_dots_and_short_forms() -> None:
    data = {"agents": {"a.b": 4}, "tasks": {"1.t.1": {"slots": 2}}}
    changed = edited(
        data, ["agents.a.b.enabled=false", "tasks.1.t.1.slots=4", "policy.preemption=true", "tasks.new={}"]
    )
    assert changed == {
        "agents": {"a.b": {"slots": 4, "enabled": False}},
        "tasks": {"1.t.1": {"slots": 4}, "new": {}},
        "policy": {"preemption": True},
    }
    assert data == {"agents": {"a.b": 4}, "tasks": {"1.t.1": {"slots": 2}}}, "the file itself is left alone"


def test_a_task_that_names_no_job_has_one_that_can_be_changed() -> None:
    data = {"agents": {"a": 1}, "tasks": {"early": {}, "late": {}}}
    assert [row["task"] for row in decide(data).place] == ["early"]
    assert [row["task"] for row in decide(data, ["jobs.late.priority=1"]).place] == ["late"]
    assert [row["task"] for row in decide(data, ["tasks.early=null"]).place] == ["late"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('tasks.t={"slots": 1, "slots": 2}', "the key 'slots' occurs twice in one mapping (values 1 and 2); rename"),
        ("policy", "'policy': write it as <key>=<value>, for instance policy.preemption=true"),
        ("jobs.lte.priority=1", "there is no job 'lte' in the snapshot; did you mean 'late'?"),
        ("agents.z.enabled=false", "there is no agent 'z' in the snapshot"),
        (
            "agents.a.disabled_slots.0=3",
            "'agents.a.disabled_slots.0=3': agents.a.disabled_slots has no parts; set it as a whole, with "
            "'agents.a.disabled_slots=...'",
        ),
        (
            "policy.preemption.on=true",
            "policy.preemption has no parts; set it as a whole, with 'policy.preemption=...'",
        ),
        ("supply.room.most=1", "supply.room has no parts; set it as a whole, with 'supply.room=...'"),
        ("now.year=2026", "now has no parts; set it as a whole, with 'now=...'"),
        ("agents.a.on.x=1", "<snapshot>.agents.a.on: is not a known key"),
        ("agents.a.slots.x=1", "agents.a.slots has no parts (value 1); set it as a whole"),
        ("policy.preemtion=true", "<snapshot>.policy.preemtion: is not a known key; did you mean 'preemption'?"),
        ("jobs.late.priority=high", '<snapshot>.jobs.late.priority: must be an integer (value "high")'),
    ],
)
def test_bad_changes_are_told_what_is_wrong_and_what_to_do(change: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decide({"agents": {"a": 1}, "tasks": {"early": {}, "late": {}}}, [change])
    assert problem in str(refused.value)


def test_a_job_of_a_file_is_explained_as_a_live_one_is() -> None:
    answer = explained(file("stuck_without_preemption"), [], "peer")
    assert answer.blockers is not None and answer.blockers.ahead == ("big",) and answer.cycle == 0
    assert {found.change for found in answer.what_if} >= {"priority", "ahead_of", "more_agents"}
    with pytest.raises(NotFound):
        explained(file("stuck_without_preemption"), [], "nobody")
