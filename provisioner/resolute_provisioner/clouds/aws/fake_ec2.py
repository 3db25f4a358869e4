"""EC2 on this machine: moto behind a front that adds the delays, losses and refusals of the real one.

moto keeps machines; the front, on the way of every request and answer, adds what moto leaves out (client tokens, machines
that take time to start and to end) and what a test asks for: errors, lost answers, lists that lag or leave something out.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree

from werkzeug.serving import WSGIRequestHandler, make_server

from resolute.clock import SystemClock

REGION = "us-east-1"
ACCOUNT = "123456789012"
IMAGE = "ami-12c6146b"
"""An image of moto."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}

STATES = {"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopped": 80}


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is answered with this error, and not carried out."""

    code: str
    status: int = 400


@dataclass(frozen=True, slots=True)
class Lose:
    """The connection is cut; whether after the request was carried out."""

    carried_out: bool


Fault = Refuse | Lose

Answer = tuple[str, list[tuple[str, str]], bytes]
"""Status line, headers and body."""
Ask = Callable[[dict[str, str]], Answer]
"""A request to moto, by its parameters."""


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        return


@dataclass
class Ec2Front:
    """One EC2. `faults` are used up by the next requests of their operation, in order."""

    pending_s: float = 0.3
    ending_s: float = 0.3
    hidden_s: float = 0.0
    """Time for which a new machine is missing from lists."""
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    refused: dict[str, Refuse] = field(default_factory=dict)
    """The answer to launches of these instance types, for as long as they are in this set."""
    omitted: set[str] = field(default_factory=set)
    """Machines that no list shows."""
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Operations and their parameters as they came over the wire."""
    url: str = ""
    _tokens: dict[str, tuple[str, bytes, str]] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)
    _ending: dict[str, float] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # ------------------------------------------------------------------------------------------ the hand on it

    def fail(self, operation: str, *faults: Fault) -> None:
        self.faults[operation].extend(faults)

    def machines(self) -> dict[str, Any]:
        """The machines of moto, by id."""
        with self._lock:
            self._advance()
            return {each.id: each for each in _backend().all_instances()}

    def lives(self, machine_id: str) -> bool:
        machine = self.machines().get(machine_id)
        return machine is not None and machine.state in ("pending", "running")

    def end(self, machine_id: str, code: str, message: str) -> None:
        """Terminates a machine at once; EC2 reports the reason."""
        with self._lock:
            machine = self.machines()[machine_id]
            if machine.state in ("pending", "running"):
                machine.terminate()
            _state(machine, "terminated")
            self._ending.pop(machine_id, None)
            machine._reason = f"{code.partition('.')[2]} ({SystemClock().now():%Y-%m-%d %H:%M:%S} GMT)"
            machine.state_reason.code, machine.state_reason.message = code, f"{code}: {message}"

    def interrupt(self, machine_id: str) -> None:
        self.end(machine_id, "Server.SpotInstanceTermination", "Spot instance termination")

    def power_off(self, machine_id: str) -> None:
        self.end(machine_id, "Client.InstanceInitiatedShutdown", "Instance initiated shutdown")

    def user_data(self, machine_id: str) -> bytes:
        """User data of a machine, in the form of its metadata service."""
        held: bytes = self.machines()[machine_id].user_data.decode().encode()
        return held

    def launches(self) -> list[dict[str, str]]:
        return [parameters for operation, parameters in self.calls if operation == "RunInstances"]

    # ------------------------------------------------------------------------------------------------ the front

    def serve(self, moto: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
            status, headers, answer = self._answer(parameters, lambda asked: _ask(moto, environ, asked))
            if answer is None:
                environ["werkzeug.socket"].shutdown(SHUT_RDWR)
                raise ConnectionError("cut")
            start_response(status, [(k, v) for k, v in headers if k.lower() != "content-length"])
            return [answer]

        return application

    def _answer(self, parameters: dict[str, str], ask: Ask) -> tuple[str, list[tuple[str, str]], bytes | None]:
        operation = parameters.get("Action", "")
        with self._lock:
            self.calls.append((operation, parameters))
            self._advance()
            fault = self._fault(operation, parameters)
            if isinstance(fault, Refuse):
                return _error(fault.code, f"scripted for {operation}", fault.status)
            if isinstance(fault, Lose) and not fault.carried_out:
                return "", [], None
            status, headers, answer = self._carry_out(operation, parameters, ask)
            return ("", [], None) if isinstance(fault, Lose) else (status, headers, answer)

    def _fault(self, operation: str, parameters: Mapping[str, str]) -> Fault | None:
        if operation == "RunInstances" and parameters["InstanceType"] in self.refused:
            return self.refused[parameters["InstanceType"]]
        return self.faults[operation].popleft() if self.faults[operation] else None

    def _carry_out(self, operation: str, parameters: dict[str, str], ask: Ask) -> Answer:
        token = parameters.get("ClientToken", "")
        if operation == "RunInstances" and token in self._tokens:
            return self._again(parameters, *self._tokens[token])
        if operation == "TerminateInstances":
            parameters = self._living(parameters)
            if not any(name.startswith("InstanceId.") for name in parameters):
                return "200 OK", [("Content-Type", "text/xml")], b"<TerminateInstancesResponse/>"
        status, headers, answer = ask(parameters)
        if not status.startswith("200"):
            return status, headers, answer
        if operation == "RunInstances":
            machine_id = re.search(r"<instanceId>(i-[0-9a-f]+)</instanceId>", answer.decode())[1]  # type: ignore[index]
            self._since[machine_id] = time.monotonic()
            _state(_backend().get_instance(machine_id), "pending")
            self._tokens[token] = (_digest(parameters), answer, machine_id)
            answer = _restated(answer, "pending")
        elif operation == "TerminateInstances":
            for machine in _backend().all_instances():
                if machine.id in answer.decode() and machine.state == "terminated" and machine.id not in self._ending:
                    self._ending[machine.id] = time.monotonic()
                    _state(machine, "shutting-down")
        elif operation == "DescribeInstances":
            answer = self._shown(answer)
        return status, headers, answer

    def _living(self, parameters: dict[str, str]) -> dict[str, str]:
        """The parameters without machines that have ended: EC2 accepts them again, moto does not."""
        over = {each.id for each in _backend().all_instances() if each.state in ("shutting-down", "terminated")}
        return {name: value for name, value in parameters.items() if value not in over}

    def _again(self, parameters: dict[str, str], digest: str, answer: bytes, machine_id: str) -> Answer:
        if digest != _digest(parameters):
            return _error("IdempotentParameterMismatch", "the client token was used for another request", 400)
        return "200 OK", [("Content-Type", "text/xml")], _restated(answer, _backend().get_instance(machine_id).state)

    def _shown(self, answer: bytes) -> bytes:
        now = time.monotonic()
        hidden = {each for each, since in self._since.items() if now - since < self.hidden_s} | self.omitted
        if not hidden:
            return answer
        space = re.search(rb'xmlns="([^"]+)"', answer)
        assert space is not None
        ElementTree.register_namespace("", space[1].decode())
        root = ElementTree.fromstring(answer)
        for reservations in root.iter(f"{{{space[1].decode()}}}reservationSet"):
            for item in list(reservations):
                if any(f">{each}<".encode() in ElementTree.tostring(item) for each in hidden):
                    reservations.remove(item)
        return ElementTree.tostring(root)

    def _advance(self) -> None:
        """Applies the starts and ends of machines that are due."""
        now = time.monotonic()
        for machine in _backend().all_instances():
            if machine.state == "pending" and now - self._since[machine.id] >= self.pending_s:
                _state(machine, "running")
            if machine.id in self._ending and now - self._ending[machine.id] >= self.ending_s:
                del self._ending[machine.id]
                _state(machine, "terminated")


def _backend() -> Any:
    from moto.ec2.models import ec2_backends  # takes a second, and reads files of all regions

    return ec2_backends[ACCOUNT][REGION]


def _state(machine: Any, name: str) -> None:
    machine._state.name, machine._state.code = name, STATES[name]


def _digest(parameters: dict[str, str]) -> str:
    return hashlib.sha256(repr(sorted(parameters.items())).encode()).hexdigest()


def _restated(answer: bytes, name: str) -> bytes:
    state = f"<instanceState><code>{STATES[name]}</code><name>{name}</name></instanceState>"
    return re.sub(rb"<instanceState>.*?</instanceState>", state.encode(), answer, flags=re.DOTALL)


def _error(code: str, message: str, status: int) -> Answer:
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    return f"{status} scripted", [("Content-Type", "text/xml")], body.encode()


def _ask(moto: Callable[..., Iterable[bytes]], environ: dict[str, Any], parameters: dict[str, str]) -> Answer:
    body = urlencode(parameters).encode()
    environ = {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    said: list[tuple[str, list[tuple[str, str]]]] = []
    answer = moto(environ, lambda status, headers, error=None: said.append((status, headers)))
    status, headers = said[0]
    return status, headers, b"".join(answer)


@cache
def _moto() -> Callable[..., Iterable[bytes]]:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    served: Callable[..., Iterable[bytes]] = DomainDispatcherApplication(create_backend_app)
    return served


@contextmanager
def ec2_front(**options: Any) -> Iterator[Ec2Front]:
    """An EC2 without machines, on a free port."""
    front = Ec2Front(**options)
    _backend().reservations.clear()
    server = make_server(
        "127.0.0.1",
        0,
        front.serve(_moto()),
        threaded=True,
        request_handler=_Quiet,
    )
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    front.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield front
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
