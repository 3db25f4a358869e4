"""Series of metrics: downsampled with their extremes, compared, streamed; and a timeline that is read by page."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute_master.api.http.limits import (
    MAX_DATAPOINTS,
    MAX_METRICS_OF_SERIES,
    MAX_SAMPLED_TRIALS,
    MAX_STREAM_PERIOD_S,
)
from resolute_master.api.reading import series as series_module
from resolute_master.api.reading.series import series, thinned
from resolute_master.api.resources import validation_history
from resolute_master.api.resources.validation_history import improvements
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.store import metric_chunks
from support.api import World
from support.stores import a_report, moment

SPIKES = {3_333: 99.0, 7_777: -99.0}


def _reports(trial: int, count: int, group: str = "training") -> list[MetricReport]:
    """A quiet line with two spikes, one report each."""
    return [
        a_report(
            step,
            {"loss": SPIKES.get(step, 1.0 + step / count), "epoch": step // 100},
            trial_id=trial,
            group=group,
            reported_at=moment(step),
        )
        for step in range(1, count + 1)
    ]


async def _trial(world: World) -> Trial:
    agent = await world.agent()
    trial, _, _ = await world.started(agent)
    return trial


async def _reported(world: World, count: int) -> Trial:
    trial = await _trial(world)
    await world.context.store.append_metrics(_reports(trial.id, count))
    return trial


@pytest.mark.parametrize(("first", "last"), [(None, None), (500, 9_500), (3_333, 7_777)])
async def test_a_series_has_its_extremes_however_few_points_it_has(
    world: World, first: int | None, last: int | None
) -> None:
    trial = await _reported(world, 10_000)
    for most in (4, 50, 400):
        found = await series(world.context, trial.id, "training", ["loss"], most=most, first=first, last=last)
        steps = [report.steps_completed or 0 for report in found]
        assert len(steps) <= most and steps == sorted(set(steps))
        assert {3_333, 7_777} <= set(steps)
        assert (steps[0], steps[-1]) == (first or 1, last or 10_000)


async def test_a_long_series_is_not_read_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = await _reported(world, 10_000)
    read: list[int] = []
    store, at = world.context.store, world.context.store.metrics_at

    async def counted(*arguments: Any) -> tuple[MetricReport, ...]:
        found = await at(*arguments)
        read.append(len(found))
        return found

    monkeypatch.setattr(store, "metrics_at", counted)
    monkeypatch.setattr(store, "ordered_metrics", None)
    await series(world.context, trial.id, "training", ["loss"], most=100)
    assert 0 < sum(read) <= 100


def test_few_reports_are_shown_as_they_are() -> None:
    reports = _reports(1, 50)
    assert thinned(reports, ["loss"], 50) == tuple(reports)
    assert thinned(reports, ["none"], 50) == ()


async def test_trials_are_compared_by_their_series(world: World) -> None:
    trial = await _reported(world, 10_000)
    await world.context.store.append_metrics(_reports(trial.id, 10, "validation"))
    path = f"/api/v1/trials/time-series?trialIds={trial.id}&maxDatapoints=100"
    (one,) = (await world.get(f"{path}&metricNames=loss&metricType=METRIC_TYPE_TRAINING"))["trials"]
    assert one["trial"]["id"] == trial.id
    (line,) = one["metrics"]
    assert (line["group"], line["type"]) == ("training", "METRIC_TYPE_TRAINING")
    points = {point["batches"]: point for point in line["data"]}
    assert len(points) <= 100 and points[3_333]["values"] == {"loss": 99.0}
    assert (points[3_333]["epoch"], points[3_333]["time"][:4]) == (33.0, "2024")
    (both,) = (await world.get(f"{path}&metricIds=validation.loss&metricIds=training.epoch"))["trials"]
    assert [line["group"] for line in both["metrics"]] == ["validation", "training"]
    assert [point["batches"] for point in both["metrics"][0]["data"]] == list(range(1, 11))


async def test_a_filter_keeps_what_lies_in_its_range(world: World) -> None:
    trial = await _reported(world, 100)
    path = f"/api/v1/trials/time-series?trialIds={trial.id}&metricNames=loss&group=training"

    async def batches(query: str) -> list[int]:
        (one,) = (await world.get(f"{path}&{query}"))["trials"]
        return [point["batches"] for point in one["metrics"][0]["data"]]

    assert await batches("startBatches=98") == [98, 99, 100]
    assert await batches("endBatches=2") == [1, 2]
    filter_ = "timeSeriesFilter."
    assert await batches(f"{filter_}name=batches&{filter_}integerRange.gt=97&{filter_}integerRange.notIn=99") == [
        98,
        100,
    ]
    assert await batches(f"{filter_}name=loss&{filter_}doubleRange.gte=1.99") == [99, 100]
    after = moment(99).isoformat().replace("+00:00", "Z")
    assert await batches(f"{filter_}name=time&{filter_}timeRange.gte={after}") == [99, 100]


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("metricNames=loss", "trialIds"),
        ("trialIds={}", "metricNames"),
        ("trialIds={}&metricIds=loss", "metricIds"),
        (f"trialIds={{}}&metricNames=loss&maxDatapoints={MAX_DATAPOINTS + 1}", "maxDatapoints"),
        ("trialIds={}&metricNames=loss&startBatches=-1", "startBatches"),
        ("trialIds={}&metricNames=loss&startBatches=5&endBatches=4", "endBatches"),
        ("trialIds={}&" + "&".join(f"metricNames=m{n}" for n in range(MAX_METRICS_OF_SERIES + 1)), "metricNames"),
    ],
)
async def test_what_cannot_be_compared_is_refused_by_name(world: World, query: str, named: str) -> None:
    trial = await _trial(world)
    path = f"/api/v1/trials/time-series?{query.format(trial.id)}"
    assert named in await world.error("GET", path, status=400)


# ----------------------------------------------------------------------------------------------------------- streams


async def test_streams_of_a_running_experiment_tell_what_is_news_and_end_with_it(world: World) -> None:
    agent = await world.agent()
    trial, _, _ = await world.started(agent)
    await world.context.store.append_metrics(_reports(trial.id, 20))
    path = f"/api/v1/experiments/{trial.experiment_id}/metrics-stream/batches?metricName=loss&group=training"
    response = await world.send("GET", path)
    first = json.loads(await response.content.readline())
    assert first == {"result": {"batches": list(range(1, 21))}}
    await world.context.store.append_metrics(_reports(trial.id, 22)[20:])
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/kill")
    await agent.run_all()
    async with asyncio.timeout(30):
        rest = [json.loads(line) async for line in response.content]
    assert [line["result"]["batches"] for line in rest] == [[21, 22]]


async def test_names_of_metrics(world: World) -> None:
    trial = await _trial(world)
    await world.context.store.append_metrics(_reports(trial.id, 3))
    await world.context.store.append_metrics(_reports(trial.id, 3, "validation"))
    response = await world.send("GET", f"/api/v1/experiments/metrics-stream/metric-names?ids={trial.experiment_id}")
    found = json.loads(await response.content.readline())["result"]
    assert found["trainingMetrics"] == found["validationMetrics"] == ["epoch", "loss"]
    assert {"group": "validation", "name": "loss"} in found["metricNames"]
    assert found["searcherMetrics"] == ["loss"]
    response.close()


async def test_a_snapshot_shows_each_trial_at_that_step(world: World) -> None:
    trial = await _trial(world)
    await world.context.store.append_metrics(_reports(trial.id, 20))
    base = f"/api/v1/experiments/{trial.experiment_id}/metrics-stream/trials-snapshot?metricName=loss&group=training"
    for query, batches in (("batchesProcessed=10", 10), ("batchesProcessed=25&batchesMargin=6", 20)):
        response = await world.send("GET", f"{base}&{query}")
        (one,) = json.loads(await response.content.readline())["result"]["trials"]
        assert (one["trialId"], one["batchesProcessed"], one["metric"]) == (trial.id, batches, 1.0 + batches / 20)
        assert one["hparams"] == dict(trial.hparams)
        response.close()


async def test_a_sample_has_the_series_of_the_best_trials(world: World) -> None:
    trial = await _trial(world)
    await world.context.store.append_metrics(_reports(trial.id, 10_000))
    base = f"/api/v1/experiments/{trial.experiment_id}/metrics-stream/trials-sample?metricName=loss&group=training"
    response = await world.send("GET", f"{base}&maxDatapoints=50")
    found = json.loads(await response.content.readline())["result"]
    assert (found["promotedTrials"], found["demotedTrials"]) == ([trial.id], [])
    steps = [point["batches"] for point in found["trials"][0]["data"]]
    assert {3_333, 7_777} <= set(steps) and len(steps) <= 50
    response.close()


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("batches?group=training", "metricName"),
        ("batches?metricName=loss", "group"),
        (f"batches?metricName=loss&group=training&periodSeconds={MAX_STREAM_PERIOD_S + 1}", "periodSeconds"),
        ("trials-snapshot?metricName=loss&group=training&batchesMargin=-1", "batchesMargin"),
        ("trials-snapshot?metricName=loss&group=training&batchesProcessed=-1", "batchesProcessed"),
        (f"trials-sample?metricName=loss&group=training&maxTrials={MAX_SAMPLED_TRIALS + 1}", "maxTrials"),
    ],
)
async def test_streams_refuse_by_name_what_they_cannot_tell(world: World, path: str, named: str) -> None:
    trial = await _trial(world)
    whole = f"/api/v1/experiments/{trial.experiment_id}/metrics-stream/{path}"
    assert named in await world.error("GET", whole, status=400)


# ---------------------------------------------------------------------------------------------------------- timeline


async def test_pages_of_the_timeline_are_cut_out_of_the_whole(world: World) -> None:
    agent = await world.agent()
    trial, allocation, task = await world.started(agent)
    await world.context.store.append_metrics(_reports(trial.id, 12))
    await world.context.store.append_metrics(_reports(trial.id, 12, "validation")[3::4])
    for number, steps in enumerate((4, 8, 8), 1):
        body = {
            "allocationId": allocation.id,
            "uuid": f"00000000-0000-0000-0000-00000000000{number}",
            "taskId": trial.task_id,
            "reportTime": "2024-03-01T12:00:00Z",
            "state": "STATE_COMPLETED",
            "resources": {"state": "1"},
            "metadata": {"steps_completed": steps},
        }
        await world.post("/api/v1/checkpoints", body, task=task)
    for order in ("ORDER_BY_ASC", "ORDER_BY_DESC"):
        base = f"/api/v1/trials/{trial.id}/workloads?orderBy={order}"
        everything = await world.get(base)
        assert everything["pagination"]["total"] == 12 + 3 + 3 == len(everything["workloads"])
        for offset in range(18):
            page = await world.get(f"{base}&offset={offset}&limit=4")
            assert page["workloads"] == everything["workloads"][offset : offset + 4]
        by_metric = await world.get(f"{base}&sortKey=loss&limit=1")
        (best,) = by_metric["workloads"]
        assert (best["training"] or best["validation"])["totalBatches"] == (1 if order == "ORDER_BY_ASC" else 12)


async def test_chunks_are_as_large_as_the_series_needs() -> None:
    assert metric_chunks.capacity(0) * 4 <= series_module.READ_WHOLE


async def test_the_history_of_an_experiment_has_what_was_better_than_all_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = await _trial(world)
    path = f"/api/v1/experiments/{trial.experiment_id}/validation-history"
    assert await world.get(path) == {"validationHistory": []}
    losses: list[Any] = ["NaN", 3.0, 4.0, None, 2.0, 2.0, "text", 1.5]
    reports = [
        a_report(step, {"loss": loss}, trial_id=trial.id, group="validation", reported_at=moment(step))
        for step, loss in enumerate(losses, 1)
    ]
    await world.context.store.append_metrics(reports)
    found = (await world.get(path))["validationHistory"]
    assert [(each["trialId"], each["searcherMetric"]) for each in found] == [(trial.id, v) for v in (3.0, 2.0, 1.5)]
    assert [datetime.fromisoformat(each["endTime"]) for each in found] == [moment(step) for step in (2, 5, 8)]
    monkeypatch.setattr(validation_history, "READ_AT_ONCE", 3)
    assert (await world.get(path))["validationHistory"] == found, "a long one is read by page"
    await world.error("GET", "/api/v1/experiments/99/validation-history", status=404)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.sampled_from([0.0, 1.0, 2.0])), max_size=12),
    st.integers(0, 12),
    st.booleans(),
)
def test_improvements_of_parts_are_enough_for_the_whole(
    numbers: list[tuple[int, int, float]], cut: int, smaller: bool
) -> None:
    results = [(moment(at), trial, value) for at, trial, value in numbers]
    parts = improvements(results[:cut], smaller=smaller) + improvements(results[cut:], smaller=smaller)
    found = improvements(results, smaller=smaller)
    assert improvements(parts, smaller=smaller) == found
    values = [value for *_, value in found]
    assert values == sorted(set(values), reverse=smaller)
