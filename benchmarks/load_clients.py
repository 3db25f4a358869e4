"""The clients of a master under load, in one process: agents with their tasks, and submitting users.

    python -m benchmarks.load_clients '<Clients as JSON>'

Each agent is the real one with its own WebSocket and the scripted runtime: its containers are coroutines that call the master as a
harness does (report metrics, hold a poll for preemption), print lines, and end. For each trial that ends another experiment is
submitted, so that the number of jobs is constant. Once per second a client reads one of the complete lists, and `status_file`
contains the counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from resolute.clock import SystemClock
from resolute.ids import SeededIds
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind
from resolute_agent.agent import Agent, AgentSetup
from resolute_agent.memory import HeldMemory
from resolute_agent.runtimes.scripted import ScriptedRuntime, ScriptedTask
from resolute_agent.websocket import WebSocketConnector
from resolute_master.garbage import collecting, survivors_frozen

RETRY_S = 1.0
LONGEST_RETRY_S = 16.0
"""Clients retry unanswered requests with exponential backoff."""

REQUEST_S = 30.0
SUBMITTERS = 16

BEHIND = 10
"""Niceness of the clients: the master has priority for a processor."""

LISTS = (
    "/api/v1/experiments",
    "/api/v1/job-queues-v2?resourcePool=default",
    "/api/v1/agents",
    "/api/v1/resource-pools",
    "/api/v1/tasks",
    "/api/v1/job-queues/stats",
    "/api/v1/decisions",
    "/metrics",
)
LIST_EVERY_S = 1.0
"""Interval between reads of the complete lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """`task_s` is the mean length of a task; lengths are uniform between 0.5 and 1.5 of it."""

    url: str
    token: str
    join_token: str
    status_file: str
    agents: int
    slots: int
    task_s: float
    report_s: float
    polls: bool
    seed: int
    experiment: dict[str, Any]
    """The body of a submission."""


