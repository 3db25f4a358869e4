"""A Compute Engine in this process: an HTTP server that Google's own client connects to.

Every request and every answer is held against the published discovery document; deviations are refused and recorded in
`violations`, which a test checks at its end. Machines and operations move with time. Failures are scripted: refusals at
once and refusals that only the operation reports, lost replies, throttling, silent zones, lists that lag, and spot machines that
are taken back. What ran is kept in a bill of its own.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from resolute.clock import Clock, SystemClock
from resolute_provisioner.clouds.gcp.fake_rules import Call, Json, Violation, check_answer, understood

PROJECT = "project-1"
LABEL = re.compile(r"[a-z0-9_-]{0,63}")
LOST = object()
"""Scripted: the request is carried out, and the connection ends without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpError:
    """Scripted: the request is not carried out and this is the answer."""

    status: int
    reason: str = ""
    message: str = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedOperation:
    """Scripted: an insert is taken, and fails later."""

    code: str
    message: str = "scripted"
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Durations of the fake, in seconds."""

    operation_s: float = 0.05
    """Time from an insert to the end of its operation."""
    staging_s: float = 0.5
    """Time from the end of the operation to RUNNING."""
    deleting_s: float = 0.1
    request_ids_s: float = 3600.0
    """Time for which a request's id is stored."""
    list_lag_s: float = 0.0
    """A list shows no machine that is younger."""


@dataclass(slots=True, kw_only=True)
class Machine:
    zone: str
    body: Json
    created: datetime
    running: datetime
    """When it starts to run, unless it is ended before."""
    ending: datetime | None = None
    ended: datetime | None = None
    remains: bool = False
    """Whether it is stopped at its end rather than deleted."""
    preempted: bool = False
    failed: bool = False
    """Whether it got no capacity: it exists while its operation continues."""

    @property
    def name(self) -> str:
        return str(self.body["name"])

    def status(self, now: datetime, placed: datetime) -> str:
        """`placed`: when its insert's operation is over. "" when it is not there any more."""
        if self.failed:
            return "PROVISIONING" if now < placed else ""
        if self.ended is not None and now >= self.ended:
            return "TERMINATED" if self.remains else ""
        if self.ending is not None and now >= self.ending:
            return "STOPPING"
        if now >= self.running:
            return "RUNNING"
        return "STAGING" if now >= placed else "PROVISIONING"

    def ran(self) -> bool:
        return not self.failed and (self.ending is None or self.ending > self.running)


@dataclass(slots=True, kw_only=True)
class Operation:
    name: str
    zone: str
    kind: str
    target: str
    inserted: datetime
    ends: datetime
    request_id: str = ""
    failure: FailedOperation | None = None


@dataclass(slots=True)
class Scripts:
    """Results of the next calls, in order; later calls succeed."""

    inserts: deque[object] = field(default_factory=deque)
    deletes: deque[object] = field(default_factory=deque)
    lists: deque[object] = field(default_factory=deque)
    silent_zones: set[str] = field(default_factory=set)


