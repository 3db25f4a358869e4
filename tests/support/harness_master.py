"""A small master over real HTTP for tests of the harness. It implements the contract of the in-container calls.

Metrics are keyed and fenced, checkpoints are fenced by allocation, preemption and rendezvous are long polls. The test controls the
`FakeMaster` object: it reads the stored data, preempts, and stops the master.
"""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.ports import free_port

TOKEN = "task-token"


class Refusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass
class Stored:
    """Data that the master has received."""

    metrics: dict[tuple[int, int, str, int], dict[str, Any]] = field(default_factory=dict)
    batches: dict[tuple[int, int, str, int], list[dict[str, Any]]] = field(default_factory=dict)
    metric_posts: int = 0
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    marks: list[dict[str, Any]] = field(default_factory=list)
    progress: list[float] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    early_exits: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    length: int = 0
    """The length that the search gives a trial once."""
    more_lengths: list[int] = field(default_factory=list)
    """The following lengths, in order."""
    lengths_completed: list[int] = field(default_factory=list)
    completed: list[Any] = field(default_factory=list)
    accelerators: list[dict[str, Any]] = field(default_factory=list)
    runs_started: list[int] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Kinds of reports in the order of storage: metrics, checkpoint, ack."""


class FakeMaster:
    """Start it, give tasks its `url`, read `stored`, and call its control methods."""

    def __init__(self) -> None:
        self.stored = Stored()
        self.contexts: dict[str, str] = {}
        self.gangs: dict[str, dict[str, tuple[str, int]]] = {}
        """allocation id -> resources id -> (address, slots), chief first"""
        self.current_run: dict[int, int] = {}
        self.live_allocations: set[str] | None = None
        """None: every allocation may report checkpoints"""
        self._arrived: dict[str, set[str]] = {}
        self._signals: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._fail_next: list[int] = []
        self._server: _Server | None = None
        self._port = free_port()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------------ levers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> FakeMaster:
        self._server = _Server(("127.0.0.1", self._port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def stop(self) -> None:
        """Closes the port and every connection, like a killed master. `start` opens the same port again."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        server.shutdown()
        server.close_connections()
        with self._changed:
            self._changed.notify_all()
        thread.join()
        server.server_close()

    def fail_next(self, *statuses: int) -> None:
        """Answers the next requests with these statuses without storing anything; 429 with `Retry-After: 1`."""
        self._fail_next += statuses

    def preempt(self, allocation_id: str, *, reason: str = "", notice: Mapping[str, Any] | None = None) -> None:
        self._signal(allocation_id, {"preempt": True, "reason": reason, "notice": notice})

    def notice(self, allocation_id: str, notice: Mapping[str, Any]) -> None:
        """A notice that does not preempt."""
        self._signal(allocation_id, {"preempt": False, "reason": "", "notice": notice})

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            # Periodic checks instead of one at every change keep the master fast for its tasks.
            with self._changed:
                if condition():
                    return
            assert time.monotonic() < deadline, f"not within {timeout_s} s"
            time.sleep(0.02)

    def metrics(self, trial: int, group: str) -> dict[int, dict[str, Any]]:
        """step -> metrics of the newest run that reported the step, without what newer runs archived."""
        found: dict[int, dict[str, Any]] = {}
        runs = sorted({key[1] for key in self.stored.metrics if key[0] == trial})
        for run in runs:
            mine = {key[3]: value for key, value in self.stored.metrics.items() if key[:3] == (trial, run, group)}
            if mine:
                found = {step: value for step, value in found.items() if step < min(mine)}
            found.update(mine)
        return found

    def _signal(self, allocation_id: str, answer: dict[str, Any]) -> None:
        with self._changed:
            self._signals[allocation_id] = answer
            self._changed.notify_all()

    # ----------------------------------------------------------------------------------------------------- requests

    def answer(self, verb: str, target: str, body: Any, server: _Server) -> Any:
        parts = urlsplit(target)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if self._fail_next:
            raise Refusal(self._fail_next.pop(0), "not now")
        for wanted, pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, parts.path)
            if match and wanted == verb:
                if handler in _LONG_POLLS:
                    return handler(self, *match.groups(), query=query, server=server)
                with self._changed:
                    result = handler(self, *match.groups(), body=body)
                    self._changed.notify_all()
                return result
        raise Refusal(404, f"route '{verb} {parts.path}' not found")

    def _metrics(self, trial: str, *, body: Any) -> Any:
        report, group = body["metrics"], body["group"]
        run, step = report["trialRunId"], report["stepsCompleted"]
        if run < self.current_run.get(int(trial), 0):
            raise Refusal(409, f"run {run} of trial {trial} has been superseded by run {self.current_run[int(trial)]}")
        self.current_run[int(trial)] = max(run, self.current_run.get(int(trial), 0))
        key = (int(trial), run, group, step)
        kept = self.stored.metrics.setdefault(key, {})
        for name, value in report["metrics"]["avgMetrics"].items():
            if name in kept and kept[name] != value:
                raise Refusal(400, f"metric {name} of step {step} is already stored with another value")
            kept[name] = value
        if "batchMetrics" in report["metrics"]:
            self.stored.batches[key] = report["metrics"]["batchMetrics"]
        self.stored.metric_posts += 1
        self.stored.order.append("metrics")
        return {}

    def _progress(self, trial: str, *, body: Any) -> Any:
        assert body["is_raw"] is True
        self.stored.progress.append(body["progress"])
        return {}

    def _operation(self, trial: str, *, body: Any) -> Any:
        length, done = str(self.stored.length), self.stored.length in self.stored.lengths_completed
        return {"op": {"validateAfter": {"length": length}}, "completed": done}

    def _complete_operation(self, trial: str, *, body: Any) -> Any:
        assert body["op"]["length"] == str(self.stored.length)
        self.stored.completed.append(body["searcherMetric"])
        self.stored.lengths_completed.append(self.stored.length)
        if self.stored.more_lengths:
            self.stored.length = self.stored.more_lengths.pop(0)
        return {}

    def _early_exit(self, trial: str, *, body: Any) -> Any:
        self.stored.early_exits.append(body["reason"])
        return {}

    def _status(self, trial: str, *, body: Any) -> Any:
        self.stored.statuses.append(body["state"])
        return {}

    def _run_start(self, *, body: Any) -> Any:
        self.stored.runs_started.append(body["runId"])
        return {"storageId": 7}

    def _checkpoint(self, *, body: Any) -> Any:
        if self.live_allocations is not None and body["allocationId"] not in self.live_allocations:
            raise Refusal(409, f"allocation {body['allocationId']} has ended")
        assert body["state"] == "STATE_COMPLETED" and "steps_completed" in body["metadata"]
        assert all(isinstance(size, str) for size in body["resources"].values())
        self.stored.checkpoints[body["uuid"]] = body
        self.stored.order.append("checkpoint")
        return {}

    def _get_checkpoint(self, uuid: str, *, body: Any) -> Any:
        if uuid not in self.stored.checkpoints:
            raise Refusal(404, f"checkpoint '{uuid}' not found")
        return {"checkpoint": self.stored.checkpoints[uuid]}

    def _patch_checkpoints(self, *, body: Any) -> Any:
        for patch in body["checkpoints"]:
            known = self.stored.checkpoints[patch["uuid"]]
            known["resources"] = patch["resources"]["resources"]
            known["state"] = "STATE_PARTIALLY_DELETED" if known["resources"] else "STATE_DELETED"
        return {}

    def _trial_checkpoints(self, trial: str, *, body: Any) -> Any:
        return {"checkpoints": list(self.stored.checkpoints.values())}

    def _ack(self, allocation: str, *, body: Any) -> Any:
        self.stored.acknowledged.append(allocation)
        self.stored.order.append("ack")
        return {}

    def _marks(self, allocation: str, *, body: Any) -> Any:
        self.stored.marks += body["marks"]
        return {}

    def _accelerators(self, allocation: str, *, body: Any) -> Any:
        self.stored.accelerators.append(body["acceleratorData"])
        return {}

    def _context(self, task: str, *, body: Any) -> Any:
        return {"b64Tgz": self.contexts.get(task, "")}

    def _best(self, experiment: str, *, body: Any) -> Any:
        values = [
            value
            for (_, _, group, _), metrics in self.stored.metrics.items()
            if group == "validation"
            for value in metrics.values()
        ]
        if not values:
            raise Refusal(404, f"best validation of experiment '{experiment}' not found")
        return {"metric": min(values)}

    def _preemption(self, allocation: str, *, query: Mapping[str, str], server: _Server) -> Any:
        hold_s = float(query.get("timeout_seconds", 0))
        with self._changed:
            self._changed.wait_for(lambda: allocation in self._signals or server.closing, hold_s)
            return self._signals.get(allocation, {"preempt": False, "reason": "", "notice": None})

    def _rendezvous(self, allocation: str, resources: str, *, query: Mapping[str, str], server: _Server) -> Any:
        gang = self.gangs.get(allocation, {resources: ("127.0.0.1", 1)})
        if resources not in gang:
            raise Refusal(400, f"unknown resources id {resources}")
        with self._changed:
            arrived = self._arrived.setdefault(allocation, set())
            arrived.add(resources)
            self._changed.notify_all()
            self._changed.wait_for(lambda: arrived >= set(gang) or server.closing, 120.0)
            return {
                "rendezvousInfo": {
                    "addresses": [address for address, _ in gang.values()],
                    "slots": [slots for _, slots in gang.values()],
                    "rank": list(gang).index(resources),
                }
            }