class World:
    """The clients of one master, which may be down for a while."""

    def __init__(self, given: Clients, http: aiohttp.ClientSession) -> None:
        self.given = given
        self.counts: Counter[str] = Counter()
        self.agents: list[Agent] = []
        self.submissions: asyncio.Queue[None] = asyncio.Queue()
        self._http = http
        self._started = 0
        self._rng = random.Random(given.seed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.given.agents):
                self.agents.append(self._agent(number))
                group.create_task(self.agents[-1].run())
            for _ in range(SUBMITTERS):
                group.create_task(self._submit())
            group.create_task(self._look())
            group.create_task(self._tell())
            group.create_task(collecting())

    def _agent(self, number: int) -> Agent:
        given = self.given
        devices = tuple(
            Device(index=i, kind=SlotKind.CUDA, brand="simulated", uuid=f"gpu-{number}-{i}") for i in range(given.slots)
        )
        return Agent(
            AgentSetup(
                agent_id=f"agent-{number:05}",
                resource_pool="default",
                version="bench",
                devices=devices,
                join_token=given.join_token,
            ),
            connector=WebSocketConnector(given.url),
            runtime=ScriptedRuntime(program=self._program),
            memory=HeldMemory(),
            clock=SystemClock(),
            ids=SeededIds(given.seed * 1_000_003 + number),
            rng=random.Random(given.seed * 1_000_003 + number),
        )

    # -- one task ----------------------------------------------------------------------------------------------

    async def _program(self, task: ScriptedTask) -> int:
        environment = task.spec.environment
        trial, run = int(environment["DET_TRIAL_ID"]), int(environment["DET_TRIAL_RUN_ID"])
        headers = {"Grpc-Metadata-x-allocation-token": f"Bearer {environment['DET_SESSION_TOKEN']}"}
        lasts_s = self._length_s()
        self.counts["tasks"] += 1
        self._started += 1
        stopping = asyncio.ensure_future(self._told_to_stop(task.spec.allocation_id, headers))
        reporting = asyncio.ensure_future(self._reports(task, trial, run, headers))
        try:
            await asyncio.wait({stopping, reporting}, timeout=lasts_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.counts["cut"] += 1
            raise
        finally:
            stopping.cancel()
            reporting.cancel()
            await asyncio.gather(stopping, reporting, return_exceptions=True)
            self.counts["tasks"] -= 1
        self.counts["ended"] += 1
        self.submissions.put_nowait(None)
        return 0

    def _length_s(self) -> float:
        """The remaining time of a task. Tasks of the first wave have run already, so that ends are evenly distributed from the
        start."""
        whole = self.given.task_s * self._rng.uniform(0.5, 1.5)
        return whole * self._rng.random() if self._started < self.given.agents * self.given.slots else whole

    async def _reports(self, task: ScriptedTask, trial: int, run: int, headers: dict[str, str]) -> None:
        step = 0
        await asyncio.sleep(self.given.report_s * self._rng.random())
        while True:
            step += 100
            values = {"loss": 1.0 / step, "accuracy": 0.5, "learning_rate": 1e-3}
            report = {"trialId": trial, "trialRunId": run, "stepsCompleted": step, "metrics": {"avgMetrics": values}}
            body = {"group": "training", "metrics": report}
            task.write(f"step {step}: loss {1.0 / step:.4f}\n")
            await self._ask("POST", f"/api/v1/trials/{trial}/metrics", headers, body)
            self.counts["reports"] += 1
            await asyncio.sleep(self.given.report_s)

    async def _told_to_stop(self, allocation: str, headers: dict[str, str]) -> None:
        path = f"/api/v1/allocations/{allocation}/signals/preemption?timeoutSeconds=60"
        while self.given.polls:
            answer = await self._ask("GET", path, headers)
            if answer.get("preempt"):
                self.counts["preempted"] += 1
                return
        await asyncio.Event().wait()

    # -- users -------------------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        while True:
            await self.submissions.get()
            headers = {"Authorization": f"Bearer {self.given.token}"}
            await self._ask("POST", "/api/v1/experiments", headers, self.given.experiment)
            self.counts["submitted"] += 1

    async def _look(self) -> None:
        headers = {"Authorization": f"Bearer {self.given.token}"}
        for path in itertools.cycle(LISTS):
            await asyncio.sleep(LIST_EVERY_S)
            try:
                async with self._http.get(self.given.url + path, headers=headers) as response:
                    await response.read()
                    self.counts["looks" if response.status == 200 else f"refused GET {response.status}"] += 1
            except (aiohttp.ClientError, OSError, TimeoutError):
                self.counts["unanswered"] += 1

    # -- the network -------------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, path: str, headers: dict[str, str], body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Repeats a request until the master answers. A refused request is counted and not repeated."""
        pause_s = RETRY_S
        while True:
            try:
                request = self._http.request(method, self.given.url + path, headers=headers, json=body)
                async with request as response:
                    answer: dict[str, Any] = await response.json()
                    if response.status < 500 and response.status != 429:
                        if response.status >= 400:
                            self.counts[f"refused {method} {response.status}"] += 1
                            await asyncio.sleep(RETRY_S)
                        return answer
                    self.counts[f"answered {response.status}"] += 1
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                self.counts["unanswered"] += 1
            await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    async def _tell(self) -> None:
        path = Path(self.given.status_file)
        while True:
            connected = sum(agent.state.welcomed for agent in self.agents)
            path.with_suffix(".new").write_text(
                json.dumps({**self.counts, "connected": connected, "at": time.monotonic()})
            )
            path.with_suffix(".new").replace(path)
            await asyncio.sleep(1.0)


async def serve(given: Clients) -> None:
    connector = aiohttp.TCPConnector(limit=0, force_close=False)
    timeout = aiohttp.ClientTimeout(total=60.0 + REQUEST_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        await World(given, http).run()


def step_back() -> None:
    """Gives the master and the database priority: in reality a thousand agents run on their own machines."""
    policy = os.sched_getscheduler(0)
    priority = os.sched_getparam(0).sched_priority
    if policy in (os.SCHED_RR, os.SCHED_FIFO) and priority > 1:
        os.sched_setscheduler(0, policy, os.sched_param(priority - 1))
    else:
        os.nice(BEHIND)


def start_arguments(given: Clients) -> list[str]:
    """The command that starts these clients."""
    return [sys.executable, "-m", "benchmarks.load_clients", json.dumps(asdict(given))]


if __name__ == "__main__":
    step_back()
    # Otherwise all agents would pause and reconnect at the same moment, unlike real machines.
    with survivors_frozen():
        asyncio.run(serve(Clients(**json.loads(sys.argv[1]))))
