"""The agent's side of its forkserver: started when first needed, and again when it has died."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import resolute
from resolute_agent import forkserver


class Forkserver:
    """One process, which ends with this object at the latest. What it has started continues."""

    def __init__(self) -> None:
        self._requests: int | None = None
        self._end: weakref.finalize[..., Forkserver] | None = None

    async def ask(self, request: Mapping[str, Any]) -> str:
        """The answer; empty also when the process died over it."""
        read_end, write_end = os.pipe()
        try:
            try:
                self._send(request, write_end)
            finally:
                os.close(write_end)
            return (await _read_to_end(read_end)).decode(errors="replace").strip()
        finally:
            os.close(read_end)

    def close(self) -> None:
        """End the process; returns when it has. The next request starts another."""
        if self._end is not None:
            self._end()
        self._requests, self._end = None, None

    def _send(self, request: Mapping[str, Any], write_end: int) -> None:
        body = json.dumps(request).encode()
        try:
            self._send_once(body, write_end)
        except (BrokenPipeError, ConnectionError):  # it died before it read the message
            self.close()
            self._send_once(body, write_end)

    def _send_once(self, body: bytes, write_end: int) -> None:
        with socket.socket(fileno=os.dup(self._connected())) as channel:
            socket.send_fds(channel, [body], [write_end], socket.MSG_NOSIGNAL)

    def _connected(self) -> int:
        if self._requests is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                pid = _spawn(theirs.fileno())
            self._requests = ours.detach()
            self._end = weakref.finalize(self, _ended, self._requests, pid)
        return self._requests


def _spawn(requests: int) -> int:
    roots = {str(Path(file).resolve().parent.parent): None for file in (forkserver.__file__, resolute.__file__)}
    arguments = [sys.executable, "-P", "-X", "utf8", "-m", "resolute_agent.forkserver"]
    return os.posix_spawn(
        sys.executable,
        arguments,
        forkserver.environment_of(dict(os.environ), list(roots)),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, requests, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
    )


def _ended(requests: int, pid: int) -> None:
    os.close(requests)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # another thread reaps every child of this process


async def _read_to_end(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    parts: list[bytes] = []
    over = asyncio.Event()

    def take() -> None:
        part = os.read(descriptor, 65536)
        if part:
            parts.append(part)
        else:
            over.set()

    loop.add_reader(descriptor, take)
    try:
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
    return b"".join(parts)