_V1 = "/api/v1"
_ROUTES: list[tuple[str, str, Any]] = [
    ("POST", rf"{_V1}/trials/(\d+)/metrics", FakeMaster._metrics),
    ("POST", rf"{_V1}/trials/(\d+)/progress", FakeMaster._progress),
    ("GET", rf"{_V1}/trials/(\d+)/searcher/operation", FakeMaster._operation),
    ("POST", rf"{_V1}/trials/(\d+)/searcher/completed_operation", FakeMaster._complete_operation),
    ("POST", rf"{_V1}/trials/(\d+)/early_exit", FakeMaster._early_exit),
    ("POST", rf"{_V1}/trials/(\d+)/runner/metadata", FakeMaster._status),
    ("GET", rf"{_V1}/trials/(\d+)/checkpoints", FakeMaster._trial_checkpoints),
    ("POST", rf"{_V1}/runs/start", FakeMaster._run_start),
    ("POST", rf"{_V1}/checkpoints", FakeMaster._checkpoint),
    ("PATCH", rf"{_V1}/checkpoints", FakeMaster._patch_checkpoints),
    ("GET", rf"{_V1}/checkpoints/([\w-]+)", FakeMaster._get_checkpoint),
    ("GET", rf"{_V1}/experiments/(\d+)/searcher/best_searcher_validation_metric", FakeMaster._best),
    ("POST", rf"{_V1}/allocations/([\w.-]+)/signals/ack_preemption", FakeMaster._ack),
    ("GET", rf"{_V1}/allocations/([\w.-]+)/signals/preemption", FakeMaster._preemption),
    ("POST", rf"{_V1}/allocations/([\w.-]+)/step_marks", FakeMaster._marks),
    ("POST", rf"{_V1}/allocations/([\w.-]+)/acceleratorData", FakeMaster._accelerators),
    ("GET", rf"{_V1}/allocations/([\w.-]+)/resources/([\w-]+)/rendezvous", FakeMaster._rendezvous),
    ("GET", rf"{_V1}/tasks/([\w.-]+)/context_directory", FakeMaster._context),
]
_LONG_POLLS = (FakeMaster._preemption, FakeMaster._rendezvous)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        try:
            if self.headers.get("Grpc-Metadata-x-allocation-token") != f"Bearer {TOKEN}":
                raise Refusal(401, "invalid credentials")
            status, result = 200, self.server.master.answer(self.command, self.path, body, self.server)
        except Refusal as refusal:
            status, result = refusal.status, {"error": {"code": 2, "reason": "refused", "error": str(refusal)}}
        if self.server.closing:  # A killed master sends no responses.
            self.close_connection = True
            return
        data = json.dumps(result).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # The client has disconnected.

    do_GET = do_POST = do_PATCH = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], master: FakeMaster) -> None:
        super().__init__(address, _Handler)
        self.master = master
        self.closing = False
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        self.closing = True
        for request in list(self._open):
            try:
                request.shutdown(2)
            except OSError:
                pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores errors of dropped connections, which are part of the tests."""


def packed(files: Mapping[str, str]) -> str:
    """A context directory in the format of the master."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return base64.b64encode(buffer.getvalue()).decode()


