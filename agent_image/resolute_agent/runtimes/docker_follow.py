"""One container from its start to its recorded end: its output copied, its end written down, the engine's part removed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from resolute.wire.agent_link import Exit
from resolute.wire.states import FailureKind
from resolute_agent import supervisor
from resolute_agent.runtimes.base import STREAMS
from resolute_agent.runtimes.docker_engine import Engine, EngineError, EngineGone
from resolute_agent.runtimes.docker_output import Entry, FrameReader, NotFrames, after
from resolute_agent.runtimes.docker_request import EngineOptions
from resolute_agent.runtimes.docker_watch import ENDED, EXIT, name_of

log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
"""Between two looks at a container whose output ended although it lives, and at an engine that does not answer."""

LAST_ENTRIES = 500
"""Number of entries that are read again when the container has ended: an engine may close a followed log before its last
entries."""

DISK_FULL_S = 1.0
REASON_WITHIN_S = 0.5
"""Time after a kill in which its engine may still learn that memory was the reason."""


def has_ended(state: Mapping[str, Any] | None) -> bool:
    """Whether the engine's answer about a container is its end; a missing container is one."""
    return state is None or state["State"]["Status"] in ("exited", "dead", "removing")


def end_of(state: Mapping[str, Any] | None, *, lease_over: bool, memory_bytes: int) -> Exit:
    """Pure: the end as a wire message, from the engine's answer about an ended container."""
    if lease_over:
        return Exit(failure=FailureKind.AGENT_FAILED, message="its lease ran out: no master answered in time")
    if state is None:
        message = "the container was removed by another program; the exit code of the task is unknown"
        return Exit(failure=FailureKind.TASK_ERROR, message=message)
    told = state["State"]
    code = int(told["ExitCode"])
    if code == 0:
        return Exit(code=0)
    message = str(told.get("Error") or "")
    if told.get("OOMKilled"):
        limit = f"its limit of {memory_bytes / 1024**2:.0f} MiB" if memory_bytes else "what the machine has"
        message = f"out of memory: the kernel ended a process of the container, which needed more than {limit}"
    elif not message and code - 128 in set(signal.Signals):
        message = f"died by {signal.Signals(code - 128).name}"
    return Exit(code=code, failure=FailureKind.CONTAINER_FAILED, message=message)


