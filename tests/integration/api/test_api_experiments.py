"""Experiments over the socket: created, refused, listed, controlled, changed."""

from __future__ import annotations

import base64
import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from support.api import World, a_config, a_file, an_api


async def test_an_experiment_is_created_with_its_code_and_given_back_whole(world: World) -> None:
    await world.agent()
    files = [a_file("src", b"", type=53, mode=0o40755), a_file("src/train.py", b"x = 1\n")]
    answer = await world.post(
        "/api/v1/experiments",
        {"config": "name: first\nentrypoint: run\nsearcher: {name: single, metric: loss}", "activate": True,
         "modelDefinition": files},
    )  # fmt: skip
    experiment = answer["experiment"]
    assert (experiment["id"], experiment["name"], experiment["username"]) == (1, "first", "ada")
    assert answer["config"]["resources"]["resource_pool"] == "default"
    assert answer["warnings"] == []
    packed = base64.b64decode((await world.get("/api/v1/experiments/1/model_def"))["b64Tgz"])
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as archive:
        assert archive.getnames() == ["src", "src/train.py"]
        member = archive.extractfile("src/train.py")
        assert member is not None and member.read() == b"x = 1\n"
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", 1)
    assert (await world.get(f"/api/v1/tasks/{trial.task_id}/context_directory"))["b64Tgz"] == base64.b64encode(
        packed
    ).decode()


async def test_the_returned_configuration_is_accepted_again(world: World) -> None:
    await world.agent()
    first = await world.create()
    again = await world.create(first["config"])
    assert again["config"] == first["config"]


async def test_a_validation_stores_nothing(world: World) -> None:
    await world.agent()
    answer = await world.post(
        "/api/v1/experiments",
        {"config": "entrypoint: run\nsearcher: {name: single, metric: loss}", "validateOnly": True,
         "modelDefinition": [a_file("a.py")]},
    )  # fmt: skip
    assert answer["experiment"]["id"] == 0
    assert (await world.get("/api/v1/experiments"))["pagination"]["total"] == 0
    assert world.context.store.tables.contexts == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": "name: [unclosed"}, "line"),
        ({"config": "nmae: x"}, "name"),
        ({"config": "searcher: {name: single, metric: loss}"}, "entrypoint"),
        ({"config": "entrypoint: x\nsearcher: {name: single, metric: loss}\nresources: {resource_pool: gone}"}, "gone"),
        ({"modelDefinition": [a_file("../a.py")]}, "modelDefinition[0].path"),
        ({"modelDefinition": [a_file("/etc/a.py")]}, "modelDefinition[0].path"),
        ({"modelDefinition": [a_file("a.py"), a_file("./a.py")]}, "modelDefinition[1].path"),
        ({"modelDefinition": [a_file("a"), a_file("a/b.py")]}, "'a'"),
        ({"modelDefinition": [a_file("a.py", type=50)]}, "modelDefinition[0].type"),
        ({"modelDefinition": [{**a_file("a.py"), "content": "%%%"}]}, "modelDefinition[0].content"),
        ({"template": "big"}, "template"),
        ({"projectId": 7}, "projectId"),
        ({"parentId": 7}, "experiment '7' not found"),
    ],
)
async def test_bad_input_is_refused_by_name_and_stores_nothing(
    world: World, change: dict[str, Any], named: str
) -> None:
    await world.agent()
    body = {"config": "entrypoint: run\nsearcher: {name: single, metric: loss}", **change}
    text = await world.error("POST", "/api/v1/experiments", body, status=404 if "parentId" in change else 400)
    assert named in text
    assert (await world.get("/api/v1/experiments"))["pagination"]["total"] == 0
    assert world.context.store.tables.contexts == {}  # type: ignore[attr-defined]


async def test_a_fork_runs_the_code_of_its_parent(world: World) -> None:
    await world.agent()
    parent = await world.create(modelDefinition=[a_file("a.py")])
    fork = await world.create(parentId=parent["id"])
    assert fork["forkedFrom"] == parent["id"]
    code = [await world.get(f"/api/v1/experiments/{e['id']}/model_def") for e in (parent, fork)]
    assert code[0] == code[1] != {"b64Tgz": ""}


