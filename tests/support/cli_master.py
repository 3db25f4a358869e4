"""A small master over real HTTP for tests of the client and the command line: it serves the contract's shapes without scheduling.

`FakeMaster` contains the responses, which tests can change between calls. `requests` contains every request.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from resolute.errors import InvalidInput, NotFound, ResoluteError, Unauthenticated
from resolute.wire.codec import from_query, from_wire, to_wire
from resolute.wire.rest import extensions as ext
from resolute.wire.rest.agents import GetAgentsResponse
from resolute.wire.rest.auth import GetMeResponse, LoginRequest, LoginResponse, User
from resolute.wire.rest.checkpoints import (
    Checkpoint,
    GetCheckpointResponse,
    GetCheckpointsQuery,
    GetExperimentCheckpointsResponse,
)
from resolute.wire.rest.enums import (
    LaunchWarning,
    LogLevel,
    OrderBy,
    WireExperimentState,
    WireTaskState,
)
from resolute.wire.rest.experiment_changes import (
    CreateExperimentRequest,
    CreateExperimentResponse,
    GetModelDefResponse,
    PatchExperiment,
    PatchExperimentResponse,
    PutExperimentLabelResponse,
)
from resolute.wire.rest.experiments import (
    Experiment,
    GetExperimentResponse,
    GetExperimentsQuery,
    GetExperimentsResponse,
)
from resolute.wire.rest.info import Info
from resolute.wire.rest.jobs import GetJobsV2Response, RBACJob, UpdateJobQueueRequest
from resolute.wire.rest.logs import LogsQuery, TrialLogsResponse
from resolute.wire.rest.master import GetMasterConfigResponse, GetMasterResponse, LogEntry, MasterLogsResponse
from resolute.wire.rest.paging import Pagination
from resolute.wire.rest.passwords import hash_password
from resolute.wire.rest.pools import GetResourcePoolsResponse, ResourcePool
from resolute.wire.rest.search import (
    PreviewHPSearchRequest,
    PreviewHPSearchResponse,
    SearchSummary,
    SearchUnit,
    TrialSummary,
)
from resolute.wire.rest.searching import GetSearchResponse, SearchedTrial
from resolute.wire.rest.tasks import GetTasksResponse
from resolute.wire.rest.trials import (
    GetExperimentTrialsResponse,
    GetTrialResponse,
    GetTrialWorkloadsResponse,
    Trial,
)
from resolute.wire.rest.users import GetUserByUsernameResponse, GetUsersResponse, PatchUser, PatchUserResponse
from resolute.wire.rest.why import ExplainJobResponse, GetPoolStartsResponse
from support.cli_messages import (
    CHECKPOINT_FILES,
    PASSWORD,
    START,
    a_job,
    a_ledger,
    a_pool,
    a_tar,
    a_timeline,
    a_trial,
    an_agent,
    an_allocation_summary,
    an_experiment,
    an_instance,
)

STATUS_OF: Mapping[type[ResoluteError], tuple[int, int]] = {
    InvalidInput: (400, 3),
    NotFound: (404, 5),
    Unauthenticated: (401, 16),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    token: str | None


@dataclass(slots=True, kw_only=True)
class FakeMaster:
    """The master's data. `url` is set while it runs."""

    url: str = ""
    passwords: dict[str, str] = field(default_factory=lambda: {"determined": hash_password(PASSWORD)})
    tokens: dict[str, str] = field(default_factory=dict)
    experiments: dict[int, Experiment] = field(default_factory=dict)
    trials: dict[int, Trial] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    checkpoint_archive: bytes = field(default_factory=lambda: a_tar(CHECKPOINT_FILES))
    logs: tuple[TrialLogsResponse, ...] = ()
    drop_logs_after: list[int] = field(default_factory=list)
    """The log stream is cut after these numbers of lines, once for each entry."""
    created: list[CreateExperimentRequest] = field(default_factory=list)
    warnings: tuple[LaunchWarning, ...] = ()
    jobs: tuple[RBACJob, ...] = field(default_factory=lambda: (RBACJob(full=a_job()),))
    pools: tuple[ResourcePool, ...] = field(default_factory=lambda: (a_pool(),))
    starts: GetPoolStartsResponse | None = None
    starts_errors: dict[str, ResoluteError] = field(default_factory=dict)
    """Starts by pool; overrides `starts`."""
    failures: list[int] = field(default_factory=list)
    """Statuses of the next API responses, in order."""
    requests: list[Request] = field(default_factory=list)
    on_get_experiment: Callable[[FakeMaster, int], None] | None = None

    def asked(self, method: str, pattern: str) -> list[Request]:
        """The requests with this method whose path matches."""
        return [one for one in self.requests if one.method == method and re.fullmatch(pattern, one.path)]


