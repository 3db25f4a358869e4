"""The API over real sockets: the engine and its rules, a store in memory, a scripted agent."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import TestServer

from resolute.clock import Clock, SystemClock
from resolute.config import MasterConfig, parse_master_config
from resolute.ids import SeededIds
from resolute.wire.rest.passwords import hash_password
from resolute.wire.states import ContainerState
from resolute_master.api.app import build_api
from resolute_master.api.auth.authenticate import TASK_TOKEN_HEADER, Cost, Passwords, Tokens
from resolute_master.api.context import ApiContext
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import CreateUser, Reconsider
from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.engine.reporting import Reporting
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from support.engines import POOLS, AgentByHand, an_engine, running

KEY = "a signing key for tests, of 32 bytes or more"
FAST = Cost(log2_n=4)
"""Makes the slow password hash fast."""

PASSWORD = "correct horse"


class World:
    """One master's API. `call` sends as `token` (a user's) or as `task` (an allocation's)."""

    def __init__(self, context: ApiContext, server: TestServer, http: ClientSession) -> None:
        self.context = context
        self.engine = context.engine
        self.server = server
        self.http = http
        self.token = ""

    async def send(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, task: str = "", **options: Any
    ) -> ClientResponse:
        headers = dict(options.pop("headers", {}))
        bearer = self.token if token is None else token
        if task:
            headers[TASK_TOKEN_HEADER] = f"Bearer {task}"
        elif bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        data = None if body is None else io.BytesIO(json.dumps(body).encode())
        return await self.http.request(method, self.server.make_url(path), data=data, headers=headers, **options)

    async def call(self, method: str, path: str, body: Any = None, *, status: int = 200, **options: Any) -> Any:
        """The JSON of the response, which must have the expected status."""
        response = await self.send(method, path, body, **options)
        text = await response.text()
        assert response.status == status, f"{method} {path}: {response.status} {text}"
        return json.loads(text)

    async def get(self, path: str, **options: Any) -> Any:
        return await self.call("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self.call("POST", path, body, **options)

    async def error(self, method: str, path: str, body: Any = None, *, status: int, **options: Any) -> str:
        """The text of a refusal in the contract's body."""
        answer = await self.call(method, path, body, status=status, **options)
        text: str = answer["error"]["error"] if "error" in answer else answer["message"]
        return text

    async def lines(self, path: str, **options: Any) -> list[dict[str, Any]]:
        """Every line of a finite stream."""
        response = await self.send("GET", path, **options)
        assert response.status == 200, await response.text()
        assert response.headers.get("Transfer-Encoding") == "chunked"
        return [json.loads(line) for line in (await response.text()).splitlines()]

    async def login(self, name: str, password: str = PASSWORD) -> str:
        body = {"username": name, "password": hash_password(password), "isHashed": True}
        token: str = (await self.post("/api/v1/auth/login", body, token=""))["token"]
        return token

    # -- objects ---------------------------------------------------------------------------------------------

    async def create(self, config: Mapping[str, Any] | None = None, **request: Any) -> dict[str, Any]:
        body = {"config": json.dumps(config or a_config()), "activate": True, **request}
        experiment: dict[str, Any] = (await self.post("/api/v1/experiments", body))["experiment"]
        return experiment

    async def agent(self, name: str = "agent-1", *, slots: int = 2) -> AgentByHand:
        agent = AgentByHand(self.engine, name, slots=slots)
        await agent.register()
        return agent

    async def started(self, agent: AgentByHand, **config: Any) -> tuple[Trial, Allocation, str]:
        """An experiment whose trial runs on the agent; its trial, its allocation, and the token of its task."""
        experiment = await self.create(a_config(**config))
        (trial,) = self.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
        return await self.next_run(agent, trial)

    async def next_run(self, agent: AgentByHand, trial: Trial) -> tuple[Trial, Allocation, str]:
        """Starts pending containers of the trial."""
        await settled(self)
        for container in agent.containers():
            await agent.report(container, ContainerState.RUNNING)
        now = self.engine.state.get(Trial, trial.id)
        assert now is not None
        found = self.engine.state.find(Allocation, "allocations_of_task", now.task_id)
        (allocation,) = [a for a in found if not a.ended]
        return now, allocation, self.context.tokens.issue_allocation(allocation.id, self.owner_id)

    @property
    def owner_id(self) -> UserId:
        (user,) = [u for u in self.users() if u.username == "ada"]
        return user.id

    def users(self) -> tuple[User, ...]:
        return self.engine.state.all(User)


async def settled(world: World) -> None:
    """Runs one more cycle, so that new allocations are placed."""
    await world.engine.submit(Reconsider())


def a_config(**changes: Any) -> dict[str, Any]:
    return {
        "name": "an experiment",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
        **changes,
    }


def a_file(path: str, content: bytes = b"print()\n", **changes: Any) -> dict[str, Any]:
    """One uploaded file; a directory when `type` says so."""
    return {
        "path": path,
        "type": 48,
        "content": base64.b64encode(content).decode(),
        "mtime": "1700000000",
        "mode": 0o100644,
        "uid": 0,
        "gid": 0,
        **changes,
    }


def master_config(storage: Path, **changes: Any) -> MasterConfig:
    return parse_master_config(
        {"host": "127.0.0.1", "checkpoint_storage": {"type": "shared_fs", "host_path": str(storage)}, **changes}
    )


@asynccontextmanager
async def an_api(
    storage: Path,
    *,
    clock: Clock | None = None,
    pools: Mapping[PoolName, PoolPolicy] | None = None,
    config: Mapping[str, Any] | None = None,
    store: Store | None = None,
    application: Callable[[ApiContext], web.Application] = build_api,
    **context: Any,
) -> AsyncIterator[World]:
    """Users `root` (administrator), `ada` and `bob`; the world speaks as ada."""
    clock = clock or SystemClock()
    store = store or MemoryStore()
    engine = an_engine(store, clock=clock, pools=pools or POOLS)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(engine))
        ids = SeededIds(11)
        passwords = Passwords(ids, FAST)
        reporting = Reporting(store, engine)
        stack.push_async_callback(reporting.close)
        there = {user.username for user in engine.state.all(User)}  # In a store that another API has used before.
        for name in [each for each in ("root", "ada", "bob") if each not in there]:
            hashed = await passwords.hash(hash_password(PASSWORD))
            await engine.submit(CreateUser(username=name, password_hash=hashed, admin=name == "root"))
        given = ApiContext(
            engine=engine,
            store=store,
            reporting=reporting,
            clock=clock,
            ids=ids,
            config=master_config(storage, **(config or {})),
            tokens=Tokens(signing_key=KEY, engine=engine, clock=clock),
            passwords=passwords,
            cluster_id="cluster-1",
            master_id="master-1",
            version="1.2.3",
            join_token=JoinToken("the-token-of-the-cluster", kept=None),
            follow_grace_s=0.05,
        )
        server = TestServer(application(replace(given, **context)))
        await stack.enter_async_context(server)
        http = await stack.enter_async_context(ClientSession())
        world = World(given, server, http)
        world.token = await world.login("ada")
        yield world
