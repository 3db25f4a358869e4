"""Processor time of a request in the master's process, without sockets and database, compared with a bare aiohttp handler.

    python -m benchmarks requests

The real application with its middleware, limits and rules, one reporting allocation, and a store that discards rows of metrics. The
server's protocol gets the requests over transports that only count bytes. The figure is the processor time of the thread, the
median of many short rounds in turn.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from benchmarks.report import Row, Spread, ratio
from resolute.clock import SystemClock
from resolute.ids import SystemIds
from resolute_master.api.app import ALL_ROUTES
from resolute_master.api.auth.authenticate import TASK_TOKEN_HEADER
from resolute_master.api.http.application import build_application
from resolute_master.api.http.connections import Connections, protocol_of, runner_of
from resolute_master.api.http.requests import Surroundings
from resolute_master.api.http.serving import Serving
from resolute_master.domain.metrics import MetricReport
from resolute_master.store.base import MetricOutcome
from resolute_master.store.memory import MemoryStore
from support.observed import an_observed_api

ROUNDS = 30
REQUESTS = 320
CONNECTIONS = 32
METRICS = {"loss": 0.693147180559, "accuracy": 0.5, "learning_rate": 0.001, "gradient_norm": 1.25}

Protocols = Callable[[], asyncio.Protocol]


class KeepsNoRows(MemoryStore):
    """A store that accepts every report as new, at once."""

    async def append_metrics(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        await asyncio.sleep(0)
        return (MetricOutcome.STORED,) * len(reports)


class Counting(asyncio.Transport):
    """The client end: sends the next request after each response."""

    def __init__(self, requests: deque[bytes], protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._requests = requests
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def next(self) -> None:
        if self._requests:
            self._protocol.data_received(self._requests.popleft())
        else:
            self.done.set_result(None)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not bytes(data).startswith(b"HTTP/1.1 200 "):
            self.done.set_exception(RuntimeError(bytes(data)[:500].decode()))
        self._loop.call_soon(self.next)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close

    def get_write_buffer_size(self) -> int:
        return 0


async def micros(protocols: Protocols, requests: list[bytes]) -> float:
    """Processor time of this thread per request, in microseconds."""
    waiting, transports = deque(requests), list[Counting]()
    for _ in range(CONNECTIONS):
        protocol = protocols()
        transport = Counting(waiting, protocol)
        protocol.connection_made(transport)
        transports.append(transport)
    await asyncio.sleep(0)
    begun = time.thread_time()
    for transport in transports:
        transport.next()
    await asyncio.gather(*(transport.done for transport in transports))
    taken = time.thread_time() - begun
    for transport in transports:
        transport._protocol.connection_lost(None)
    return 1e6 * taken / len(requests)


def request(method: str, path: str, header: str, body: Any = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    return f"{method} {path} HTTP/1.1\r\nHost: m\r\n{header}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def bare(asked: web.Request) -> web.Response:
    values = json.loads(await asked.read())["metrics"]
    json.dumps(values["metrics"]["avgMetrics"])
    await asyncio.sleep(0)
    return web.Response(body=b"{}", content_type="application/json")


async def measured() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"bare": [], "me": [], "report": []}
    steps = itertools.count(1)
    with tempfile.TemporaryDirectory() as directory:
        async with an_observed_api(Path(directory), store=KeepsNoRows()) as (world, observation):
            trial, _, token = await world.started(await world.agent())
            surroundings = Surroundings(clock=SystemClock(), ids=SystemIds(), observer=observation.requests)
            app = build_application(Serving(world.context), surroundings, ALL_ROUTES)
            ours = runner_of(app, stop_grace_s=0.1)
            path = f"/api/v1/trials/{trial.id}/metrics"
            alone = web.Application()
            alone.router.add_post("/api/v1/trials/{trialId}/metrics", bare)
            theirs = web.AppRunner(alone, access_log=None)
            for runner in (ours, theirs):
                await runner.setup()
            assert theirs.server is not None
            master = Connections(protocol_of(ours), limit=CONNECTIONS + 1)
            me = [request("GET", "/api/v1/me", f"Authorization: Bearer {world.token}")] * REQUESTS

            def reports() -> list[bytes]:
                header = f"{TASK_TOKEN_HEADER}: Bearer {token}"
                return [request("POST", path, header, _report(trial.id, next(steps))) for _ in range(REQUESTS)]

            for number in range(ROUNDS + 1):
                taken = {
                    "bare": await micros(theirs.server, reports()),
                    "me": await micros(master, me),
                    "report": await micros(master, reports()),
                }
                for name, value in taken.items():
                    found[name] += [value] if number else []
            for runner in (ours, theirs):
                await runner.cleanup()
    return found


def _report(trial: int, step: int) -> Any:
    values = {"trialId": trial, "trialRunId": 1, "stepsCompleted": step, "metrics": {"avgMetrics": METRICS}}
    return {"group": "training", "metrics": values}


def main() -> list[Row]:
    found = asyncio.run(measured())
    names = {"me": "GET /api/v1/me", "report": "one report, with its share of a cycle"}
    return [
        Row(
            name=name,
            subject=Spread.of(found[key], "µs"),
            bound_name="a bare handler that parses the report",
            bound=Spread.of(found["bare"], "µs"),
            result=ratio(found[key], found["bare"]),
            notes=f"the least of {ROUNDS} rounds: {min(found[key]):.0f} and {min(found['bare']):.0f} µs",
        )
        for key, name in names.items()
    ]
