"""Which of the operator's machines was given to which request: one file a request, written before its machine is requested.

<root>/lock                      held while machines are given out, and while they are listed
<root>/requests/<id>.json        one request and what became of it
<root>/machines/<name>/lock      held while a program turns this machine on or off
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from resolute_provisioner.clouds.records import parse_time, read_json, time_text, write_json

FORGET_AFTER_S = 24 * 3600.0
"""A request whose machine has been off for this long is dropped with its token."""

GIVEN_FOR_S = 900.0
"""Time after which a machine that is off is free again, if the launch of its request never succeeded."""

TIMES = ("requested_at", "launched_at", "seen_at", "ending_at", "gone_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One launch and its machine."""

    instance_id: str
    token: str
    cluster: str
    pool: str
    machine: str
    """The operator's name of it."""
    requested_at: datetime
    launched_at: datetime | None = None
    """When the launch program succeeded."""
    seen_at: datetime | None = None
    """When the machine was first listed as on: from then on it is paid."""
    ending_at: datetime | None = None
    """When its end was ordered."""
    gone_at: datetime | None = None
    message: str = ""

    @property
    def provider_id(self) -> str:
        """The machine during this request: the next one may get the same machine."""
        return f"{self.machine}/{self.instance_id}"


def seen(request: Request, on: frozenset[str], now: datetime) -> Request | None:
    """The request after a listing of the machines that are on; None if it has ended and is dropped, or was never launched. Pure."""
    if request.gone_at is not None:
        return None if request.gone_at + timedelta(seconds=FORGET_AFTER_S) < now else request
    if request.machine in on:
        return request if request.seen_at is not None else replace(request, seen_at=now)
    if request.seen_at is not None:
        ended = "it was ended" if request.ending_at else "it was interrupted, or powered itself off"
        return replace(request, gone_at=now, message=ended)
    if request.ending_at is not None:
        return replace(request, gone_at=now, message="it was ended before it was on")
    if request.launched_at is None and request.requested_at + timedelta(seconds=GIVEN_FOR_S) < now:
        return None
    return request


class Requests:
    """The requests on the disk. Call with the lock of the root held."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._directory = root / "requests"

    def all(self) -> list[Request]:
        """All requests, by instance id."""
        found = []
        with suppress(FileNotFoundError):
            for path in sorted(self._directory.iterdir()):
                if not path.name.startswith(".") and (row := read_json(path)) is not None:
                    found.append(_request_of(row))
        return found

    def get(self, instance_id: str) -> Request | None:
        row = read_json(self._path(instance_id))
        return None if row is None else _request_of(row)

    def write(self, request: Request) -> Request:
        """Writes a request, which is on the disk when the call returns."""
        self._directory.mkdir(parents=True, exist_ok=True)
        row = asdict(request)
        row.update({name: time_text(row[name]) for name in TIMES if row[name] is not None})
        write_json(self._path(request.instance_id), row, durable=True)
        return request

    def remove(self, request: Request) -> None:
        self._path(request.instance_id).unlink(missing_ok=True)

    def look(self, on: frozenset[str], now: datetime) -> list[Request]:
        """All requests after a listing of the machines that are on."""
        found = []
        for before in self.all():
            after = seen(before, on, now)
            if after is None:
                self.remove(before)
                continue
            found.append(after if after == before else self.write(after))
        return found

    def _path(self, instance_id: str) -> Path:
        return self._directory / f"{instance_id}.json"


def free(names: Iterable[str], requests: Iterable[Request], on: frozenset[str]) -> tuple[str | None, str]:
    """The first free machine; if there is none, None and the reason. Pure."""
    taken = {each.machine: each.instance_id for each in requests if each.gone_at is None}
    why = []
    for name in names:
        if name in taken:
            why.append(f"{name} is used by {taken[name]}")
        elif name in on:
            why.append(f"{name} is on, and this pool did not turn it on")
        else:
            return name, ""
    return None, ", ".join(why)


def _request_of(row: dict[str, Any]) -> Request:
    return Request(**{**row, **{name: parse_time(row[name]) for name in TIMES}})
