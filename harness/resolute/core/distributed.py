"""Communication between the processes of one job: gather, allgather and broadcast of JSON values over a star of TCP links.

The chief (rank 0) listens; every other rank connects to it, and both sides prove that they have the gang's key. A
process that dies closes its link, so every waiting process gets `PeerLost` at once instead of hanging.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import os
import secrets
import selectors
import socket
import struct
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from resolute.errors import FailedPrecondition, InvalidInput, ResoluteError, Unavailable
from resolute.task_info import ProcessPlace, TaskInfo, environment

logger = logging.getLogger("resolute.core.distributed")

T = TypeVar("T")

JOIN_TIMEOUT_S = 300.0
"""Time that ranks wait for each other at the start. Imports of large frameworks differ by minutes on cold disks."""
HELLO_TIMEOUT_S = 10.0
MAX_MESSAGE_BYTES = 256 * 1024 * 1024
PORTS_TRIED = 8
_LENGTH = struct.Struct("!Q")
_NONCE_BYTES = 16
_PROOF_BYTES = 32


class PeerLost(ResoluteError):
    """Another process of the job has ended or cannot be reached; this one cannot continue either."""


class DistributedContext:
    """One process's view of its job: its place in it, and collectives that all ranks must call in the same order.

    Values are what JSON can carry (tuples arrive as lists). `rank` counts over all processes, `local_*` over those of
    this machine, `cross_*` over machines. All numbers or none are given; with none, the process is alone.
    """

    def __init__(
        self,
        *,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        local_size: int = 1,
        cross_rank: int = 0,
        cross_size: int = 1,
        chief_ip: str | None = None,
        ports: Sequence[int] = (),
        key: str = "",
        join_timeout_s: float = JOIN_TIMEOUT_S,
    ) -> None:
        if not 0 <= rank < size:
            raise InvalidInput(f"rank is {rank} in a job of {size} processes; it must be between 0 and {size - 1}")
        if not 0 <= local_rank < local_size:
            raise InvalidInput(f"local_rank is {local_rank} of {local_size} local processes")
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size
        self.cross_rank = cross_rank
        self.cross_size = cross_size
        self.chief_ip = chief_ip or "127.0.0.1"
        self._serial = 0
        self._star: _Star | None = None
        if size > 1:
            if not key:
                raise InvalidInput("a job of several processes needs a secret key")
            candidates = tuple(ports) or derived_ports(key)
            secret = hashlib.sha256(b"resolute-gang:" + key.encode()).digest()
            host = self.chief_ip
            self._star = (
                _listen(size, candidates, secret, join_timeout_s)
                if rank == 0
                else _connect(rank, host, candidates, secret, join_timeout_s)
            )
            _CLOSE_IN_FORKS.add(self._star)

    @classmethod
    def alone(cls) -> DistributedContext:
        return cls()

    @classmethod
    def from_place(cls, place: ProcessPlace, key: str) -> DistributedContext:
        """The ranks that a launcher gave this process."""
        key = key or place.gang_token
        return cls(
            rank=place.rank,
            size=place.size,
            local_rank=place.local_rank,
            local_size=place.local_size,
            cross_rank=place.cross_rank,
            cross_size=place.cross_size,
            chief_ip=place.chief_address,
            ports=_ports(place.comm_port, key),
            key=key,
        )

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> DistributedContext:
        """The ranks that torchrun gave this process in its environment variables."""
        environ = environment()
        place = ProcessPlace.from_env(environ)
        if place is None:
            raise InvalidInput("RANK and WORLD_SIZE are not set; start the script with torchrun or process_per_slot")
        info = TaskInfo.from_env(environ)
        key = info.allocation_id if info is not None else place.gang_token
        return cls(
            rank=place.rank,
            size=place.size,
            local_rank=place.local_rank,
            local_size=place.local_size,
            cross_rank=place.cross_rank,
            cross_size=place.cross_size,
            chief_ip=chief_ip or place.chief_address,
            ports=_ports(place.comm_port, key),
            key=key,
        )

    @classmethod
    def one_per_container(cls, info: TaskInfo) -> DistributedContext:
        """One process in each container of the gang: what a plain entrypoint is."""
        gang = info.rendezvous()
        count = len(gang.container_addrs)
        return cls(
            rank=gang.container_rank,
            size=count,
            cross_rank=gang.container_rank,
            cross_size=count,
            chief_ip=gang.container_addrs[0],
            ports=_ports(info.comm_port, info.allocation_id),
            key=info.allocation_id,
        )

    def get_rank(self) -> int:
        return self.rank

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_size(self) -> int:
        return self.size

    def get_num_agents(self) -> int:
        return self.cross_size

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value, in the order of ranks, at the chief; None elsewhere."""
        result = self.allgather(value)
        return result if self.rank == 0 else None

    def allgather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks, on every rank."""
        if self._star is None:
            return [value]
        serial = self._next()
        if self.rank == 0:
            collected = self._star.collect(serial, "allgather")
            values: list[T] = [value, *(collected[rank] for rank in range(1, self.size))]
            self._star.send_all(serial, "allgather", values)
            return values
        self._star.send_all(serial, "allgather", value)
        received: list[T] = self._star.collect(serial, "allgather")[0]
        return received

    def broadcast(self, value: T) -> T:
        """The chief's value on every rank."""
        if self._star is None:
            return value
        serial = self._next()
        if self.rank == 0:
            self._star.forget_markers(serial)
            self._star.send_all(serial, "broadcast", value)
            return value
        # Not awaited: it lets a chief detect a rank that makes a different call.
        self._star.send_all(serial, "broadcast", None)
        received: T = self._star.collect(serial, "broadcast")[0]
        return received

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self.allgather(None)

    def allgather_local(self, value: T) -> list[T]:
        """The values of the ranks of this machine. Every rank of the job must call it."""
        everyone = self.allgather({"cross": self.cross_rank, "value": value})
        return [entry["value"] for entry in everyone if entry["cross"] == self.cross_rank]  # type: ignore[misc]

    def gather_local(self, value: Any) -> list[Any] | None:
        result = self.allgather_local(value)
        return result if self.local_rank == 0 else None

    def broadcast_local(self, value: Any = None) -> Any:
        """The value of the local chief on every rank of this machine. Every rank of the job must call it."""
        return self.allgather_local(value)[0]

    def close(self) -> None:
        if self._star is not None:
            self._star.close()

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def derived_ports(key: str) -> tuple[int, ...]:
    """Ports that every process of a gang computes alike, so that gangs on one host rarely collide. If two do, the proof of the
    key fails and the next port is tried.
    """
    digest = hashlib.sha256(b"resolute-port:" + key.encode()).digest()
    return tuple(20_000 + int.from_bytes(digest[2 * n : 2 * n + 2]) % 12_000 for n in range(PORTS_TRIED))


