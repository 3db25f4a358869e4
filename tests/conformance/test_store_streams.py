"""What every store promises of its streams: metrics, logs and step marks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_master.domain.ids import AllocationId, TaskId, TrialId
from resolute_master.domain.metrics import MetricReport, StepReport
from resolute_master.store.base import LogQuery, MetricOutcome, Store, Unstorable
from support.stores import STORES, a_change, a_line, a_mark, a_report, moment, store_home

STORED, MERGED, REPEATED, CONFLICT = (
    MetricOutcome.STORED,
    MetricOutcome.MERGED,
    MetricOutcome.REPEATED,
    MetricOutcome.CONFLICT,
)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = await (await store_home(request)).open()
    yield store
    await store.close()


async def live(store: Store, trial: int = 1) -> list[tuple[int, str, int | None]]:
    """Run, group and step of what counts."""
    return [(row.run_id, row.group, row.steps_completed) for row in await store.metrics(TrialId(trial))]


# ------------------------------------------------------------------------------------------------------ metrics: keys


async def test_a_report_comes_back_as_it_went_in(store: Store) -> None:
    report = a_report(5, {"loss": 0.25, "nested": {"a": [1, 2.5, "x", None, True]}}, batch_metrics=({"loss": 1.5},))
    assert await store.append_metrics([report]) == (STORED,)
    assert await store.metrics(TrialId(1)) == (report,)
    assert await store.metrics(TrialId(2)) == ()
    assert await store.append_metrics([]) == ()


async def test_the_same_report_again_changes_nothing(store: Store) -> None:
    report = a_report(5, {"loss": 0.25, "accuracy": 0.5})
    assert await store.append_metrics([report]) == (STORED,)
    later = a_report(5, {"accuracy": 0.5}, reported_at=moment(99))
    assert await store.append_metrics([report, later]) == (REPEATED, REPEATED)
    assert await store.metrics(TrialId(1)) == (report,)


async def test_another_value_for_a_name_is_a_conflict_and_nothing_of_it_is_stored(store: Store) -> None:
    report = a_report(5, {"loss": 0.25})
    await store.append_metrics([report])
    assert await store.append_metrics([a_report(5, {"loss": 0.5, "new": 1.0})]) == (CONFLICT,)
    assert await store.metrics(TrialId(1)) == (report,)


async def test_a_conflict_does_not_hold_up_the_rest_of_its_batch(store: Store) -> None:
    await store.append_metrics([a_report(5, {"loss": 0.25})])
    outcomes = await store.append_metrics([a_report(6), a_report(5, {"loss": 9.0}), a_report(7)])
    assert outcomes == (STORED, CONFLICT, STORED)
    assert [row.steps_completed for row in await store.metrics(TrialId(1))] == [5, 6, 7]


async def test_new_names_are_merged_into_the_row(store: Store) -> None:
    await store.append_metrics([a_report(5, {"loss": 0.25})])
    more = a_report(5, {"loss": 0.25, "accuracy": 0.5}, reported_at=moment(99))
    assert await store.append_metrics([more]) == (MERGED,)
    assert await store.append_metrics([more]) == (REPEATED,)
    (row,) = await store.metrics(TrialId(1))
    assert row.metrics == {"loss": 0.25, "accuracy": 0.5}
    assert row.reported_at == moment(5)


async def test_the_key_is_trial_run_group_and_step(store: Store) -> None:
    same = {"loss": 1.0}
    other = {"loss": 2.0}
    outcomes = await store.append_metrics(
        [
            a_report(5, same),
            a_report(6, other),
            a_report(5, other, group="validation"),
            a_report(5, other, group="custom"),
            a_report(5, other, trial_id=TrialId(2)),
        ]
    )
    assert outcomes == (STORED,) * 5


async def test_duplicates_inside_one_batch_are_treated_as_if_they_came_one_by_one(store: Store) -> None:
    outcomes = await store.append_metrics(
        [
            a_report(5, {"loss": 1.0}),
            a_report(5, {"loss": 1.0}),
            a_report(5, {"accuracy": 0.5}),
            a_report(5, {"accuracy": 0.75}),
            a_report(5, {"accuracy": 0.5, "loss": 1.0}),
        ]
    )
    assert outcomes == (STORED, REPEATED, MERGED, CONFLICT, REPEATED)
    (row,) = await store.metrics(TrialId(1))
    assert row.metrics == {"loss": 1.0, "accuracy": 0.5}


async def test_a_second_set_of_batch_metrics_is_a_conflict(store: Store) -> None:
    first = ({"loss": 1.0}, {"loss": 2.0})
    assert await store.append_metrics([a_report(5)]) == (STORED,)
    assert await store.append_metrics([a_report(5, batch_metrics=first)]) == (MERGED,)
    assert await store.append_metrics([a_report(5, batch_metrics=first)]) == (REPEATED,)
    assert await store.append_metrics([a_report(5)]) == (REPEATED,)
    assert await store.append_metrics([a_report(5, batch_metrics=({"loss": 3.0},))]) == (CONFLICT,)
    (row,) = await store.metrics(TrialId(1))
    assert row.batch_metrics == first


async def test_numbers_that_json_cannot_spell_are_kept_as_words(store: Store) -> None:
    odd = {"a": math.nan, "b": math.inf, "c": {"d": [-math.inf, 1.0]}}
    words = {"a": "NaN", "b": "Infinity", "c": {"d": ["-Infinity", 1.0]}}
    report = a_report(5, odd, batch_metrics=({"a": math.nan},))
    assert await store.append_metrics([report, report, a_report(5, words)]) == (STORED, REPEATED, REPEATED)
    assert await store.append_metrics([report]) == (REPEATED,)
    (row,) = await store.metrics(TrialId(1))
    assert row.metrics == words
    assert row.batch_metrics == ({"a": "NaN"},)


async def test_a_report_that_cannot_be_written_fails_its_batch_and_nothing_is_stored(store: Store) -> None:
    with pytest.raises(Unstorable, match="object"):
        await store.append_metrics([a_report(1), a_report(2, {"x": object()})])
    assert await store.metrics(TrialId(1)) == ()


async def test_what_is_read_is_not_shared_with_the_store(store: Store) -> None:
    values: dict[str, Any] = {"nested": {"a": 1}}
    await store.append_metrics([a_report(5, values)])
    values["nested"]["a"] = 2
    (row,) = await store.metrics(TrialId(1))
    row.metrics["nested"]["a"] = 3
    (row,) = await store.metrics(TrialId(1))
    assert row.metrics == {"nested": {"a": 1}}


async def test_a_large_batch_is_stored_whole(store: Store) -> None:
    batch = [a_report(step, trial_id=TrialId(trial)) for step in range(1, 301) for trial in (1, 2, 3)]
    assert set(await store.append_metrics(batch)) == {STORED}
    assert set(await store.append_metrics(batch)) == {REPEATED}
    assert len(await store.metrics(TrialId(2))) == 300


# ---------------------------------------------------------------------------------------------- metrics: system groups


async def test_system_metrics_are_appended_by_their_time(store: Store) -> None:
    first = a_report(None, {"gpu_util": 0.5}, group="gpu", reported_at=moment(1))
    second = a_report(None, {"gpu_util": 0.75}, group="gpu", reported_at=moment(2))
    same_time = a_report(None, {"gpu_util": 0.1}, group="gpu", reported_at=moment(1))
    assert await store.append_metrics([second, first]) == (STORED, STORED)
    assert await store.append_metrics([first, same_time, same_time]) == (REPEATED, STORED, REPEATED)
    assert await store.metrics(TrialId(1), "gpu") == (first, same_time, second)


async def test_system_metrics_are_shown_only_by_name(store: Store) -> None:
    groups = ["gpu", "cpu", "memory", "disk", "network", "training", "custom"]
    await store.append_metrics([a_report(1, group=group) for group in groups])
    assert [row.group for row in await store.metrics(TrialId(1))] == ["custom", "training"]
    assert [row.group for row in await store.metrics(TrialId(1), "disk")] == ["disk"]


# -------------------------------------------------------------------------------------------------- metrics: rollback


async def test_a_newer_run_archives_what_it_does_again(store: Store) -> None:
    await store.append_metrics(
        [a_report(step) for step in (10, 20, 30, 40)] + [a_report(step, group="validation") for step in (20, 40)]
    )
    await store.append_metrics([a_report(20, {"loss": 9.0}, run_id=2)])
    # Steps after 20 are done again, whatever the group; at 20 only what was reported again.
    assert await live(store) == [(1, "training", 10), (1, "validation", 20), (2, "training", 20)]
    archived = await store.metrics(TrialId(1), include_archived=True)
    assert sorted((row.run_id, row.group, row.steps_completed) for row in archived if row.archived) == [
        (1, "training", 20),
        (1, "training", 30),
        (1, "training", 40),
        (1, "validation", 40),
    ]
    await store.append_metrics([a_report(20, {"loss": 8.0}, run_id=2, group="validation")])
    assert await live(store) == [(1, "training", 10), (2, "training", 20), (2, "validation", 20)]


async def test_all_other_groups_count_as_one_in_a_rollback(store: Store) -> None:
    await store.append_metrics([a_report(10, group="inference"), a_report(10), a_report(10, group="validation")])
    await store.append_metrics([a_report(10, run_id=2, group="custom")])
    assert await live(store) == [(1, "training", 10), (1, "validation", 10), (2, "custom", 10)]


async def test_system_metrics_neither_roll_back_nor_are_rolled_back(store: Store) -> None:
    system = a_report(None, group="gpu", reported_at=moment(1))
    stepped = a_report(50, group="cpu")
    await store.append_metrics([system, stepped, a_report(50)])
    await store.append_metrics([a_report(None, {"x": 1}, run_id=2, group="gpu"), a_report(1, run_id=2, group="cpu")])
    assert await live(store) == [(1, "training", 50)]
    await store.append_metrics([a_report(1, run_id=2)])
    assert await live(store) == [(2, "training", 1)]
    assert [row.run_id for row in await store.metrics(TrialId(1), "gpu")] == [1, 2]
    assert [row.run_id for row in await store.metrics(TrialId(1), "cpu")] == [2, 1]


async def test_a_run_does_not_roll_back_itself_newer_runs_or_other_trials(store: Store) -> None:
    await store.append_metrics([a_report(10, run_id=3), a_report(20, run_id=3), a_report(20, trial_id=TrialId(2))])
    await store.append_metrics([a_report(5, run_id=2), a_report(5, run_id=3, group="validation")])
    # The late report of run 2 stands until run 3 reports that it has done step 5 of the same group, or less.
    assert await live(store) == [
        (2, "training", 5),
        (3, "validation", 5),
        (3, "training", 10),
        (3, "training", 20),
    ]
    assert await live(store, trial=2) == [(1, "training", 20)]
    await store.append_metrics([a_report(4, run_id=3)])
    assert (2, "training", 5) not in await live(store)


async def test_repeats_roll_back_and_conflicts_do_not(store: Store) -> None:
    await store.append_metrics([a_report(10, {"loss": 1.0}, run_id=2)])
    await store.append_metrics([a_report(30, run_id=1)])
    await store.append_metrics([a_report(10, {"loss": 2.0}, run_id=2)])
    assert await live(store) == [(2, "training", 10), (1, "training", 30)]
    await store.append_metrics([a_report(10, {"loss": 1.0}, run_id=2)])
    assert await live(store) == [(2, "training", 10)]


async def test_a_rollback_inside_one_batch(store: Store) -> None:
    batch: list[MetricReport] = [a_report(10), a_report(20), a_report(10, run_id=2), a_report(15, run_id=2)]
    assert await store.append_metrics(batch) == (STORED,) * 4
    assert await live(store) == [(2, "training", 10), (2, "training", 15)]
    assert await store.append_metrics(batch[:2]) == (REPEATED, REPEATED)
    assert await live(store) == [(2, "training", 10), (2, "training", 15)]


async def test_metrics_are_listed_by_step_then_run_then_group(store: Store) -> None:
    await store.append_metrics(
        [
            a_report(20),
            a_report(None, group="custom", reported_at=moment(4)),
            a_report(10, group="validation"),
            a_report(10, group="a"),
            a_report(10),
        ]
    )
    assert await live(store) == [
        (1, "custom", None),
        (1, "a", 10),
        (1, "training", 10),
        (1, "validation", 10),
        (1, "training", 20),
    ]


# --------------------------------------------------------------------------------------------------------------- logs


async def found(store: Store, *tasks: str, **filters: Any) -> list[str]:
    query = LogQuery(task_ids=tuple(TaskId(task) for task in tasks or ("task",)), **filters)
    return [line.key for line in await store.logs(query)]


async def test_lines_come_back_in_the_order_in_which_they_were_stored(store: Store) -> None:
    await store.append_logs([a_line("b", at=moment(2)), a_line("a", at=moment(1))])
    await store.commit(a_change(1, logs=(a_line("master", source="master"),)))
    await store.append_logs([a_line("c", at=moment(0), rank=None, allocation_id=None)])
    await store.append_logs([])
    lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert [line.key for line in lines] == ["b", "a", "master", "c"]
    ids = [line.id for line in lines]
    assert ids == sorted(set(ids)) and ids[0] > 0
    assert lines[3].rank is None and lines[3].allocation_id is None
    assert lines[0].at == moment(2)


async def test_a_line_whose_key_is_known_is_left_out(store: Store) -> None:
    await store.append_logs([a_line("a"), a_line("a", log="again"), a_line("b", log="same"), a_line("c", log="same")])
    await store.append_logs([a_line("c"), a_line("d")])
    await store.commit(a_change(1, logs=(a_line("a"), a_line("e"))))
    lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert [(line.key, line.log) for line in lines] == [
        ("a", "line a"),
        ("b", "same"),
        ("c", "same"),
        ("d", "line d"),
        ("e", "line e"),
    ]


async def test_lines_of_several_tasks_are_read_together(store: Store) -> None:
    tasks = ["x", "y", "z", "x", "y"]
    await store.append_logs([a_line(f"{n}{task}", task_id=TaskId(task)) for n, task in enumerate(tasks)])
    assert await found(store, "x") == ["0x", "3x"]
    assert await found(store, "y", "x", "y") == ["0x", "1y", "3x", "4y"]
    assert await found(store, "unknown") == []
    assert await store.logs(LogQuery(task_ids=())) == ()


async def test_following_continues_after_the_last_id_seen(store: Store) -> None:
    await store.append_logs([a_line(str(n)) for n in range(5)])
    first = await store.logs(LogQuery(task_ids=(TaskId("task"),), limit=3))
    assert [line.key for line in first] == ["0", "1", "2"]
    await store.append_logs([a_line("5")])
    assert await found(store, after_id=first[-1].id) == ["3", "4", "5"]
    assert await found(store, after_id=first[-1].id, limit=1) == ["3"]
    assert await found(store, after_id=first[-1].id + 3) == []


async def test_batches_that_are_given_together_are_stored_in_the_order_of_the_calls(store: Store) -> None:
    """The first takes several turns to be made ready and some of it is there already, so that it goes the longer way."""
    await store.append_logs([a_line("0")])
    await asyncio.gather(
        store.append_logs([a_line(str(n)) for n in range(1_200)]),
        *(store.append_logs([a_line(f"late {n}")]) for n in range(3)),
    )
    assert await found(store, limit=2_000) == [*map(str, range(1_200)), "late 0", "late 1", "late 2"]
    assert await asyncio.gather(
        store.append_metrics([a_report(1), *(a_report(step) for step in range(1, 1_200))]),
        store.append_metrics([a_report(1)]),
        store.append_metrics([a_report(600, run_id=2)]),
        store.append_metrics([a_report(601, run_id=1)]),
    ) == [(STORED, REPEATED, *[STORED] * 1_198), (REPEATED,), (STORED,), (REPEATED,)]
    assert await live(store) == [*((1, "training", step) for step in range(1, 600)), (2, "training", 600)]


async def test_descending_gives_the_newest_first(store: Store) -> None:
    await store.append_logs([a_line(str(n)) for n in range(4)])
    assert await found(store, descending=True) == ["3", "2", "1", "0"]
    assert await found(store, descending=True, limit=2) == ["3", "2"]
    assert await found(store, limit=0) == []


async def test_each_filter_selects_its_lines(store: Store) -> None:
    await store.append_logs(
        [
            a_line("plain"),
            a_line("allocation", allocation_id=AllocationId("task.2")),
            a_line("agent", agent_id="agent-2"),
            a_line("container", container_id="container-2"),
            a_line("rank", rank=3),
            a_line("rankless", rank=None),
            a_line("stderr", stdtype="stderr"),
            a_line("source", source="master"),
            a_line("error", level="ERROR"),
            a_line("warning", level="WARNING"),
            a_line("late", at=moment(10)),
        ]
    )
    assert await found(store, allocation_ids=("task.2", "task.3")) == ["allocation"]
    assert await found(store, agent_ids=("agent-2",)) == ["agent"]
    assert await found(store, container_ids=("container-2",)) == ["container"]
    assert await found(store, ranks=(3,)) == ["rank"]
    assert await found(store, ranks=(-1,)) == ["rankless"]
    assert await found(store, ranks=(3, -1)) == ["rank", "rankless"]
    assert await found(store, stdtypes=("stderr",)) == ["stderr"]
    assert await found(store, sources=("master",)) == ["source"]
    assert await found(store, levels=("ERROR", "WARNING")) == ["error", "warning"]
    assert await found(store, levels=("ERROR",), stdtypes=("stderr",)) == []
    assert await found(store, after=moment(0)) == ["late"]
    assert "late" not in await found(store, before=moment(9.999999))
    assert await found(store, before=moment(10), after=moment(9)) == ["late"]


async def test_text_is_a_substring_without_regard_to_case(store: Store) -> None:
    await store.append_logs(
        [
            a_line("upper", log="Loss 50% ÄPFEL"),
            a_line("lower", log="loss 505 äpfel"),
            a_line("under", log="a_b"),
            a_line("other", log="aXb\\"),
        ]
    )
    assert await found(store, text="LOSS") == ["upper", "lower"]
    assert await found(store, text="äpfel") == ["upper", "lower"]
    assert await found(store, text="50%") == ["upper"]
    assert await found(store, text="a_b") == ["under"]
    assert await found(store, text="b\\") == ["other"]
    assert await found(store, text="") == ["upper", "lower", "under", "other"]


async def test_text_can_be_a_regular_expression(store: Store) -> None:
    await store.append_logs([a_line("a", log="step 10"), a_line("b", log="step x"), a_line("c", log="Step 7")])
    assert await found(store, text=r"step \d+$", regex=True) == ["a"]
    assert await found(store, text=r"^(S|s)tep [0-9]", regex=True) == ["a", "c"]
    with pytest.raises(InvalidInput, match=r"searchText: 'step \('"):
        await found(store, text="step (", regex=True)


async def test_no_expression_takes_longer_than_the_text_is_long(store: Store) -> None:
    """An engine that backtracks tries some 2**4000 ways here."""
    await store.append_logs([a_line("a", log="a" * 4000 + "!\n"), a_line("b", log="a" * 4000 + "\n")])
    async with asyncio.timeout(60):
        assert await found(store, text="(a+)+$", regex=True) == ["b"]
        assert await found(store, text="^(a|a?)+$", regex=True) == ["b"]


@pytest.mark.parametrize(
    "pattern", [r"(a)\1", r"(?=a)", r"(?<!a)b", "((a{1,100}){1,100}){1,100}", "(" * 2000, "\ud800("]
)
async def test_what_re2_does_not_take_is_refused_by_every_store(store: Store, pattern: str) -> None:
    await store.append_logs([a_line("a", log="aa")])
    with pytest.raises(InvalidInput, match=r"searchText: .* is not a regular expression that RE2 takes"):
        await found(store, text=pattern, regex=True)


async def test_the_first_and_the_last_report_of_runs_are_found_also_where_newer_runs_have_archived_them(
    store: Store,
) -> None:
    trial, other = a_report(1).trial_id, TrialId(2)
    assert await store.outer_reports([(trial, 1)]) == ()
    await store.append_metrics([a_report(step, reported_at=moment(step)) for step in (9, 4, 6)])
    around = [
        a_report(4, group="validation", reported_at=moment(3)),
        a_report(9, group="validation", reported_at=moment(10)),
        a_report(1, group="gpu"),
        a_report(99, group="gpu"),
        a_report(None, group="network"),
        a_report(70, trial_id=other, reported_at=moment(70)),
    ]
    await store.append_metrics(around)
    await store.append_metrics([a_report(step, run_id=2, reported_at=moment(50)) for step in (5, 12, 3)])
    await store.append_metrics([a_report(7, run_id=3, reported_at=moment(60))])

    def told(run: int, steps: int, when: float, of: TrialId = trial) -> StepReport:
        return StepReport(trial_id=of, run_id=run, steps_completed=steps, at=moment(when))

    first = (told(1, 4, 3), told(1, 9, 9))
    assert await store.outer_reports([(trial, 1)]) == first
    second = (told(2, 3, 50), told(2, 12, 50))
    every = [(other, 1), (trial, 3), (trial, 2), (trial, 1), (trial, 4), (TrialId(3), 1), (trial, 1)]
    assert await store.outer_reports(every) == (*first, *second, told(3, 7, 60), told(1, 70, 70, of=other))
    assert await store.outer_reports([]) == ()


# --------------------------------------------------------------------------------------------------------- step marks


async def test_step_marks_are_listed_by_allocation_and_time_and_stored_once(store: Store) -> None:
    first, second, third = a_mark(2, steps=20), a_mark(1, steps=10), a_mark(1, steps=5, allocation="0.1")
    await store.append_step_marks([first, second, a_mark(2, steps=99), third])
    await store.append_step_marks([a_mark(1, steps=98)])
    await store.append_step_marks([])
    both = [AllocationId("1.request-1.1"), AllocationId("0.1")]
    assert await store.step_marks(both) == (third, second, first)
    assert await store.step_marks(both[:1]) == (second, first)
    assert await store.step_marks([]) == ()


async def test_the_lines_of_some_tasks_are_removed_and_counted(store: Store) -> None:
    tasks = ("one", "two", "three")
    await store.append_logs([a_line(f"{task}{n}", task_id=TaskId(task)) for task in tasks for n in range(3)])
    assert await store.remove_logs([TaskId("one"), TaskId("three"), TaskId("unknown")]) == 6
    assert await found(store, *tasks) == ["two0", "two1", "two2"]
    assert await store.remove_logs([TaskId("one")]) == 0
    assert await store.remove_logs([]) == 0
    await store.append_logs([a_line("one0", task_id=TaskId("one"))])
    assert await found(store, "one") == ["one0"]


async def test_the_fields_of_a_log_are_told_once_each(store: Store) -> None:
    lines = [a_line(str(n), agent_id=f"agent-{n % 2}", rank=None if n % 3 else n, container_id="") for n in range(9)]
    await store.append_logs([*lines, a_line("other", task_id=TaskId("other"), agent_id="elsewhere")])
    found = await store.log_fields(TaskId("task"))
    assert (found.agent_ids, found.ranks, found.container_ids) == (("agent-0", "agent-1"), (-1, 0, 3, 6), ())
    assert found.allocation_ids == ("task.1",)
    assert not (await store.log_fields(TaskId("task"), after_id=found.last_id)).some