class Follower:
    """Follows one container of the engine. `home` is its directory."""

    def __init__(self, home: Path, engine: Engine, options: EngineOptions) -> None:
        self._home = home
        self._name = name_of(home.name)
        self._engine = engine
        self._options = options
        self._sizes = {stream: _size(home / stream) for stream in STREAMS}
        self._last: Entry | None = None
        self._grown = asyncio.Event()
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"container {self._home.name}")

    async def end(self) -> Exit:
        """How the container ended; all its output is here then. Raises what broke the following of it."""
        return await asyncio.shield(self._exit)

    async def finished(self) -> None:
        """Return when the end is recorded and the engine has been asked to remove the container."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Stop to follow; the container continues."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def grown(self, offsets: Mapping[str, int]) -> None:
        """Return when a stream is longer than its offset, or when the container has ended."""
        while not self._exit.done() and all(self._sizes[stream] <= offsets.get(stream, 0) for stream in STREAMS):
            await self._grown.wait()

    def _tell(self) -> None:
        before, self._grown = self._grown, asyncio.Event()
        before.set()

    async def _run(self) -> None:
        try:
            exit = recorded_end(self._home) or await self._until_the_end()
            self._exit.set_result(exit)
            self._tell()
            with suppress(EngineError, EngineGone):  # otherwise a later sweep removes it
                await self._engine.remove(self._name)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._exit.set_exception(error)
            self._tell()

    async def _until_the_end(self) -> Exit:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                if await self._copy(follow=True):
                    pause_s = FIRST_PAUSE_S
                state = await self._engine.inspect(self._name)
                if has_ended(state):
                    if state is not None:
                        await self._copy_last()
                    break
            except (EngineGone, EngineError, NotFrames) as error:
                log.warning("container %s: %s; looking again", self._home.name, error)
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
        state = await self._with_reason(state)
        exit = end_of(state, lease_over=(self._home / ENDED).exists(), memory_bytes=self._options.memory_bytes)
        failure = exit.failure.value if exit.failure is not None else None
        record = {"code": exit.code, "failure": failure, "message": exit.message}
        await _write_waiting(self._home / EXIT, json.dumps(record).encode())
        return exit

    async def _with_reason(self, state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """An engine receives a container's end and the kernel's reason separately, and may have the first before the second."""
        if state is None or not self._options.memory_bytes:
            return state
        if state["State"]["ExitCode"] != 128 + signal.SIGKILL or state["State"].get("OOMKilled"):
            return state
        await asyncio.sleep(REASON_WITHIN_S)
        with suppress(EngineGone, EngineError):
            return await self._engine.inspect(self._name) or state
        return state

    async def _copy(self, *, follow: bool) -> bool:
        """Append what is not here yet, reading from the beginning. True when there was something."""
        reader = FrameReader()
        skip = dict(self._sizes)
        some = False
        try:
            async for piece in self._engine.output(self._name, follow=follow):
                fresh = []
                for entry in reader.feed(piece):
                    self._last = entry
                    left = skip[entry.stream]
                    skip[entry.stream] = max(0, left - len(entry.data))
                    if left < len(entry.data):
                        fresh.append((entry, entry.data[left:]))
                some |= bool(fresh)
                await self._append(fresh)
        except EngineError as error:
            if error.status != 404:
                raise
        return some

    async def _copy_last(self) -> None:
        """The lines that the followed log lacks; exact whatever the engine omitted."""
        reader = FrameReader()
        entries: list[Entry] = []
        async for piece in self._engine.output(self._name, follow=False, tail=LAST_ENTRIES):
            entries += reader.feed(piece)
        missing = after(entries, self._last)
        if missing is None or (self._last is None and len(entries) >= LAST_ENTRIES):
            await self._copy(follow=False)
            return
        await self._append((entry, entry.data) for entry in missing)

    async def _append(self, fresh: Iterable[tuple[Entry, bytes]]) -> None:
        data = {stream: bytearray() for stream in STREAMS}
        times = {stream: bytearray() for stream in STREAMS}
        for entry, part in fresh:
            offset = self._sizes[entry.stream] + len(data[entry.stream])
            times[entry.stream] += supervisor.STAMP.pack(entry.seconds(), offset)
            data[entry.stream] += part
        for stream in STREAMS:
            if data[stream]:
                await _append_to(self._home / f"{stream}.times", bytes(times[stream]))
                await _append_to(self._home / stream, bytes(data[stream]))
                self._sizes[stream] += len(data[stream])
        if any(data.values()):
            self._tell()


def recorded_end(home: Path) -> Exit | None:
    """The end that was written down; `None` while there is none."""
    record = supervisor.read_json(str(home / EXIT))
    if record is None:
        return None
    failure = FailureKind(record["failure"]) if record["failure"] is not None else None
    return Exit(code=record["code"], failure=failure, message=record["message"])


async def _append_to(path: Path, data: bytes) -> None:
    """Append, waiting while the disk is full: the engine keeps what we cannot take."""
    view = memoryview(data)
    while view:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            view = view[os.write(descriptor, view) :]
        except OSError as error:
            if not supervisor.disk_is_full(error):
                raise
            await asyncio.sleep(DISK_FULL_S)
        finally:
            os.close(descriptor)


async def _write_waiting(path: Path, data: bytes) -> None:
    """Replace a file, waiting while the disk is full."""
    while True:
        try:
            supervisor.write_whole(str(path), data)
            return
        except OSError as error:
            if not supervisor.disk_is_full(error):
                raise
        await asyncio.sleep(DISK_FULL_S)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