@contextmanager
def running(master: FakeMaster) -> Iterator[FakeMaster]:
    """Serves the master on a free local port."""
    handler = type("Handler", (_Handler,), {"master": master})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    master.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield master
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


Route = tuple[str, str, str]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    master: FakeMaster

    def log_message(self, format: str, *args: Any) -> None:
        """Suppresses the log: requests are recorded instead."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        path = unquote(parts.path)
        self.query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        self.body = json.loads(raw) if raw else {}
        request = Request(method=self.command, path=path, query=self.query, body=self.body, token=token)
        self.master.requests.append(request)
        try:
            self._route(path, token)
        except ResoluteError as error:
            status, code = STATUS_OF.get(type(error), (500, 13))
            self._json({"error": {"code": code, "reason": type(error).__name__, "error": str(error)}}, status)

    def _route(self, path: str, token: str | None) -> None:
        if path == "/info":
            self._json(Info(version="0.1.0", master_id="m", cluster_id="c", cluster_name="test"))
            return
        if path.startswith("/api/v1/") and self.master.failures:
            self._json({"error": {"code": 14, "reason": "Unavailable", "error": "busy"}}, self.master.failures.pop(0))
            return
        if path != "/api/v1/auth/login" and token not in self.master.tokens:
            raise Unauthenticated("invalid credentials" if token else "token missing")
        for method, pattern, name in ROUTES:
            match = re.fullmatch(pattern, path)
            if match is not None and method == self.command:
                getattr(self, name)(*match.groups())
                return
        raise NotFound("route", f"{self.command} {path}")

    def _json(self, message: object, status: int = 200) -> None:
        self._bytes(json.dumps(to_wire(message)).encode(), "application/json", status)

    def _bytes(self, content: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, items: list[Any], drop_after: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index, item in enumerate(items):
            if index == drop_after:
                self.wfile.flush()
                self.close_connection = True
                return
            line = json.dumps({"result": to_wire(item)}, ensure_ascii=False).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    # ------------------------------------------------------------------------------------------------------- users

    def login(self) -> None:
        request = from_wire(LoginRequest, self.body)
        if self.master.passwords.get(request.username) != request.password or not request.is_hashed:
            raise Unauthenticated("invalid credentials")
        token = f"token-{len(self.master.tokens)}-{request.username}"
        self.master.tokens[token] = request.username
        self._json(LoginResponse(token=token, user=self._user(request.username)))

    def logout(self) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self.master.tokens.pop(token)
        self._json({})

    def _user(self, name: str) -> User:
        return User(active=True, admin=True, username=name, id=1 + sorted(self.master.passwords).index(name))

    def me(self) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        self._json(GetMeResponse(user=self._user(self.master.tokens[token])))

    def users(self) -> None:
        found = tuple(self._user(name) for name in sorted(self.master.passwords))
        self._json(GetUsersResponse(users=found, pagination=_page(len(found))))

    def user_by_name(self, name: str) -> None:
        if name not in self.master.passwords:
            raise NotFound("user", name)
        self._json(GetUserByUsernameResponse(user=self._user(name)))

    def patch_user(self, number: str) -> None:
        patch = from_wire(PatchUser, self.body)
        name = sorted(self.master.passwords)[int(number) - 1]
        if patch.password is not None:
            self.master.passwords[name] = patch.password
        self._json(PatchUserResponse(user=self._user(name)))

    # ------------------------------------------------------------------------------------------------- experiments

    def create(self) -> None:
        request = from_wire(CreateExperimentRequest, self.body)
        config = yaml.safe_load(request.config)
        if "searcher" not in config:
            raise InvalidInput("<config>.searcher: is a required property")
        self.master.created.append(request)
        number = 0 if request.validate_only else 1 + max(self.master.experiments, default=0)
        state = WireExperimentState.QUEUED if request.activate else WireExperimentState.PAUSED
        made = an_experiment(number, config=config, state=state, name=config.get("name", "unnamed"))
        if not request.validate_only:
            self.master.experiments[number] = made
            self.master.trials[number] = a_trial(number, number)
        self._json(CreateExperimentResponse(config=config, experiment=made, warnings=self.master.warnings))

    def list_experiments(self) -> None:
        query = from_query(GetExperimentsQuery, self.query)
        found = [
            one
            for one in self.master.experiments.values()
            if query.archived in (None, one.archived) and (not query.users or one.username in query.users)
        ]
        page = found[query.offset : query.offset + (query.limit or 100)]
        self._json(
            GetExperimentsResponse(
                experiments=tuple(page), pagination=_page(len(found), query.offset, query.offset + len(page))
            )
        )

    def _experiment(self, number: str) -> Experiment:
        if self.master.on_get_experiment is not None:
            self.master.on_get_experiment(self.master, int(number))
        if int(number) not in self.master.experiments:
            raise NotFound("experiment", number)
        return self.master.experiments[int(number)]

    def get_experiment(self, number: str) -> None:
        self._json(GetExperimentResponse(experiment=self._experiment(number)))

    def patch_experiment(self, number: str) -> None:
        patch = from_wire(PatchExperiment, self.body)
        made = self._experiment(number)
        if patch.name is not None:
            made = replace(made, name=patch.name)
        self.master.experiments[made.id] = made
        self._json(PatchExperimentResponse(experiment=made))

    def act(self, number: str, verb: str) -> None:
        self._experiment(number)
        self._json({})

    def delete_experiment(self, number: str) -> None:
        self._experiment(number)
        del self.master.experiments[int(number)]
        self._json({})

    def add_label(self, number: str, label: str) -> None:
        made = self._experiment(number)
        self.master.experiments[made.id] = replace(made, labels=(*made.labels, label))
        self._json(PutExperimentLabelResponse(labels=self.master.experiments[made.id].labels))

    def experiment_trials(self, number: str) -> None:
        self._experiment(number)
        found = tuple(trial for trial in self.master.trials.values() if trial.experiment_id == int(number))
        self._json(GetExperimentTrialsResponse(trials=found, pagination=_page(len(found))))

    def experiment_search(self, number: str) -> None:
        made = self._experiment(number)
        found = [trial.id for trial in self.master.trials.values() if trial.experiment_id == made.id]
        trials = tuple(
            SearchedTrial(trial_id=id_, number=index, state="training", reason="it trains")
            for index, id_ in enumerate(found)
        )
        self._json(GetSearchResponse(name="single", metric="loss", smaller_is_better=True, progress=0.5, trials=trials))

    def preview_search(self) -> None:
        request = from_wire(PreviewHPSearchRequest, self.body)
        unit = SearchUnit(name="batches", value=9, max_length=False)
        summary = SearchSummary(config=request.config["searcher"], trials=(TrialSummary(count=4, unit=unit),))
        self._json(PreviewHPSearchResponse(summary=summary))

    def experiment_checkpoints(self, number: str) -> None:
        query = from_query(GetCheckpointsQuery, self.query)
        found = [one for one in self.master.checkpoints if not query.states or one.state in query.states]
        page = found[: query.limit or None]
        self._json(GetExperimentCheckpointsResponse(checkpoints=tuple(page), pagination=_page(len(found))))

    def model_definition(self, number: str) -> None:
        self._json(GetModelDefResponse(b64_tgz=a_tar({"train.py": b"pass\n"})))

    # ------------------------------------------------------------------------------------------ trials, checkpoints

    def get_trial(self, number: str) -> None:
        if int(number) not in self.master.trials:
            raise NotFound("trial", number)
        self._json(GetTrialResponse(trial=self.master.trials[int(number)]))

    def kill_trial(self, number: str) -> None:
        self._json({})

    def workloads(self, number: str) -> None:
        found = a_timeline()
        self._json(GetTrialWorkloadsResponse(workloads=found, pagination=_page(len(found))))

    def trial_logs(self, number: str) -> None:
        query = from_query(LogsQuery, self.query)
        lines = [line for line in self.master.logs if not query.levels or line.level in query.levels]
        if query.order_by == OrderBy.DESC:
            lines.reverse()
        drop = self.master.drop_logs_after.pop(0) if self.master.drop_logs_after else None
        self._stream(lines[: query.limit or None], drop)

    def trial_allocations(self, number: str) -> None:
        made = ext.TrialAllocation(
            allocation_id="1.task.1",
            state=WireTaskState.RUNNING,
            agent_ids=("agent-1",),
            slots=1,
            start_time=START,
            steps_at_start=0,
        )
        self._json(ext.GetTrialAllocationsResponse(allocations=(made,)))

    def get_checkpoint(self, uuid: str) -> None:
        for checkpoint in self.master.checkpoints:
            if checkpoint.uuid == uuid:
                self._json(GetCheckpointResponse(checkpoint=checkpoint))
                return
        raise NotFound("checkpoint", uuid)

    def download_checkpoint(self, uuid: str) -> None:
        self._bytes(self.master.checkpoint_archive, "application/gzip")

    def delete_checkpoints(self) -> None:
        self._json({})

    # ----------------------------------------------------------------------------------------------------- cluster

    def master_info(self) -> None:
        self._json(
            GetMasterResponse(
                cluster_id="c",
                cluster_name="test",
                has_custom_logo=False,
                master_id="m",
                strict_job_queue_control=False,
                version="0.1.0",
            )
        )

    def master_config(self) -> None:
        self._json(GetMasterConfigResponse(config={"port": 8080, "security": {"initial_user_password": "********"}}))

    def master_logs(self) -> None:
        entry = LogEntry(
            id=1,
            level=LogLevel.INFO,
            message="api: it failed\nTraceback",
            timestamp=START,
            logger="api",
            fields={"request_id": "r1", "user": "ada"},
        )
        self._stream([MasterLogsResponse(log_entry=entry)])

    def agents(self) -> None:
        self._json(GetAgentsResponse(agents=(an_agent(),)))

    def agent_action(self, agent: str, verb: str) -> None:
        self._json({"agent": None})

    def slot_action(self, agent: str, slot: str, verb: str) -> None:
        self._json({"slot": None})

    def tasks(self) -> None:
        task = an_allocation_summary()
        self._json(GetTasksResponse(allocation_id_to_summary={"1.task.1": task}))

    def pools(self) -> None:
        self._json(GetResourcePoolsResponse(resource_pools=self.master.pools))

    def list_jobs(self) -> None:
        self._json(GetJobsV2Response(jobs=self.master.jobs, pagination=_page(len(self.master.jobs))))

    def update_jobs(self) -> None:
        from_wire(UpdateJobQueueRequest, self.body)
        self._json({})

    def explain(self, job: str) -> None:
        self._json(
            ExplainJobResponse(
                job_id=job, state="QUEUED", reason="a machine is starting", details=("local-2 joins in 3 s",)
            )
        )

    def starts(self, pool: str) -> None:
        """The response of an older master, unless the test sets another one."""
        if pool in self.master.starts_errors:
            raise self.master.starts_errors[pool]
        if self.master.starts is None:
            raise NotFound("route", self.path)
        self._json(self.master.starts)

    def snapshot(self, pool: str) -> None:
        self._json({"version": 1, "pool": pool, "agents": {"a1": 8}, "tasks": {"t1": {"slots": 4}}})

    def instances(self) -> None:
        self._json(ext.GetInstancesResponse(instances=(an_instance(),)))

    def join_token(self) -> None:
        self._json(ext.AgentJoinTokenResponse(join_token="new" if self.path.endswith("/rotate") else "old"))

    def forget_agent(self, agent: str) -> None:
        self._json(ext.ForgetAgentResponse())

    def ledger(self) -> None:
        self._json(a_ledger())

    def decisions(self) -> None:
        made = ext.Decision(
            at=START, cycle=7, kind="launch", subject="local-1", reason="one gang waits", pool="default"
        )
        self._json(ext.GetDecisionsResponse(decisions=(made,)))


def _page(total: int, start: int = 0, end: int | None = None) -> Pagination:
    return Pagination(offset=start, limit=0, start_index=start, end_index=total if end is None else end, total=total)


def decoded_files(request: CreateExperimentRequest) -> dict[str, bytes]:
    """The uploaded files by path, directories left out."""
    return {file.path: file.content for file in request.model_definition if file.type == ord("0")}


ROUTES: tuple[Route, ...] = (
    ("POST", r"/api/v1/auth/login", "login"),
    ("POST", r"/api/v1/auth/logout", "logout"),
    ("GET", r"/api/v1/me", "me"),
    ("GET", r"/api/v1/users", "users"),
    ("GET", r"/api/v1/users/([^/]+)/by-username", "user_by_name"),
    ("PATCH", r"/api/v1/users/(\d+)", "patch_user"),
    ("POST", r"/api/v1/experiments", "create"),
    ("GET", r"/api/v1/experiments", "list_experiments"),
    ("GET", r"/api/v1/experiments/(\d+)", "get_experiment"),
    ("PATCH", r"/api/v1/experiments/(\d+)", "patch_experiment"),
    ("DELETE", r"/api/v1/experiments/(\d+)", "delete_experiment"),
    ("POST", r"/api/v1/experiments/(\d+)/(activate|pause|cancel|kill|archive|unarchive)", "act"),
    ("PUT", r"/api/v1/experiments/(\d+)/labels/(.+)", "add_label"),
    ("GET", r"/api/v1/experiments/(\d+)/trials", "experiment_trials"),
    ("GET", r"/api/v1/experiments/(\d+)/search", "experiment_search"),
    ("POST", r"/api/v1/preview-hp-search", "preview_search"),
    ("GET", r"/api/v1/experiments/(\d+)/checkpoints", "experiment_checkpoints"),
    ("GET", r"/api/v1/experiments/(\d+)/model_def", "model_definition"),
    ("GET", r"/api/v1/trials/(\d+)", "get_trial"),
    ("POST", r"/api/v1/trials/(\d+)/kill", "kill_trial"),
    ("GET", r"/api/v1/trials/(\d+)/workloads", "workloads"),
    ("GET", r"/api/v1/trials/(\d+)/logs", "trial_logs"),
    ("GET", r"/api/v1/trials/(\d+)/allocations", "trial_allocations"),
    ("GET", r"/api/v1/trials/(\d+)/checkpoints", "experiment_checkpoints"),
    ("GET", r"/api/v1/checkpoints/([^/]+)", "get_checkpoint"),
    ("DELETE", r"/api/v1/checkpoints", "delete_checkpoints"),
    ("GET", r"/checkpoints/([^/]+)", "download_checkpoint"),
    ("GET", r"/api/v1/master", "master_info"),
    ("GET", r"/api/v1/master/config", "master_config"),
    ("GET", r"/api/v1/master/logs", "master_logs"),
    ("GET", r"/api/v1/agents", "agents"),
    ("POST", r"/api/v1/agents/([^/]+)/(enable|disable)", "agent_action"),
    ("GET", r"/api/v1/agent-join-token", "join_token"),
    ("POST", r"/api/v1/agent-join-token/rotate", "join_token"),
    ("POST", r"/api/v1/agents/([^/]+)/forget", "forget_agent"),
    ("POST", r"/api/v1/agents/([^/]+)/slots/(\d+)/(enable|disable)", "slot_action"),
    ("GET", r"/api/v1/tasks", "tasks"),
    ("GET", r"/api/v1/resource-pools", "pools"),
    ("GET", r"/api/v1/job-queues-v2", "list_jobs"),
    ("POST", r"/api/v1/job-queues", "update_jobs"),
    ("GET", r"/api/v1/jobs/([^/]+)/explain", "explain"),
    ("GET", r"/api/v1/resource-pools/([^/]+)/starts", "starts"),
    ("GET", r"/api/v1/resource-pools/([^/]+)/snapshot", "snapshot"),
    ("GET", r"/api/v1/instances", "instances"),
    ("GET", r"/api/v1/ledger", "ledger"),
    ("GET", r"/api/v1/decisions", "decisions"),
)