def task_variables(
    master: FakeMaster,
    root: Path,
    *,
    run: int = 1,
    hparams: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    latest_checkpoint: str | None = None,
    steps_completed: int = 0,
    resources_id: str = "r0",
    slots: int = 1,
    entrypoint: Any = None,
    seed: int = 17,
) -> dict[str, str]:
    """The environment of one container of trial 5, as master and agent would prepare it without a private root."""
    full: dict[str, Any] = {
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(root / "shared")},
        "searcher": {"name": "single", "metric": "loss", "smaller_is_better": True},
        "entrypoint": entrypoint,
        **(config or {}),
    }
    variables = {
        "DET_MASTER": master.url,
        "DET_CLUSTER_ID": "cluster",
        "DET_AGENT_ID": "agent",
        "DET_CONTAINER_ID": resources_id,
        "DET_RESOURCES_ID": resources_id,
        "DET_RESOURCES_TYPE": "docker-container",
        "DET_SLOT_IDS": json.dumps(list(range(slots))),
        "DET_TASK_ID": "3.task",
        "DET_ALLOCATION_ID": f"3.task.{run}",
        "DET_SESSION_TOKEN": TOKEN,
        "DET_TASK_TYPE": "TRIAL",
        "DET_USER": "someone",
        "DET_TRIAL_ID": "5",
        "DET_EXPERIMENT_ID": "3",
        "DET_TRIAL_RUN_ID": str(run),
        "DET_TRIAL_SEED": str(seed),
        "DET_HPARAMS": json.dumps(dict(hparams or {})),
        "DET_EXPERIMENT_CONFIG": json.dumps(full),
        "DET_STEPS_COMPLETED": str(steps_completed),
        "DET_RUN_DIR": str(root / f"run-{run}-{resources_id}"),
        "DET_PRIVATE_ROOT": "0",
        # Private, as an agent creates it: concurrent tests have gangs of the same name, whose ranks would connect to each other.
        "INTER_TRAIN_PROCESS_COMM_PORT_1": str(20_000 + int(master.url.rpartition(":")[2]) % 12_000),
        "PATH": "/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
    }
    if latest_checkpoint is not None:
        variables["DET_LATEST_CHECKPOINT"] = latest_checkpoint
    Path(variables["DET_RUN_DIR"]).mkdir(parents=True, exist_ok=True)
    return variables
