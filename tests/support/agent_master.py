"""A master with the agent link over a real socket that stores the agent's messages, for tests of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import WSMsgType, web

from resolute.wire.agent_link import (
    Acknowledged,
    AgentMessage,
    ContainerChanged,
    ContainerReport,
    ContainerSpec,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    KillContainer,
    LogBatch,
    LogLine,
    LogsStored,
    MasterMessage,
    Notice,
    StartContainer,
    TaskUser,
    Welcome,
)
from resolute.wire.states import ContainerState, TaskType
from resolute_agent.link import decode_agent_frame, encode_frame

TASK_USER = TaskUser(uid=2_100_000_007, gid=2_100_000_007, user="ada", group="ada", derived=True)
"""User of tasks if the agent is root."""


def a_spec(container_id: str = "c1", **changes: object) -> ContainerSpec:
    """A container; keyword arguments change its fields."""
    fields: dict[str, object] = {
        "container_id": container_id,
        "allocation_id": f"1.{container_id}.1",
        "task_id": f"1.{container_id}",
        "task_type": TaskType.TRIAL,
        "description": "a test",
        "slots": (),
        "environment": {},
        "command": ("true",),
        "run_as": TASK_USER,
    }
    return ContainerSpec(**{**fields, **changes})  # type: ignore[arg-type]


class LinkMaster:
    """Listens on one port, also after restarts. Stored data survives `stop`, as in a database."""

    def __init__(self, *, heartbeat_s: float = 0.3, lease_s: float = 60.0) -> None:
        self.heartbeat_s = heartbeat_s
        self.lease_s = lease_s
        self.port = 0
        self.hellos: list[Hello] = []
        self.reports: list[ContainerReport] = []
        self.latest: dict[str, ContainerReport] = {}
        self.lines: dict[tuple[str, str, int], LogLine] = {}
        self.batches: list[LogBatch] = []
        self.notices: list[Notice] = []
        self.expected: set[str] = set()
        self.answers_heartbeats = True
        self.stores_logs = True
        self.heartbeats = 0
        self.acknowledges = True
        self._socket: web.WebSocketResponse | None = None
        self._runner: web.AppRunner | None = None
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/agents/link", self._link)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def send(self, message: MasterMessage) -> None:
        assert self._socket is not None, "no agent is connected"
        await self._socket.send_str(encode_frame(message))

    async def run(self, spec: ContainerSpec) -> None:
        self.expected.add(spec.container_id)
        await self.send(StartContainer(spec=spec))

    async def kill(self, container_id: str, grace_s: float = 0.0) -> None:
        await self.send(KillContainer(container_id=container_id, grace_s=grace_s))

    async def until(self, condition: Callable[[], bool], *, limit_s: float = 60.0) -> None:
        """Waits until a message of an agent makes `condition` true."""
        async with asyncio.timeout(limit_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_state(self, container_id: str, state: ContainerState, *, limit_s: float = 60.0) -> ContainerReport:
        def reached() -> bool:
            report = self.latest.get(container_id)
            return report is not None and report.state.order >= state.order

        await self.until(reached, limit_s=limit_s)
        report = self.latest[container_id]
        assert report.state is state, f"{container_id} is {report}"
        return report

    async def until_connected(self, *, times: int = 1, limit_s: float = 60.0) -> None:
        await self.until(lambda: len(self.hellos) >= times and self._socket is not None, limit_s=limit_s)

    def output(self, container_id: str, stdtype: str = "stdout") -> list[str]:
        """The stored lines of one stream in the order of their offsets, without their newlines."""
        keys = sorted(key for key in self.lines if key[0] == container_id and key[1] == stdtype)
        return [self.lines[key].log.removesuffix("\n") for key in keys]

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                break
            message = decode_agent_frame(frame.data)
            assert message is not None
            await self._take(socket, message)
            self._changed.set()
        if self._socket is socket:
            self._socket = None
        return socket

    async def _take(self, socket: web.WebSocketResponse, message: AgentMessage) -> None:
        match message:
            case Hello():
                self.hellos.append(message)
                for report in message.containers:
                    self._store(report)
                welcome = Welcome(
                    cluster_id="cluster",
                    cluster_name="a cluster",
                    master_id="master",
                    heartbeat_s=self.heartbeat_s,
                    lease_s=self.lease_s,
                    expected=tuple(sorted(self.expected)),
                )
                self._socket = socket
                await socket.send_str(encode_frame(welcome))
            case ContainerChanged():
                self._store(message.report)
                if self.acknowledges:
                    await socket.send_str(encode_frame(Acknowledged(sequence=message.report.sequence)))
            case Heartbeat():
                self.heartbeats += 1
                if self.answers_heartbeats:
                    await socket.send_str(encode_frame(HeartbeatAnswer(at=datetime.now(UTC))))
            case LogBatch():
                self.batches.append(message)
                if self.stores_logs:
                    await self._store_lines(socket, message)
            case Notice():
                self.notices.append(message)

    async def _store_lines(self, socket: web.WebSocketResponse, batch: LogBatch) -> None:
        for line in batch.lines:
            self.lines.setdefault((line.container_id, line.stdtype, line.offset), line)
        await socket.send_str(encode_frame(LogsStored(batch=batch.batch)))

    async def store_late(self) -> None:
        """Stores logs from now on, beginning with those that arrived while storing was off."""
        assert self._socket is not None, "no agent is connected"
        self.stores_logs = True
        for batch in self.batches:
            await self._store_lines(self._socket, batch)

    def _store(self, report: ContainerReport) -> None:
        self.reports.append(report)
        latest = self.latest.get(report.container_id)
        if latest is None or report.sequence >= latest.sequence:
            self.latest[report.container_id] = report
        if report.state is ContainerState.TERMINATED:
            self.expected.discard(report.container_id)
