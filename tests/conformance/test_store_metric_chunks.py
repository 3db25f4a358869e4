"""What every store keeps of metric reports beside their rows: chunks, pages, reports at steps."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.store import metric_chunks
from resolute_master.store.base import MetricQuery, Store
from resolute_master.store.metric_chunks import NameSummary, by_group, chunk_of, chunks_of, extended, in_order, whole
from support.stores import STORES, a_change, a_report, a_trial, moment, store_home

TRIAL = TrialId(1)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Store]:
    monkeypatch.setattr(metric_chunks, "SMALLEST_CHUNK", 5)
    store = await (await store_home(request)).open()
    yield store
    await store.close()


def _rounded(names: dict[str, NameSummary]) -> dict[str, tuple[object, ...]]:
    """Sums are of the same numbers in other orders; NaN equals itself."""
    return {
        name: tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in _values(one))
        for name, one in names.items()
    }


def _values(one: NameSummary) -> tuple[object, ...]:
    low_high = (one.low, one.low_at, one.high, one.high_at)
    return (one.type, str(one.last), one.count, *low_high, round(one.total, 6) if one.total == one.total else "NaN")


async def _agree(store: Store) -> None:
    """The chunks say what the rows say, follow each other, and are not many."""
    rows = by_group(await store.metrics(TRIAL))
    kept = await store.metric_chunks([TRIAL])
    assert {key for key, of_key in rows.items() if of_key} == set(kept)
    for key, chunks in kept.items():
        together, expected = whole(chunks), chunk_of(rows[key])
        assert together is not None
        assert (together.reports, together.first_step, together.last_step) == (
            expected.reports,
            expected.first_step,
            expected.last_step,
        )
        assert _rounded(dict(together.names)) == _rounded(dict(expected.names))
        assert all(one.last_step < two.first_step for one, two in pairwise(chunks))


def _value(choice: random.Random) -> object:
    return choice.choice([choice.random(), choice.randrange(10), "NaN", "Infinity", "text", None, True, [1], 0.5, 0.25])


def _batch(choice: random.Random, run: int) -> list[MetricReport]:
    """Mostly onwards, sometimes not; mostly numbers, sometimes not."""
    first, count = choice.randrange(60), choice.randrange(1, 12)
    steps = list(range(first, first + count))
    if choice.random() < 0.3:
        choice.shuffle(steps)
    groups = choice.choices(["training", "validation", "own", "gpu"], weights=[6, 3, 1, 1], k=1)
    return [
        a_report(
            None if group == "gpu" else step,
            {"loss": choice.random() if choice.random() < 0.8 else _value(choice), f"m{choice.randrange(3)}": step},
            run_id=run,
            group=group,
            reported_at=moment(step + 1000 * run),
        )
        for group in groups
        for step in steps
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_chunks_say_what_the_rows_say_whatever_is_reported_and_in_which_order(store: Store, seed: int) -> None:
    choice = random.Random(seed)
    run = 1
    for _ in range(25):
        run += choice.random() < 0.15
        await store.append_metrics(_batch(choice, max(run - (choice.random() < 0.1), 1)))
        await _agree(store)


async def test_a_run_that_goes_on_from_an_earlier_step_takes_what_came_after_it_out_of_the_summary(
    store: Store,
) -> None:
    await store.append_metrics([a_report(step, {"loss": float(step)}) for step in range(1, 31)])
    await store.append_metrics([a_report(step, {"loss": -1.0}, group="validation") for step in (10, 20, 30)])
    await store.append_metrics([a_report(13, {"loss": 0.0}, run_id=2)])
    kept = await store.metric_chunks([TRIAL])
    training, validation = whole(kept[1, "training"]), whole(kept[1, "validation"])
    assert training is not None and validation is not None
    assert (training.reports, training.last_step, training.names["loss"].high) == (13, 13, 12.0)
    assert validation.reports == 1
    await _agree(store)


async def test_merged_names_are_in_the_summary(store: Store) -> None:
    await store.append_metrics([a_report(step) for step in range(1, 9)])
    await store.append_metrics([a_report(3, {"accuracy": 0.75})])
    await _agree(store)
    (of_step,) = [c for c in (await store.metric_chunks([TRIAL]))[1, "training"] if c.first_step <= 3 <= c.last_step]
    assert of_step.names["accuracy"].high_at == 3


async def test_of_a_range_come_the_chunks_that_reach_into_it_and_of_named_groups_alone(store: Store) -> None:
    await store.append_metrics([a_report(step) for step in range(1, 21)])
    await store.append_metrics([a_report(step, group="validation") for step in range(1, 21)])
    found = await store.metric_chunks([TRIAL, TrialId(2)], ["training"], first_step=6, last_step=11)
    assert [(c.first_step, c.last_step) for c in found[1, "training"]] == [(6, 10), (11, 15)]
    assert set(found) == {(1, "training")}


async def test_with_a_trial_go_its_chunks(store: Store) -> None:
    await store.append_metrics([a_report(1)])
    await store.commit(a_change(1, upserts=(a_trial(1),)))
    await store.commit(a_change(2, deletes=(("trial", 1),)))
    assert await store.metric_chunks([TRIAL]) == {}


# ------------------------------------------------------------------------------------------------------------- reads


async def test_pages_put_together_are_all_reports_of_a_group(store: Store) -> None:
    at_once = [a_report(None, {"used": number}, group="gpu", reported_at=moment(5)) for number in range(250)]
    await store.append_metrics(at_once)
    await store.append_metrics([a_report(step) for step in range(250)])
    await store.append_metrics([a_report(100, run_id=2)])
    for group, archived in (("training", True), ("training", False), ("gpu", False)):
        pages = [page async for page in store.metric_pages(TRIAL, group, include_archived=archived)]
        expected = await store.metrics(TRIAL, group, include_archived=archived)
        together = [report for page in pages for report in page]
        assert sorted(map(repr, together)) == sorted(map(repr, expected))
        assert [report.steps_completed for report in together] == [report.steps_completed for report in expected]


async def test_reports_are_found_by_their_steps(store: Store) -> None:
    await store.append_metrics([a_report(step) for step in range(1, 9)])
    await store.append_metrics([a_report(4, run_id=2)])
    assert [r.steps_completed for r in await store.metrics_at(TRIAL, "training", [2, 4, 6, 99])] == [2, 4]
    assert await store.metrics_at(TRIAL, "validation", [2]) == ()


async def test_reports_of_several_trials_are_found_between_two_steps(store: Store) -> None:
    for trial in (1, 2, 3):
        await store.append_metrics([a_report(step, trial_id=TrialId(trial)) for step in range(1, 9)])
    found = await store.metrics_between([TrialId(3), TrialId(1)], "training", first_step=4, last_step=5)
    assert [(r.trial_id, r.steps_completed) for r in found] == [(1, 4), (1, 5), (3, 4), (3, 5)]


async def test_ordered_reports_are_cut_out_of_the_whole(store: Store) -> None:
    await store.append_metrics([a_report(step) for step in range(1, 9)])
    await store.append_metrics([a_report(step, group="validation") for step in (4, 8)])

    async def places(**query: object) -> list[tuple[int | None, str]]:
        asked = MetricQuery(trial=TRIAL, groups=("training", "validation"), **query)  # type: ignore[arg-type]
        return [(r.steps_completed, r.group[0]) for r in await store.ordered_metrics(asked)]

    assert await places(offset=3, limit=3) == [(4, "t"), (4, "v"), (5, "t")]
    assert await places(descending=True, limit=3) == [(8, "v"), (8, "t"), (7, "t")]
    assert await places(first_step=4, last_step=5) == [(4, "t"), (4, "v"), (5, "t")]


# ------------------------------------------------------------------------------------------------------ chunks alone

_NUMBERS = st.one_of(st.floats(allow_nan=True, width=32), st.integers(-5, 5), st.booleans(), st.none(), st.text())
_REPORTS = st.lists(st.dictionaries(st.sampled_from("abc"), _NUMBERS, max_size=3), min_size=1, max_size=30)


@given(_REPORTS, st.integers(0, 30))
def test_two_parts_merged_are_the_whole(values: list[dict[str, object]], cut: int) -> None:
    reports = [a_report(step, dict(value)) for step, value in enumerate(values)]
    parts = [chunk_of(part) for part in (reports[:cut], reports[cut:]) if part]
    together = whole(parts)
    assert together is not None
    expected = chunk_of(reports)
    assert {n: v[:-1] for n, v in _rounded(dict(together.names)).items()} == {
        n: v[:-1] for n, v in _rounded(dict(expected.names)).items()
    }


@given(_REPORTS)
def test_names_come_back_from_their_text(values: list[dict[str, object]]) -> None:
    names = chunk_of([a_report(step, dict(value)) for step, value in enumerate(values)]).names
    assert _rounded(metric_chunks.from_text(metric_chunks.to_text(names))) == _rounded(dict(names)) or any(
        not str(one.last).isascii() or isinstance(one.last, float) for one in names.values()
    )


def test_chunks_grow_with_what_came_before_so_that_they_stay_few() -> None:
    reports = [a_report(step) for step in range(1, 20_001)]
    chunks = chunks_of(reports)
    assert [chunk.reports for chunk in chunks] == [1000] * 20
    late = extended(None, reports, preceding=1_280_000)
    assert [chunk.reports for chunk in late] == [10_000, 10_000]
    assert not in_order(chunks[-1], [a_report(20_000)]) and in_order(chunks[-1], [a_report(20_001)])
