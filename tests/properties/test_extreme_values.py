"""Extreme values at every place of every command and of every message of the agent link, on every store.

The engine answers or refuses each, never ends and meets no fault of its rules; what it took is loaded again, replayed and shown.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientTimeout

from resolute.clock import SystemClock
from resolute.config import parse_experiment
from resolute.errors import ResoluteError
from resolute.wire.agent_link import AGENT_MESSAGES, AgentMessage, Hello, MasterMessage
from resolute.wire.states import ContainerState
from resolute_master.agents.session import Closed
from resolute_master.agents.websocket import decode
from resolute_master.api.app import ALL_ROUTES
from resolute_master.domain import administration as a
from resolute_master.domain import commands as c
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, JobId, PoolName, SessionId, TaskId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.template import Template
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Workspace
from resolute_master.engine.cycle import RuleFault
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.engine.reporting import Reporting
from resolute_master.store.base import LogQuery
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.api import an_api
from support.config import an_experiment as a_written_experiment
from support.engines import AgentByHand, a_user, an_engine, an_experiment, launched, running
from support.extreme_values import Plausible, variants
from support.hubs import a_hello, a_hub
from support.stores import STORES, StoreHome, store_home

ELASTIC, STATIC, BOUND = PoolName("elastic"), PoolName("default"), PoolName("bound")
_OFFER = Offer(offer_id="local", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=2, price_per_hour=1.0)


def elastic_for(kind: type) -> PoolName:
    """A pool for each kind of command: what one says of a launch holds back the next launches of that pool."""
    return PoolName(f"{ELASTIC}-{kind.__name__}") if kind in c.COMMANDS.values() else ELASTIC


def an_elastic_pool(name: PoolName) -> PoolPolicy:
    return PoolPolicy(name=name, scaling=PoolScaling(pool=name, offers=(_OFFER,), max_instances=2))


POOLS = {
    STATIC: PoolPolicy(name=STATIC),
    BOUND: PoolPolicy(name=BOUND),
    **{name: an_elastic_pool(name) for name in (ELASTIC, *map(elastic_for, c.COMMANDS.values()))},
}
CONFIG = parse_experiment(a_written_experiment()).to_json()
_BY_LENGTH = {"name": "async_halving", "metric": "loss", "num_rungs": 2, "max_trials": 2, "max_length": {"batches": 8}}
BY_LENGTH = parse_experiment(a_written_experiment(searcher=_BY_LENGTH)).to_json()

TOGETHER = 25
"""Commands of one batch: where one of them is refused by the store, the others are not."""


@pytest.fixture(params=STORES)
async def home(request: pytest.FixtureRequest) -> StoreHome:
    return await store_home(request)


class Scene:
    """One of everything that a command may be about, so that it is refused for its extreme value alone."""

    _numbers = itertools.count(1)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, Any] = {}

    async def set(self, kind: type) -> Scene:
        """For commands of that kind."""
        name = f"n{next(self._numbers)}"
        self._known = {"sequence": 100, "run_id": 1, "index": 0, "days": 7, "config": CONFIG, "resource_pool": STATIC}
        self._known["pool"] = BOUND if kind is a.BindPool else STATIC
        await self._people(name)
        await self._work(name, elastic_for(kind))
        await self._for(kind, name)
        return self

    async def _people(self, name: str) -> None:
        engine, owner = self._engine, await a_user(self._engine, name)
        until = SystemClock().now() + timedelta(days=1)
        await engine.submit(c.StartSession(session=SessionId(name), user=owner, expires_at=until))
        await engine.submit(a.PutTemplate(name=name, config={}))
        workspace = await engine.submit(a.CreateWorkspace(name=name, owner=owner))
        project = await engine.submit(a.CreateProject(workspace=workspace, name=name, owner=owner))
        self._known |= {"user": owner, "owner": owner, "session": SessionId(name)}
        self._known |= {"project": project, "project_id": project}
        self._known |= {"workspace": workspace, "workspace_id": workspace, "workspaces": (workspace,)}

    async def _work(self, name: str, elastic: PoolName) -> None:
        """A trial that runs on an agent and has saved, and a machine that was bought for another."""
        engine, owner = self._engine, self._known["owner"]
        agent = AgentByHand(engine, f"agent-{name}", slots=1)
        await agent.register()
        experiment = await an_experiment(engine, owner, CONFIG)
        other = await an_experiment(engine, owner, CONFIG)
        await an_experiment(engine, owner, CONFIG, pool=elastic)
        await engine.submit(c.Reconsider())
        (container,) = agent.containers()
        await agent.report(container, ContainerState.RUNNING)
        trial = engine.state.find(Trial, "trials_of_experiment", experiment)[0]
        (at,) = engine.state.find(Allocation, "allocations_of_task", trial.task_id)
        saved = c.ReportCheckpoint(uuid=name, allocation=at.id, steps_completed=1, resources={"a": 1}, metadata={})
        await engine.submit(saved)
        machine = next(each for each in engine.state.all(Instance) if each.pool == elastic and not each.over)
        if machine.provider_id is None:
            await launched(engine, machine, SystemClock().now())
        self._known |= {"agent": agent.id, "agent_id": agent.id, "incarnation": agent.incarnation}
        self._known |= {"experiment": experiment, "removed_from": experiment, "parent": other, "job": trial.job_id}
        self._known |= {"trial": trial.id, "task_id": trial.task_id, "allocation": at.id, "allocation_id": at.id}
        self._known |= {"container": container.id, "container_id": container.id, "instance": machine.id}
        self._known |= {"uuid": name, "uuids": (name,)}

    async def _for(self, kind: type, name: str) -> None:
        """What commands of one kind need besides."""
        engine = self._engine
        if kind in (c.CreateUnmanagedTrial, c.StartUnmanagedRun, c.ReportUnmanagedTrial):
            plain: Any = next(value for where, value in variants(c.CreateExperiment, self.plausible) if not where)
            unmanaged = await engine.submit(replace(plain, unmanaged=True))
            own = await engine.submit(c.CreateUnmanagedTrial(experiment=unmanaged, hparams={}))
            self._known |= {"experiment": unmanaged, "trial": own, "hparams": {}}
        if kind is c.ArchiveExperiment:
            await engine.submit(c.KillExperiment(experiment=self._known["parent"]))
            self._known["experiment"] = self._known["parent"]
        if kind in (a.RenameTemplate, a.DeleteTemplate):
            self._known["name"] = name
        if kind is c.CompleteOperation:
            search = await an_experiment(engine, self._known["owner"], BY_LENGTH)
            trial = engine.state.find(Trial, "trials_of_experiment", search)[0]
            row = engine.state.get(SearchTrial, trial.task_id)
            assert row is not None and row.length is not None
            self._known |= {"experiment": search, "trial": trial.id, "length": row.length}
        if kind is a.SetBudget:
            self._known |= {"owner": "pool", "name": elastic_for(kind)}

    def plausible(self, name: str, hint: Any) -> Any:
        if name in ("name", "new_name", "username") and name not in self._known and hint is str:
            return f"n{next(self._numbers)}"
        if (
            (name, hint) == ("user", str)
            or (name == "job" and hint is not JobId)
            or (name == "username" and hint is not str)
        ):
            return NotImplemented
        if name == "state" and hint is ContainerState:
            return ContainerState.RUNNING
        return self._known.get(name, NotImplemented)


def all_variants(kinds: Mapping[str, type], plausible: Plausible) -> Iterator[tuple[str, Any]]:
    for kind, cls in kinds.items():
        for where, value in variants(cls, plausible):
            yield f"{kind}.{where}", value


async def assert_readable(home: StoreHome, directory: Path) -> None:
    """Another master starts on what is stored, its journal comes to the same state, and every page of its API can be shown."""
    store = await home.open()
    try:
        first, *_ = await store.snapshots()
        outcome = await replay(first, store.journal(first.sequence), POOLS)
        assert outcome.divergence is None, outcome.divergence
        async with an_api(directory, store=store, pools=POOLS) as world:
            world.token = await world.login("root")
            unseen = []
            for path in shown(world.engine):
                async with await world.send("GET", path, timeout=ClientTimeout(total=120)) as response:
                    await response.read()  # whole: an answer may also break in its middle
                    if response.status >= 500 and response.status != 501:
                        unseen.append(f"{path}: {response.status}")
            assert not unseen, "\n".join(unseen)
    finally:
        await store.close()


SOME = 12
"""Number of entities of each kind that are shown one by one."""

HELD = ("/signals/preemption", "/rendezvous")
"""Routes that wait for something."""


def shown(engine: Engine) -> Iterator[str]:
    """The path of every route that shows something, for some of the things that there are."""
    kinds: Mapping[str, tuple[type[Any], str]] = {
        "experimentId": (Experiment, "id"),
        "trialId": (Trial, "id"),
        "runId": (Trial, "id"),
        "taskId": (Trial, "task_id"),
        "allocationId": (Allocation, "id"),
        "agentId": (Agent, "id"),
        "jobId": (Job, "id"),
        "checkpointUuid": (Checkpoint, "uuid"),
        "userId": (User, "id"),
        "workspaceId": (Workspace, "id"),
        "templateName": (Template, "id"),
    }
    for route in ALL_ROUTES:
        if route.method != "GET" or route.path.endswith(HELD):
            continue
        parts = re.findall(r"{(\w+)}", route.path)
        if not parts:
            yield f"{route.path}?limit=1000"
        elif len(parts) == 1 and parts[0] in kinds:
            type_, name = kinds[parts[0]]
            ids = [str(getattr(entity, name)) for entity in engine.state.all(type_)]
            for id_ in ids[:: max(1, len(ids) // SOME)]:
                yield route.path.replace(f"{{{parts[0]}}}", quote(id_, safe="", errors="replace"))


def test_it_is_about_every_command_and_message() -> None:
    """What has a type that no value is known for fails here."""
    kinds: dict[str, type] = {**c.COMMANDS, **AGENT_MESSAGES}
    covered = {where.partition(".")[0] for where, _ in all_variants(kinds, lambda name, hint: NotImplemented)}
    assert covered == kinds.keys()


NEVER_TAKEN = {"DeleteExperiment", "JoinRendezvous", "SetExperimentLogRetention", "SetTrialLogRetention"}
"""They need work that has ended, or that waits for others."""


async def test_commands(home: StoreHome, tmp_path: Path) -> None:
    store = await home.open()
    faults: list[str] = []
    taken: set[str] = set()
    async with running(an_engine(store, pools=POOLS)) as engine:
        for kind, cls in c.COMMANDS.items():
            scene = await Scene(engine).set(cls)
            asked = list(variants(cls, scene.plausible))
            for start in range(0, len(asked), TOGETHER):
                some = asked[start : start + TOGETHER]
                replies = await asyncio.gather(*(engine.submit(each) for _, each in some), return_exceptions=True)
                for (where, _), reply in zip(some, replies, strict=True):
                    refused = isinstance(reply, ResoluteError) and not isinstance(reply, RuleFault)
                    if isinstance(reply, BaseException) and not refused:
                        faults.append(f"{kind}.{where}: {reply!r:.300}")
                    elif not isinstance(reply, BaseException):
                        taken.add(kind)
                assert engine.stopped is None, f"{kind}: {engine.stopped}"
    await store.close()
    assert not faults, "\n".join(sorted(set(faults)))
    assert c.COMMANDS.keys() - taken <= NEVER_TAKEN, "these are refused for something else than their extreme values"
    await assert_readable(home, tmp_path)


async def test_messages_of_agents(home: StoreHome, tmp_path: Path) -> None:
    """As frames on the link: the master takes what they say, or ends the link."""
    store, clock = await home.open(), SystemClock()
    async with running(an_engine(store, pools=POOLS)) as engine, a_hub(engine, store, clock) as hub:
        scene = await Scene(engine).set(Hello)
        for where, message in all_variants(AGENT_MESSAGES, scene.plausible):
            try:
                received = decode(frame(message))
            except Closed:
                continue
            hello = received if isinstance(received, Hello) else a_hello(scene.plausible("agent", str))
            await asyncio.wait_for(hub.serve(Script(hello, received)), 60)
            assert engine.stopped is None, f"{where}: {engine.stopped}"
    await store.close()
    await assert_readable(home, tmp_path)


class Script:
    """A transport on which an agent says these messages, and hangs up when each was taken."""

    def __init__(self, *messages: AgentMessage) -> None:
        self._messages = list(messages)

    async def receive(self) -> AgentMessage:
        if not self._messages:
            await asyncio.sleep(0.01)  # log lines are stored beside the link
            raise Closed("ended")
        return self._messages.pop(0)

    async def send(self, message: MasterMessage) -> None:
        pass

    async def close(self) -> None:
        self._messages.clear()


def frame(message: AgentMessage) -> str:
    """With numbers, times and halves of characters as another program might write them."""
    body = dataclasses.asdict(message)
    return json.dumps({"type": type(message).__name__, "body": body}, default=lambda value: value.isoformat())


async def test_streams(home: StoreHome) -> None:
    """What reports, log lines and step marks hold: a bad one is refused, and those beside it are stored."""
    store = await home.open()
    async with running(an_engine(store, pools=POOLS)) as engine:
        scene = await Scene(engine).set(MetricReport)
        reporting = Reporting(store, engine)
        trial = scene.plausible("trial", int)
        known = {"trial_id": trial, "run_id": 1, "group": "training", "archived": False, "id": 0, "task_id": "extremes"}

        def plausible(name: str, hint: Any) -> Any:
            return known.get(name, NotImplemented)

        reports = [each for _, each in variants(MetricReport, plausible)]
        records = [replace(each, key=f"k{n}") for n, (_, each) in enumerate(variants(LogRecord, plausible))]
        marks = [each for _, each in variants(StepMark, plausible)]
        good = replace(records[0], key="good", task_id=TaskId("good"))
        asked = [
            *(reporting.metrics(each) for each in reports),
            *(reporting.logs([each]) for each in records),
            reporting.logs([*records, good]),
            *(reporting.step_marks([each]) for each in marks),
        ]
        replies = await asyncio.gather(*asked, return_exceptions=True)
        unknown = [each for each in replies if isinstance(each, BaseException) and not isinstance(each, ResoluteError)]
        assert not unknown and engine.stopped is None
        await reporting.close()
        assert reporting.unstored() == {"metrics": 0, "logs": 0, "step_marks": 0}
        assert [line.key for line in await store.logs(LogQuery(task_ids=(TaskId("good"),)))] == ["good"]
        assert len(await store.metrics(trial, "training", include_archived=True)) > 5
        assert len(await store.logs(LogQuery(task_ids=(TaskId("extremes"),)))) > len(records) / 2
        await store.step_marks([AllocationId("a")])
    await store.close()
