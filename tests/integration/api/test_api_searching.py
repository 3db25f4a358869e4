"""Searches of experiments and runs over REST: filters, sorts, pages, columns, labels."""

from __future__ import annotations

import json
from typing import Any

from support.api import World, a_config
from support.rest_schema import contract
from support.stores import a_report


def _filter(*fields: tuple[str, str, Any]) -> str:
    children = [{"kind": "field", "columnName": n, "operator": o, "value": v} for n, o, v in fields]
    return json.dumps({"filterGroup": {"kind": "group", "conjunction": "and", "children": children}})


async def _searched(world: World) -> list[int]:
    """Three experiments of different learning rates; the ids of their trials."""
    trials: list[int] = []
    await world.agent()
    for rate, loss in ((0.1, 3.0), (0.01, 1.0), (0.001, 2.0)):
        made = await world.create(a_config(hyperparameters={"lr": rate}, labels=[f"rate {rate}", "all"]))
        (trial,) = (await world.get(f"/api/v1/experiments/{made['id']}/trials"))["trials"]
        await world.context.store.append_metrics(
            [a_report(1, {"loss": loss}, trial_id=trial["id"], group="validation")]
        )
        trials.append(trial["id"])
    return trials


async def test_runs_are_searched_by_hyperparameter_and_sorted_by_metric(world: World) -> None:
    trials = await _searched(world)
    body = {"filter": _filter(("hp.lr", "<", 0.05)), "sort": "validation.loss.last=desc", "limit": 1}
    answer = await world.post("/api/v1/runs", body)
    assert (answer["pagination"]["total"], answer["pagination"]["endIndex"]) == (2, 1)
    (run,) = answer["runs"]
    assert (run["id"], run["hyperparameters"]) == (trials[2], {"lr": 0.001})
    assert run["summaryMetrics"]["validation_metrics"]["loss"]["last"] == 2.0
    assert run["experiment"]["searcherMetric"] == "loss"
    required = {name for name, field in contract().types["v1FlatRun"].items() if field["required"]}
    assert required <= set(run)
    required = {name for name, field in contract().types["v1FlatRunExperiment"].items() if field["required"]}
    assert required <= set(run["experiment"])
    rest = await world.post("/api/v1/runs", {**body, "offset": 1})
    assert [run["id"] for run in rest["runs"]] == [trials[1]]


async def test_experiments_are_searched_with_their_best_trial(world: World) -> None:
    agent = await world.agent()
    trial, _, task = await world.started(agent)
    report = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 0.5}}}
    await world.post(f"/api/v1/trials/{trial.id}/metrics", {"group": "validation", "metrics": report}, task=task)
    await world.create()
    by_metric = {"filter": _filter(("validation.loss.min", "<", 1)), "sort": "id=desc"}
    (found,) = (await world.post("/api/v1/experiments-search", by_metric))["experiments"]
    assert found["experiment"]["id"] == trial.experiment_id
    assert found["bestTrial"]["id"] == trial.id
    assert (
        found["bestTrial"]["summaryMetrics"]
        == (await world.get(f"/api/v1/trials/{trial.id}"))["trial"]["summaryMetrics"]
    )
    everything = await world.post("/api/v1/experiments-search", {"sort": "searcherMetricsVal=asc"})
    assert [each["bestTrial"] is None for each in everything["experiments"]] == [False, True]
    ranges = (await world.get("/api/v1/projects/1/experiments/metric-ranges"))["ranges"]
    columns = ("searcherMetricsVal", *(f"validation.loss.{each}" for each in ("last", "max", "mean", "min")))
    assert ranges == [{"metricsName": name, "min": 0.5, "max": 0.5} for name in columns]


async def test_a_bad_filter_is_refused_with_its_place(world: World) -> None:
    for path in ("/api/v1/runs", "/api/v1/experiments-search"):
        text = await world.error("POST", path, {"filter": _filter(("id", "=", 1), ("id", "like", 1))}, status=400)
        assert "filter.filterGroup.children[1].operator: 'like'" in text
        assert "sort[0]" in await world.error("POST", path, {"sort": "nope=asc"}, status=400)
        assert "limit" in await world.error("POST", path, {"limit": -1}, status=400)
        assert "filter" in await world.error("POST", path, {"filter": " " * 100_001}, status=400)


async def test_a_project_names_its_columns(world: World) -> None:
    await _searched(world)
    columns = {one["column"]: one for one in (await world.get("/api/v1/projects/1/columns"))["columns"]}
    assert columns["hp.lr"]["location"] == "LOCATION_TYPE_HYPERPARAMETERS"
    assert columns["validation.loss.mean"]["type"] == "COLUMN_TYPE_NUMBER"
    runs = (await world.get("/api/v1/projects/1/columns?tableType=TABLE_TYPE_RUN"))["columns"]
    located = {one["column"]: one["location"] for one in runs}
    assert (located["hp.lr"], located["experimentName"]) == ("LOCATION_TYPE_RUN_HYPERPARAMETERS", "LOCATION_TYPE_RUN")
    for name in columns:  # each can be searched by
        await world.post("/api/v1/experiments-search", {"sort": f"{name}=asc", "projectId": 1})
    assert (await world.get("/api/v1/experiment/labels"))["labels"][0] == "all"
    assert (await world.get("/api/v1/experiment/labels?projectId=99"))["labels"] == []


async def test_the_texts_in_the_metadata_of_a_projects_runs(world: World) -> None:
    agent = await world.agent()
    trial, _, task = await world.started(agent)
    metadata = {"data": {"set": ["mnist", "digits", 1], "size": 3}, "who": "ada"}
    await world.post(f"/api/v1/runs/{trial.id}/metadata", {"runId": trial.id, "metadata": metadata}, task=task)
    path = "/api/v1/projects/{}/metadata/{}"
    for project, key, values in (
        (1, "data.set", ["digits", "mnist"]),
        (1, "who", ["ada"]),
        (1, "data.size", []),
        (1, "who.else", []),
        (1, "absent", []),
    ):
        assert await world.get(path.format(project, key)) == {"values": values}
    assert "quotation mark" in await world.error("GET", path.format(1, "a%22b"), status=400)
    await world.error("GET", path.format(99, "who"), status=404)


async def test_a_project_is_found_by_its_key(world: World) -> None:
    project = (await world.get("/api/v1/projects/1"))["project"]
    for key in ("UNCAT", "uncat"):
        assert await world.get(f"/api/v1/projects/key/{key}") == {"project": project}
    assert "key 'NONE' not found" in await world.error("GET", "/api/v1/projects/key/NONE", status=404)