def _ports(preferred: int | None, key: str) -> tuple[int, ...]:
    derived = derived_ports(key)
    return derived if preferred is None else (preferred, *derived)


class _Link:
    """One TCP connection that carries length-prefixed JSON messages."""

    def __init__(self, sock: socket.socket, rank: int) -> None:
        self.sock = sock
        self.rank = rank
        self._received = bytearray()
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_dead_hosts(sock)

    def send(self, message: Any) -> None:
        try:
            body = json.dumps(message).encode()
        except TypeError as error:
            raise InvalidInput(
                f"only values that JSON can carry travel between ranks: {error}; convert tensors with .tolist()"
            ) from None
        if len(body) > MAX_MESSAGE_BYTES:
            raise InvalidInput(f"a message of {len(body)} bytes between ranks is over the limit of {MAX_MESSAGE_BYTES}")
        try:
            self.sock.sendall(_LENGTH.pack(len(body)) + body)
        except OSError as error:
            raise PeerLost(f"rank {self.rank} cannot be reached any more ({error})") from None

    def receive_some(self) -> bool:
        """Read what has arrived. False when the other side has closed the link."""
        try:
            data = self.sock.recv(1 << 20)
        except OSError:
            return False
        self._received += data
        return bool(data)

    def receive_waiting(self) -> None:
        """Read what is here already, without waiting; an ended link is detected when it is needed."""
        try:
            while data := self.sock.recv(1 << 16, socket.MSG_DONTWAIT):
                self._received += data
        except OSError:
            pass

    def first_serial(self) -> float:
        """The serial number of the first whole message; infinite when there is none."""
        kept = bytes(self._received)
        complete, message = self.next_message()
        self._received[:] = kept
        return message["serial"] if complete else math.inf

    def next_message(self) -> tuple[bool, Any]:
        """(True, message) when one is complete."""
        if len(self._received) < _LENGTH.size:
            return False, None
        (length,) = _LENGTH.unpack_from(self._received)
        if length > MAX_MESSAGE_BYTES:
            raise PeerLost(f"rank {self.rank} sent a message of {length} bytes, over the limit of {MAX_MESSAGE_BYTES}")
        end = _LENGTH.size + length
        if len(self._received) < end:
            return False, None
        message = json.loads(bytes(self._received[_LENGTH.size : end]))
        del self._received[:end]
        return True, message


