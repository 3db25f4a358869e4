"""Processes of this machine, identified by pid and start time: a pid alone may have been reused."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`start_time` is in clock ticks since the machine booted; `boot` is the machine's id of that boot."""

    pid: int
    start_time: int
    boot: str


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None when there is none, or only its corpse."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in ("Z", "X") else Identity(pid=pid, start_time=int(fields[19]), boot=boot)


def lives(identity: Identity) -> bool:
    """Whether this very process still runs."""
    return identify(identity.pid) == identity


def end(
    identity: Identity, *, grace_s: float, look_s: float = 0.1, pause: Callable[[float], object] = time.sleep
) -> bool:
    """SIGTERM, then SIGKILL after the grace. True when it ended within the grace, or had ended before."""
    waited = 0.0
    _signal(identity, signal.SIGTERM)
    while lives(identity):
        if waited >= grace_s:
            _signal(identity, signal.SIGKILL)
            while lives(identity):
                pause(look_s)
            return False
        pause(look_s)
        waited += look_s
    return True


def with_variable(name: str, values: Collection[str], *, directory: Path) -> list[Identity]:
    """Processes of ours that were started with the variable set to one of the values and that have to do with the
    directory: by their environment, their command or where they are. Values of two clusters may be the same.
    """
    wanted = {f"{name}={value}".encode() for value in values}
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            if not wanted.intersection(environment.split(b"\0")):
                continue
            traces = environment + (entry / "cmdline").read_bytes() + os.fsencode(os.readlink(entry / "cwd"))
        except OSError:
            continue
        if os.fsencode(directory) in traces:
            identity = identify(int(entry.name))
            if identity is not None:
                found.append(identity)
    return found


def kill_all(identities: Collection[Identity]) -> None:
    for identity in identities:
        _signal(identity, signal.SIGKILL)


def _signal(identity: Identity, number: signal.Signals) -> None:
    if lives(identity):
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            pass