async def test_more_than_the_pool_can_have_is_refused_or_warned_of(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent(slots=2)
        wanted = a_config(resources={"slots_per_trial": 3})
        text = await world.error("POST", "/api/v1/experiments", {"config": str(wanted)}, status=400)
        assert "3 slots" in text and "'default'" in text and "2" in text
    async with an_api(tmp_path, config={"launch_error": False}) as world:
        await world.agent(slots=2)
        answer = await world.post("/api/v1/experiments", {"config": str(wanted)})
        assert answer["warnings"] == ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"]


async def test_the_priority_of_the_pool_is_the_default(tmp_path: Path) -> None:
    policy = PoolPolicy(name=PoolName("default"), default_priority=17)
    scheduler = {"type": "priority", "default_priority": 17}
    config = {"resource_manager": {"scheduler": scheduler}}
    async with an_api(tmp_path, pools={policy.name: policy}, config=config) as world:
        await world.agent()
        experiment = await world.create()
        (job,) = (await world.get("/api/v1/job-queues-v2"))["jobs"]
        assert job["full"]["priority"] == experiment["config"]["resources"]["priority"] == 17


async def test_states_follow_the_allocations(world: World) -> None:
    agent = await world.agent()
    experiment = await world.create()
    path = f"/api/v1/experiments/{experiment['id']}"
    assert (await world.get(path))["experiment"]["state"] == "STATE_QUEUED"
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    await world.next_run(agent, trial)
    assert (await world.get(path))["experiment"]["state"] == "STATE_RUNNING"
    assert (await world.get(f"{path}/trials"))["trials"][0]["state"] == "STATE_RUNNING"
    await agent.run_all()
    shown = await world.get(path)
    assert shown["experiment"]["state"] == "STATE_COMPLETED"
    assert shown["experiment"]["endTime"] is not None
    assert shown["jobSummary"] is None


async def test_control_and_its_refusals(world: World) -> None:
    agent = await world.agent()
    id_ = (await world.create())["id"]
    path = f"/api/v1/experiments/{id_}"
    assert await world.post(f"{path}/pause") == {}
    assert (await world.get(path))["experiment"]["state"] == "STATE_PAUSED"
    assert await world.post(f"{path}/activate/") == {}
    text = await world.error("POST", f"{path}/archive", status=400)
    assert "only an ended experiment" in text
    assert await world.post(f"{path}/kill") == {}
    assert await world.post(f"{path}/kill") == {}
    await agent.run_all(137)
    await world.post(f"{path}/archive")
    assert (await world.get("/api/v1/experiments?archived=false"))["experiments"] == []
    await world.post(f"{path}/unarchive")
    await world.error("POST", f"{path}/activate", status=400)
    await world.error("POST", "/api/v1/experiments/99/pause", status=404)
    await world.error("POST", "/api/v1/experiments/none/pause", status=400)
    await world.error("POST", f"/api/v1/experiments/{10**30}/pause", status=400)


async def test_only_the_owner_or_an_administrator_deletes(world: World) -> None:
    agent = await world.agent()
    id_ = (await world.create())["id"]
    path = f"/api/v1/experiments/{id_}"
    await world.post(f"{path}/kill")
    await agent.run_all(137)
    bob = await world.login("bob")
    assert "bob" in await world.error("DELETE", path, token=bob, status=403)
    assert await world.call("DELETE", path) == {}
    await world.error("GET", path, status=404)


async def test_pages_sorts_and_filters(world: World) -> None:
    await world.agent()
    for name in ("b", "a", "c"):
        await world.create(a_config(name=name, labels=[name]))
    page = await world.get("/api/v1/experiments?limit=2&sortBy=SORT_BY_NAME&orderBy=ORDER_BY_DESC")
    assert [e["name"] for e in page["experiments"]] == ["c", "b"]
    assert page["pagination"] == {"offset": 0, "limit": 2, "startIndex": 0, "endIndex": 2, "total": 3}
    page = await world.get("/api/v1/experiments?limit=2&offset=2")
    assert (len(page["experiments"]), page["pagination"]["endIndex"]) == (1, 3)
    page = await world.get("/api/v1/experiments?limit=-2")
    assert (page["experiments"], page["pagination"]["total"]) == ([], 3)
    names = {"labels=c": ["c"], "name=B": ["b"], "users=bob": [], "users=ada&limit=-1": ["b", "a", "c"],
             "experimentIdFilter.gte=2": ["a", "c"], "experimentIdFilter.incl=1&experimentIdFilter.incl=3": ["b", "c"],
             "experimentIdFilter.notIn=2": ["b", "c"], "experimentIdFilter.gt=9": [], "users=nobody": []}  # fmt: skip
    for query, expected in names.items():
        found = (await world.get(f"/api/v1/experiments?{query}"))["experiments"]
        assert [e["name"] for e in found] == expected, query
    await world.error("GET", "/api/v1/experiments?sortBy=SORT_BY_COLOUR", status=400)
    await world.error("GET", f"/api/v1/experiments?offset={10**30}", status=400)


async def test_names_labels_and_priorities_change(world: World) -> None:
    await world.agent()
    id_ = (await world.create())["id"]
    path = f"/api/v1/experiments/{id_}"
    patched = await world.call(
        "PATCH", path, {"id": id_, "name": "new", "description": None, "notes": "n", "labels": ["x"],
                        "resources": {"priority": 3}},
    )  # fmt: skip
    experiment = patched["experiment"]
    assert (experiment["name"], experiment["notes"], experiment["labels"]) == ("new", "n", ["x"])
    assert experiment["config"]["resources"]["priority"] == 3
    assert (await world.call("PUT", f"{path}/labels/y"))["labels"] == ["x", "y"]
    assert (await world.call("DELETE", f"{path}/labels/x"))["labels"] == ["y"]
    assert "blank" in await world.error("PATCH", path, {"name": "  "}, status=400)
    await world.error("PATCH", path, {"resources": {"priority": 100}}, status=400)


async def test_secrets_are_masked(world: World) -> None:
    await world.agent()
    experiment = await world.create(a_config(data={"secrets": {"key": "hunter2"}}))
    assert "hunter2" not in str(experiment["config"])


async def test_a_search_is_previewed(world: World) -> None:
    config = a_config(searcher={"name": "random", "metric": "loss", "max_trials": 5, "max_length": {"batches": 10}})
    summary = (await world.post("/api/v1/preview-hp-search", {"config": config, "seed": 1}))["summary"]
    assert summary["trials"] == [{"count": 5, "unit": {"name": "batches", "value": 10, "maxLength": False}}]
    assert summary["config"]["name"] == "random"
    await world.error("POST", "/api/v1/preview-hp-search", {}, status=400)