class _Star:
    """The links of one process: all workers at the chief, the chief alone at a worker."""

    def __init__(self, links: Mapping[int, _Link]) -> None:
        self._links = dict(sorted(links.items()))
        self._closed = False

    def send_all(self, serial: int, kind: str, value: Any) -> None:
        self._require_open()
        for link in self._links.values():
            try:
                link.send({"serial": serial, "kind": kind, "value": value})
            except PeerLost:
                self.close()  # so that all other ranks detect it at once
                raise

    def collect(self, serial: int, kind: str) -> dict[int, Any]:
        """One message of every link. Raises `PeerLost` when a link ends first."""
        self._require_open()
        values: dict[int, Any] = {}
        try:
            with selectors.DefaultSelector() as selector:
                for link in self._links.values():
                    selector.register(link.sock, selectors.EVENT_READ, link)
                self._take_complete(values, serial, kind, selector)
                while len(values) < len(self._links):
                    for key, _ in selector.select():
                        link = key.data
                        if not link.receive_some():
                            missing = sorted(set(self._links) - set(values))
                            raise PeerLost(f"rank {link.rank} has ended; waited for ranks {missing} in {kind}")
                    self._take_complete(values, serial, kind, selector)
        except ResoluteError:
            self.close()
            raise
        return values

    def forget_markers(self, serial: int) -> None:
        """Drop the workers' answers to earlier broadcasts, which would fill the links of a program that only broadcasts."""
        self._require_open()
        for link in self._links.values():
            link.receive_waiting()
            while link.first_serial() < serial:
                link.next_message()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for link in self._links.values():
            try:
                link.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side closed first
            link.sock.close()

    def drop_in_fork(self) -> None:
        """In a forked child: give up the copies, or the links would outlive the process they belong to."""
        for link in self._links.values():
            link.sock.close()

    def _take_complete(self, values: dict[int, Any], serial: int, kind: str, selector: selectors.BaseSelector) -> None:
        for rank, link in self._links.items():
            if rank in values:
                continue
            complete, message = link.next_message()
            while complete and message["kind"] == "broadcast" and message["serial"] < serial:
                complete, message = link.next_message()
            if not complete:
                continue
            if message["serial"] != serial or message["kind"] != kind:
                raise FailedPrecondition(
                    f"ranks are out of step: this one is in its {kind} number {serial}, rank {rank} in its "
                    f"{message['kind']} number {message['serial']}; all ranks must make the same calls in order"
                )
            values[rank] = message["value"]
            selector.unregister(link.sock)  # a peer that is done with this round may leave without harm to it

    def _require_open(self) -> None:
        if self._closed:
            raise PeerLost("the links between the ranks are closed")


_CLOSE_IN_FORKS: weakref.WeakSet[_Star] = weakref.WeakSet()


