"""Processes of this machine by pid and start time, and by a mark in their environment. Linux only."""

from __future__ import annotations

import os
import signal
import time

from resolute_agent.supervisor import start_time

_KILL_S = 10.0


def is_alive(pid: int, started: int | None) -> bool:
    """Whether that process is still running: the pid alone may belong to another process by now."""
    return started is not None and start_time(pid) == started


def send_signal(pid: int, started: int | None, number: signal.Signals) -> bool:
    """Signal exactly that process; False when it has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(pid, started):
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def number_inside(pid: int) -> int | None:
    """The number that a process has in its own PID namespace; None when it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            numbers = next((line.split()[1:] for line in file if line.startswith("NSpid:")), [str(pid)])
    except OSError:
        return None
    return int(numbers[-1])


async def ended(pid: int, started: int | None) -> None:
    """Return when that very process has ended. It needs not be a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import asyncio  # a machine's process, which asks the rest of this module, does without it

    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    try:
        if not is_alive(pid, started):
            return
        loop.add_reader(descriptor, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)


def marked(variable: str, value: str) -> list[int]:
    """Living processes whose environment has `variable=value`, this one left out."""
    mark = f"{variable}={value}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0") and start_time(int(name)) is not None:
                    found.append(int(name))
        except OSError:
            continue  # gone meanwhile, or not ours to look into
    return found


def end_marked(variable: str, value: str) -> list[int]:
    """SIGKILL every marked process until none is left; returns those that did not end in time."""
    until = time.monotonic() + _KILL_S
    while living := marked(variable, value):
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if time.monotonic() > until:
            return living
        time.sleep(0.005)
    return []