class FakeComputeEngine:
    """One project. `url` is for the client's `api_endpoint`."""

    def __init__(self, *, clock: Clock | None = None, times: Times | None = None, page: int = 500) -> None:
        self.times = times or Times()
        self.one_zone_spoils_the_list = False
        """Whether a silent zone leaves the list over all zones without an answer, rather than with a warning."""
        self.scripts = Scripts()
        self.violations: list[str] = []
        self.calls: list[Call] = []
        self._clock = clock or SystemClock()
        self._page = page
        self._lock = threading.RLock()
        self._time_of_call: datetime | None = None
        self._machines: list[Machine] = []
        self._operations: list[Operation] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # ------------------------------------------------------------------------------------- the hand on the fake

    def there(self) -> dict[str, tuple[str, Json]]:
        """Status and description of the machines that are not deleted, by `zone/name`."""
        with self._lock:
            now = self._now()
            found = ((machine, machine.status(now, self._placed(machine))) for machine in self._machines)
            return {f"{each.zone}/{each.name}": (status, each.body) for each, status in found if status}

    def ran(self) -> list[tuple[str, datetime, datetime | None]]:
        """Paid times: name, start, and end (None: it still runs)."""
        with self._lock:
            now = self._now()
            return [
                (each.name, each.running, each.ended if each.ended and each.ended <= now else None)
                for each in self._machines
                if each.ran() and each.running <= now
            ]

    def preempted(self, name: str) -> bool:
        """The answer of that machine's metadata server."""
        with self._lock:
            return any(each.preempted for each in self._machines if each.name == name)

    def preempt(self, name: str, *, notice_s: float = 0.3) -> None:
        """Preempt a spot machine."""
        with self._lock:
            machine = self._living(name)
            stays = machine.body["scheduling"].get("instanceTerminationAction", "STOP") == "STOP"
            self._end(machine, "compute.instances.preempted", notice_s, remains=stays)
            machine.preempted = True

    def fail_host(self, name: str) -> None:
        """End a machine without a notice; with automaticRestart off it stays stopped."""
        with self._lock:
            self._end(self._living(name), "compute.instances.hostError", 0.0, remains=True)

    def power_off(self, name: str) -> None:
        """Power a machine off, as it does itself."""
        with self._lock:
            self._end(self._living(name), "compute.instances.guestTerminate", 0.0, remains=True)

    def delete(self, name: str) -> None:
        """Delete a machine, as an operator does."""
        with self._lock:
            self._end(self._living(name), "delete", self.times.deleting_s, remains=False)

    # ------------------------------------------------------------------------------------------------- the calls

    def answer(self, verb: str, target: str, body: bytes) -> tuple[int, Json] | None:
        """Status and body of the answer; None ends the connection without one."""
        with self._lock, self._at_one_time():
            try:
                call = understood(verb, target, body)
                self.calls.append(call)
                scripted = None if self._remembered(call) else self._scripted(call.method)
                if isinstance(scripted, HttpError):
                    return _refusal(scripted)
                answer = self._carried_out(call, scripted)
                if isinstance(answer, HttpError):
                    return _refusal(answer)
                check_answer(call.method, answer)
            except (Violation, ValueError, KeyError) as violation:
                self.violations.append(f"{verb} {target}: {violation!r}")
                return _refusal(HttpError(status=400, reason="invalid", message=repr(violation)))
            return None if scripted is LOST else (200, answer)

    def _scripted(self, method: str) -> object:
        queue = {
            "compute.instances.insert": self.scripts.inserts,
            "compute.instances.delete": self.scripts.deletes,
            "compute.instances.aggregatedList": self.scripts.lists,
            "compute.instances.list": self.scripts.lists,
        }.get(method)
        return queue.popleft() if queue else None

    def _carried_out(self, call: Call, scripted: object) -> Json | HttpError:
        handlers: dict[str, Callable[[], Json | HttpError]] = {
            "compute.instances.insert": lambda: self._insert(call, scripted),
            "compute.instances.delete": lambda: self._delete(call),
            "compute.instances.get": lambda: self._get(call),
            "compute.instances.aggregatedList": lambda: self._list(call),
            "compute.instances.list": lambda: self._list_zone(call),
            "compute.zoneOperations.get": lambda: self._operation(call),
            "compute.zoneOperations.list": lambda: self._list_operations(call),
        }
        if call.path["project"] != PROJECT:
            return _not_found(f"projects/{call.path['project']}")
        if call.method not in handlers:
            raise Violation(f"{call.method} is not served here")
        return handlers[call.method]()

    def _insert(self, call: Call, scripted: object) -> Json | HttpError:
        assert call.body is not None
        now, zone, name = self._now(), call.path["zone"], str(call.body["name"])
        remembered = self._remembered(call)
        if remembered is not None:
            return self._operation_json(remembered)
        if f"{zone}/{name}" in self.there():
            text = f"The resource 'projects/{PROJECT}/zones/{zone}/instances/{name}' already exists"
            return HttpError(status=409, reason="alreadyExists", message=text)
        wrong = _wrong(call.body, zone)
        if wrong:
            return HttpError(status=400, reason="invalid", message=f"Invalid value for field 'resource': {wrong}")
        failure = scripted if isinstance(scripted, FailedOperation) else None
        placed = now + timedelta(seconds=self.times.operation_s)
        running = placed + timedelta(seconds=self.times.staging_s)
        machine = Machine(zone=zone, body=call.body, created=now, running=running, failed=failure is not None)
        self._machines.append(machine)
        return self._operation_json(
            self._order(machine, "insert", placed, request_id=call.query.get("requestId", ""), failure=failure)
        )

    def _remembered(self, call: Call) -> Operation | None:
        """The operation of an earlier request with this id."""
        request_id, since = call.query.get("requestId"), self._now() - timedelta(seconds=self.times.request_ids_s)
        return next(
            (
                each
                for each in self._operations
                if request_id and each.request_id == request_id and each.inserted > since
            ),
            None,
        )

    def _delete(self, call: Call) -> Json | HttpError:
        path = f"{call.path['zone']}/{call.path['instance']}"
        if path not in self.there():
            return _not_found(path)
        machine = self._latest(path)
        now = self._now()
        if machine.ended is not None and not machine.remains:
            return self._operation_json(self._order(machine, "delete", machine.ended))
        if machine.ended is None or machine.ended > now:
            return self._operation_json(self._end(machine, "delete", self.times.deleting_s, remains=False))
        machine.remains = False
        return self._operation_json(self._order(machine, "delete", now))

    def _get(self, call: Call) -> Json | HttpError:
        path = f"{call.path['zone']}/{call.path['instance']}"
        return self._machine_json(self._latest(path)) if path in self.there() else _not_found(path)

    def _labelled(self, call: Call) -> list[Machine]:
        match = re.fullmatch(r'labels\.([a-z][a-z0-9_-]*) = "([a-z0-9_-]*)"', call.query.get("filter", ""))
        if match is None:
            raise Violation(f"filter {call.query.get('filter')!r}")
        newest = self._now() - timedelta(seconds=self.times.list_lag_s)
        found = [
            self._latest(path)
            for path, (_, body) in sorted(self.there().items())
            if body.get("labels", {}).get(match[1]) == match[2]
        ]
        return [each for each in found if each.created <= newest and each.zone not in self.scripts.silent_zones]

    def _list_zone(self, call: Call) -> Json | HttpError:
        if call.path["zone"] in self.scripts.silent_zones:
            return HttpError(status=503, message=f"zone {call.path['zone']} cannot be reached")
        found = [self._machine_json(each) for each in self._labelled(call) if each.zone == call.path["zone"]]
        return {"kind": "compute#instanceList", "items": found}

    def _list(self, call: Call) -> Json | HttpError:
        if self.scripts.silent_zones and self.one_zone_spoils_the_list:
            return HttpError(status=503, message="some zones cannot be reached")
        found = self._labelled(call)
        start, size = int(call.query.get("pageToken", 0)), min(self._page, int(call.query.get("maxResults", 500)))
        items: dict[str, Json] = {}
        for machine in found[start : start + size]:
            items.setdefault(f"zones/{machine.zone}", {"instances": []})["instances"].append(
                self._machine_json(machine)
            )
        for zone in self.scripts.silent_zones:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"zone {zone} cannot be reached"}}
        answer: Json = {"kind": "compute#instanceAggregatedList", "items": items}
        if start + size < len(found):
            answer["nextPageToken"] = str(start + size)
        return answer

    def _operation(self, call: Call) -> Json | HttpError:
        for each in self._operations:
            if (each.zone, each.name) == (call.path["zone"], call.path["operation"]):
                return self._operation_json(each)
        return _not_found(call.path["operation"])

    def _list_operations(self, call: Call) -> Json:
        if call.query.get("orderBy") not in (None, "creationTimestamp desc"):
            raise Violation(f"orderBy {call.query['orderBy']!r}")
        here = [each for each in reversed(self._operations) if each.zone == call.path["zone"]]
        return {"kind": "compute#operationList", "items": [self._operation_json(each) for each in here[: self._page]]}

    # --------------------------------------------------------------------------------------------------- the state

    def _now(self) -> datetime:
        return self._clock.now() if self._time_of_call is None else self._time_of_call

    @contextmanager
    def _at_one_time(self) -> Iterator[None]:
        """A call is answered as of one moment: a machine that exists at its lookup still exists at its description."""
        self._time_of_call = self._clock.now()
        try:
            yield
        finally:
            self._time_of_call = None

    def _latest(self, path: str) -> Machine:
        return next(each for each in reversed(self._machines) if f"{each.zone}/{each.name}" == path)

    def _living(self, name: str) -> Machine:
        return next(each for each in reversed(self._machines) if each.name == name and each.ending is None)

    def _placed(self, machine: Machine) -> datetime:
        return machine.created + timedelta(seconds=self.times.operation_s)

    def _end(self, machine: Machine, kind: str, after_s: float, *, remains: bool) -> Operation:
        now = self._now()
        machine.ending = min(machine.ending or now, now)
        machine.ended = min(machine.ended or now + timedelta(seconds=after_s), now + timedelta(seconds=after_s))
        machine.remains = remains
        return self._order(machine, kind, machine.ended)

    def _order(
        self,
        machine: Machine,
        kind: str,
        ends: datetime,
        *,
        request_id: str = "",
        failure: FailedOperation | None = None,
    ) -> Operation:
        operation = Operation(
            name=f"operation-{len(self._operations) + 1}",
            zone=machine.zone,
            kind=kind,
            target=f"{self._zone_url(machine.zone)}/instances/{machine.name}",
            inserted=self._now(),
            ends=ends,
            request_id=request_id,
            failure=failure,
        )
        self._operations.append(operation)
        return operation

    def _zone_url(self, zone: str) -> str:
        return f"{self.url}/compute/v1/projects/{PROJECT}/zones/{zone}"

    def _operation_json(self, each: Operation) -> Json:
        done = self._now() >= each.ends
        found: Json = {
            "kind": "compute#operation",
            "name": each.name,
            "zone": self._zone_url(each.zone),
            "operationType": each.kind,
            "targetLink": each.target,
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
            "insertTime": each.inserted.isoformat(),
            **({"clientOperationId": each.request_id} if each.request_id else {}),
            **({"endTime": each.ends.isoformat()} if done else {}),
        }
        if done and each.failure is not None:
            found["error"] = {"errors": [{"code": each.failure.code, "message": each.failure.message}]}
            if each.failure.status:
                found["httpErrorStatusCode"] = each.failure.status
        return found

    def _machine_json(self, machine: Machine) -> Json:
        now = self._now()
        found: Json = {
            **machine.body,
            "kind": "compute#instance",
            "zone": self._zone_url(machine.zone),
            "creationTimestamp": machine.created.isoformat(),
            "status": machine.status(now, self._placed(machine)),
        }
        if machine.ran() and machine.running <= now:
            found["lastStartTimestamp"] = machine.running.isoformat()
        if found["status"] == "TERMINATED" and machine.ended is not None:
            found["lastStopTimestamp"] = machine.ended.isoformat()
        return found