def _drop_links_in_child() -> None:
    for star in list(_CLOSE_IN_FORKS):
        star.drop_in_fork()


# Data loader workers are forks: with a copy of the sockets they would keep a dead rank's links open.
os.register_at_fork(after_in_child=_drop_links_in_child)


def _notice_dead_hosts(sock: socket.socket) -> None:
    """Probe an idle link, so that a vanished machine is detected within seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
        number = getattr(socket, option, None)
        if number is not None:
            sock.setsockopt(socket.IPPROTO_TCP, number, value)


def _listen(size: int, ports: Sequence[int], secret: bytes, timeout_s: float) -> _Star:
    server = _bind(ports)
    deadline = time.monotonic() + timeout_s
    links: dict[int, _Link] = {}
    try:
        while len(links) < size - 1:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                sock, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, size)) - set(links))
                raise Unavailable(f"ranks {missing} did not join the chief within {timeout_s:.0f} s") from None
            rank = _admit(sock, size, secret)
            if rank is None:
                sock.close()
            else:
                if rank in links:  # it started again before we were complete
                    links[rank].sock.close()
                links[rank] = _Link(sock, rank)
    finally:
        server.close()
    return _Star(links)


def _bind(ports: Sequence[int]) -> socket.socket:
    problems = []
    for port in ports:
        server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", port))
            server.listen(128)
            return server
        except OSError as error:
            problems.append(f"{port}: {error.strerror}")
            server.close()
    raise Unavailable(f"no port for the processes of this job to meet on is free ({'; '.join(problems)})")


def _admit(sock: socket.socket, size: int, secret: bytes) -> int | None:
    """The rank of a process that proves that it has the key; otherwise None."""
    try:
        sock.settimeout(HELLO_TIMEOUT_S)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(nonce)
        hello = _receive_exactly(sock, _NONCE_BYTES + 4 + _PROOF_BYTES)
        theirs, rank_bytes = hello[:_NONCE_BYTES], hello[_NONCE_BYTES : _NONCE_BYTES + 4]
        if not hmac.compare_digest(hello[_NONCE_BYTES + 4 :], _proof(secret, b"worker", nonce + theirs + rank_bytes)):
            return None
        rank = int.from_bytes(rank_bytes)
        if not 1 <= rank < size:
            return None
        sock.sendall(_proof(secret, b"chief", theirs + nonce))
        return rank
    except OSError:
        return None


def _connect(rank: int, host: str, ports: Sequence[int], secret: bytes, timeout_s: float) -> _Star:
    deadline = time.monotonic() + timeout_s
    wait_s = 0.05
    while True:
        for port in ports:
            sock = _try_port(rank, host, port, secret)
            if sock is not None:
                return _Star({0: _Link(sock, 0)})
        if time.monotonic() >= deadline:
            raise Unavailable(
                f"rank {rank} did not find its chief at {host} (ports {list(ports)}) within {timeout_s:.0f} s"
            )
        time.sleep(wait_s)
        wait_s = min(1.0, wait_s * 1.5)


def _try_port(rank: int, host: str, port: int, secret: bytes) -> socket.socket | None:
    sock: socket.socket | None = None
    try:
        sock = socket.create_connection((host, port), timeout=HELLO_TIMEOUT_S)
        theirs = _receive_exactly(sock, _NONCE_BYTES)
        nonce, rank_bytes = secrets.token_bytes(_NONCE_BYTES), rank.to_bytes(4)
        sock.sendall(nonce + rank_bytes + _proof(secret, b"worker", theirs + nonce + rank_bytes))
        answer = _receive_exactly(sock, _PROOF_BYTES)
        if hmac.compare_digest(answer, _proof(secret, b"chief", nonce + theirs)):
            return sock
    except OSError:
        pass  # not there yet, or another program's port
    if sock is not None:
        sock.close()
    return None


def _proof(secret: bytes, side: bytes, message: bytes) -> bytes:
    return hmac.digest(secret, side + message, "sha256")


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        if not chunk:
            raise ConnectionError("closed during the greeting")
        data += chunk
    return data
