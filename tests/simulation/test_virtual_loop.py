"""Time that jumps: in order, without waiting, and never past the last timer."""

from __future__ import annotations

import asyncio
import socket

import pytest

from resolute_sim.loop import Deadlock, run_virtually


def test_hours_pass_at_once_and_in_order() -> None:
    async def live() -> list[tuple[float, str]]:
        seen: list[tuple[float, str]] = []
        loop = asyncio.get_running_loop()

        async def after(seconds: float, name: str) -> None:
            await asyncio.sleep(seconds)
            seen.append((loop.time(), name))

        await asyncio.gather(after(7200, "late"), after(1, "early"), after(3600, "between"))
        return seen

    assert run_virtually(live()) == [(1.0, "early"), (3600.0, "between"), (7200.0, "late")]


def test_a_wait_that_nothing_can_end_is_a_deadlock() -> None:
    async def live() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtually(live())


def test_files_and_sockets_are_refused() -> None:
    async def live() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            asyncio.get_running_loop().add_reader(ours, lambda: None)

    with pytest.raises(RuntimeError, match="do not follow virtual time"):
        run_virtually(live())
