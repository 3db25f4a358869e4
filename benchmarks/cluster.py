"""A cluster for benchmarks: a real master process, one real agent process with artificial slots, and a minimal HTTP client."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.ports import free_port

PASSWORD = "correct horse"
READY_S = 60.0


class Client:
    """One keep-alive connection to the master, with little processor time of its own: a socket and JSON."""

    def __init__(self, port: int, token: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def connect(self) -> None:
        """Connects, so that measurements exclude the connect."""
        self._connection.connect()
        assert self._connection.sock is not None
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, verb: str, path: str, body: bytes | None = None) -> bytes:
        """The response's body. Raises `RuntimeError` with the body if the status is not 200."""
        self._connection.request(verb, path, body=body, headers=self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{verb} {path}: {answer.status} {content[:2000].decode(errors='replace')}")
        return content

    def get(self, path: str) -> Any:
        return json.loads(self.send("GET", path))

    def post(self, path: str, body: Any) -> Any:
        return self.call("POST", path, body)

    def call(self, verb: str, path: str, body: Any) -> Any:
        return json.loads(self.send(verb, path, json.dumps(body).encode()))

    def lines(self, trial: int) -> list[str]:
        """The present lines of a trial's log."""
        text = self.send("GET", f"/api/v1/trials/{trial}/logs").decode()
        return [json.loads(line)["result"]["log"] for line in text.splitlines() if line]

    def close(self) -> None:
        self._connection.close()


class Cluster:
    """All files are in `directory`; `close` ends both processes."""

    def __init__(self, directory: Path, *, slots: int, db: Mapping[str, Any] | None = None, **config: Any) -> None:
        self.directory = directory
        self.port = free_port()
        self.storage = directory / "checkpoints"
        self.storage.mkdir()
        self._config = {
            "host": "127.0.0.1",
            "port": self.port,
            "cluster_state_dir": str(directory / "state"),
            "security": {"initial_user_password": PASSWORD},
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(self.storage)},
            **({"db": dict(db)} if db else {}),
            **config,
        }
        self._slots = slots
        self.master: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        self._token = ""

    def configured(self) -> Path:
        """The master's configuration file. Programs that fill the store before the start read it."""
        config = self.directory / "master.yaml"
        config.write_text(yaml.safe_dump(self._config))
        return config

    def start(self) -> None:
        """Starts both processes, and returns when the agent is connected with its slots."""
        config = self.configured()
        self.master = self._spawn("master", ["-m", "resolute_master", "--config-file", str(config)])
        self._until("the master serves", self._serves)
        answer = self.client(login=False).post("/api/v1/auth/login", {"username": "determined", "password": PASSWORD})
        self._token = answer["token"]
        if self._slots:
            self.start_agent()

    def start_agent(self) -> None:
        settings = {
            "master_host": "127.0.0.1",
            "master_port": self.port,
            "agent_id": "bench",
            "slot_type": "none",
            "artificial_slots": self._slots,
            "state_dir": str(self.directory / "agent"),
            "join_token_file": str(self.directory / "state" / "join-token"),
        }
        config = self.directory / "agent.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.agent = self._spawn("agent", ["-m", "resolute_agent", "--config-file", str(config)])
        client = self.client()
        self._until("the agent is connected", lambda: bool(client.get("/api/v1/agents")["agents"]))
        client.close()

    def client(self, *, login: bool = True) -> Client:
        client = Client(self.port, self._token if login else "")
        client.connect()
        return client

    @property
    def token(self) -> str:
        """Token of the user `determined`."""
        return self._token

    def log(self, name: str) -> str:
        """Output of the master or the agent."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in (self.agent, self.master):
            if process is not None:
                process.terminate()
                process.wait(60)

    def _spawn(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def _until(self, what: str, holds: Any) -> None:
        end = time.monotonic() + READY_S
        while not holds():
            ended = any(process is not None and process.poll() is not None for process in (self.master, self.agent))
            if ended or time.monotonic() > end:
                said = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.directory.glob("*.log"))
                raise RuntimeError(f"{what}: not within {READY_S:.0f} s\n{said}")
            time.sleep(0.02)


@contextmanager
def cluster(*, slots: int, db: Mapping[str, Any] | None = None, **config: Any) -> Iterator[Cluster]:
    """A cluster in a new directory, which is removed with it."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="resolute-bench-", dir=disk())))
        running = Cluster(directory, slots=slots, db=db, **config)
        stack.callback(running.close)
        running.start()
        yield running


def experiment(entrypoint: list[str], **changes: Any) -> bytes:
    """The body of a `POST /experiments` of one trial without code."""
    config = {
        "name": "bench",
        "entrypoint": entrypoint,
        "searcher": {"name": "single", "metric": "loss", "max_length": 1},
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
        **changes,
    }
    return json.dumps({"config": yaml.safe_dump(config), "activate": True}).encode()


def disk() -> str | None:
    """Parent of new directories: `RESOLUTE_BENCH_DIR`, or the system's directory for temporary files."""
    return os.environ.get("RESOLUTE_BENCH_DIR")
