"""The API and the pages of the cluster, and submissions through the API."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from aiohttp import web

from resolute import __version__
from resolute.ids import SystemIds
from resolute.wire.rest.experiment_changes import CreateExperimentRequest, File
from resolute.wire.rest.passwords import hash_password
from resolute_master.api.app import build_api
from resolute_master.api.auth.authenticate import Caller, Passwords, Tokens
from resolute_master.api.context import ApiContext
from resolute_master.api.http.application import add_routes
from resolute_master.api.http.call import Call
from resolute_master.api.queue.advice import PoolAdvices
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.api.submission.create_experiment import create_from
from resolute_master.domain.administration import CreateProject, CreateWorkspace, PutTemplate, SetBudget
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.ids import ExperimentId, PoolName, UserId
from resolute_master.domain.user import User
from resolute_master.pools.policies import catalogues
from resolute_master.seal.join_token import JoinToken
from resolute_sim.master import CLUSTER, JOIN_TOKEN
from resolute_sim.twin.advisor import ProcessAdvisor
from resolute_web.interface import Interface
from showcase.cluster import Cluster
from showcase.setting import TEAMS
from showcase.team import Submission

ADMINISTRATOR = "admin"

CODE = Path(__file__).resolve().parents[1] / "examples" / "digits_pytorch"
"""The context of every experiment."""

TEMPLATE = {"max_restarts": 3, "resources": {"resource_pool": "gpus", "slots_per_trial": 4}}


class Served:
    """The API of the cluster's master. `await set_up()` after its start; `submit` is a user's call."""

    def __init__(self, cluster: Cluster, log: LogRing) -> None:
        self._cluster = cluster
        engine = cluster.master.engine
        self._passwords = Passwords()
        self.api = ApiContext(
            engine=engine,
            store=cluster.master.store,
            reporting=cluster.master.reporting,
            clock=cluster.clock,
            ids=cluster.ids,
            config=cluster.config,
            tokens=Tokens(signing_key=SystemIds().uuid(), engine=engine, clock=cluster.clock),
            passwords=self._passwords,
            cluster_id=CLUSTER,
            master_id=SystemIds().uuid(),
            version=__version__,
            join_token=JoinToken(JOIN_TOKEN, kept=None),
            master_log=log,
            price_watches=cluster.master.price_watches,
            advices=PoolAdvices(advisor=ProcessAdvisor(os.environ), catalogues=catalogues(cluster.config)),
        )
        self._code = tuple(_file(path) for path in sorted(CODE.iterdir()) if path.is_file())

    async def set_up(self, password: str) -> None:
        """Creates users, workspaces with their projects and budgets, and a template. All users have the same password."""
        submit = self._cluster.master.engine.submit
        stored = await self._passwords.hash(hash_password(password))
        admin = UserId(await submit(CreateUser(username=ADMINISTRATOR, password_hash=stored, admin=True)))
        for team in TEAMS:
            owner = admin
            for person in team.people:
                owner = UserId(await submit(CreateUser(username=person, password_hash=stored)))
            workspace = int(
                await submit(CreateWorkspace(name=team.workspace, owner=owner, default_compute_pool=PoolName("gpus")))
            )
            for project in team.projects:
                await submit(CreateProject(workspace=workspace, name=project, owner=owner))
            if team.per_month is not None:
                budget = SetBudget(owner="workspace", name=str(workspace), per_day=None, per_month=team.per_month)
                await submit(budget)
        await submit(PutTemplate(name="four-gpus", config=TEMPLATE, owner=admin))

    async def submit(self, submission: Submission) -> ExperimentId:
        """Submits by the function behind the call, with all its checks."""
        user = next(each for each in self.api.engine.state.all(User) if each.username == submission.person)
        call = Call(self.api, cast(web.Request, None), Caller(user=user))
        request = CreateExperimentRequest(config=submission.text, model_definition=self._code, activate=True)
        answer = await create_from(call, request)
        return ExperimentId(answer.experiment.id)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serves HTTP. The loop must run in real time."""
        app, pages = build_api(self.api), Interface(self.api)

        async def close(_: web.Application) -> None:
            pages.close()

        app.on_shutdown.append(close)
        add_routes(app, pages.routes)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.api.config.host, self.api.config.port).start()
            yield
        finally:
            await runner.cleanup()


def _file(path: Path) -> File:
    mode = stat.S_IFREG | 0o644
    return File(path=path.name, content=path.read_bytes(), type=ord("0"), mode=mode, mtime=1_760_000_000, uid=0, gid=0)