def _wrong(body: Json, zone: str) -> str:
    """Refusals of Compute Engine that the document does not define."""
    scheduling = body.get("scheduling", {})
    keys = [item["key"] for item in body.get("metadata", {}).get("items", [])]
    disks = body.get("disks", [])
    accelerated = bool(body.get("guestAccelerators"))
    rules = {
        "disks: the first must be a boot disk": bool(disks) and disks[0].get("boot") is True,
        "networkInterfaces: at least one is required": bool(body.get("networkInterfaces")),
        "machineType: of another zone": str(body.get("machineType", "")).startswith(f"zones/{zone}/machineTypes/"),
        "labels": all(LABEL.fullmatch(value) for value in body.get("labels", {}).values()),
        "metadata: a key twice": len(keys) == len(set(keys)),
        "metadata: too long": all(len(item["value"].encode()) <= 256 * 1024 for item in body["metadata"]["items"]),
        "instanceTerminationAction: only for spot": scheduling.get("provisioningModel") == "SPOT"
        or "instanceTerminationAction" not in scheduling,
        "onHostMaintenance: spot machines and GPUs need TERMINATE": scheduling.get("onHostMaintenance") == "TERMINATE"
        or not (accelerated or scheduling.get("provisioningModel") == "SPOT"),
        "automaticRestart: not for spot": not (
            scheduling.get("provisioningModel") == "SPOT" and scheduling.get("automaticRestart", True)
        ),
    }
    return "; ".join(text for text, holds in rules.items() if not holds)


def _not_found(what: str) -> HttpError:
    return HttpError(status=404, reason="notFound", message=f"The resource '{what}' was not found")


def _refusal(error: HttpError) -> tuple[int, Json]:
    told = {"message": error.message, "domain": "global", "reason": error.reason or "backendError"}
    return error.status, {"error": {"code": error.status, "message": error.message, "errors": [told]}}


def _handler(engine: FakeComputeEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = engine.answer(self.command, self.path, body)
            if answer is None:
                self.close_connection = True
                return
            status, decoded = answer
            text = json.dumps(decoded).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _serve

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


@contextmanager
def compute_engine(**options: Any) -> Iterator[FakeComputeEngine]:
    """A fake that is held to the document at its end."""
    engine = FakeComputeEngine(**options)
    try:
        yield engine
    finally:
        engine.close()
    assert engine.violations == []
