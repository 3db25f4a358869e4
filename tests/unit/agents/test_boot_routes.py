"""What a machine that boots is served, and what it may say before its agent can."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from resolute.clock import FixedClock
from resolute.providers import NOTICE_SOURCES
from resolute_master.agents.booting import TOKEN_HEADER, add_boot_routes
from resolute_master.agents.hub import AgentHub
from resolute_master.agents.wheel import WheelCache, agent_wheel
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Intent, Market, Offer, PoolScaling
from support.cluster import T0
from support.engines import DEFAULT, a_user, an_engine, an_experiment, launched, running
from support.hubs import a_hub

OFFER = Offer(offer_id="o", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=2, price_per_hour=1.0)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool="default", offers=(OFFER,), max_instances=1))}
VERSION = "1.2.3"


class Doors:
    def __init__(self, engine: Engine, hub: AgentHub, client: TestClient[web.Request, web.Application]) -> None:
        self.engine, self.hub, self.client = engine, hub, client
        (self.launched,) = engine.state.all(Instance)

    @property
    def instance(self) -> Instance:
        found = self.engine.state.get(Instance, self.launched.id)
        assert found is not None
        return found

    async def report(self, text: str, *, token: str | None = None, stage: str = "wheel") -> int:
        given = self.hub.join_token(self.launched.id) if token is None else token
        path = f"/agents/boot/{self.launched.id}?stage={stage}"
        async with self.client.post(path, data=text.encode(), headers={TOKEN_HEADER: given}) as answer:
            return answer.status

    def boot_failures(self) -> int:
        return sum(known.belief.consecutive_boot_failures for known in self.engine.state.all(PoolBelief))


@asynccontextmanager
async def doors() -> AsyncIterator[Doors]:
    store, clock = MemoryStore(), FixedClock(T0)
    async with (
        running(an_engine(store, pools=POOLS, clock=clock)) as engine,
        a_hub(engine, store, clock) as hub,
    ):
        await an_experiment(engine, await a_user(engine))
        (machine,) = engine.state.all(Instance)
        await launched(engine, machine, T0)
        app = web.Application()
        add_boot_routes(app, hub, WheelCache(VERSION))
        async with TestClient(TestServer(app)) as client:
            yield Doors(engine, hub, client)


async def test_a_boot_that_failed_ends_the_machine_and_is_learnt_of_its_offer() -> None:
    async with doors() as at:
        assert (
            await at.report("machine i-1\nno disk\nresolute: the startup script failed\n", stage="startup_script")
            == 204
        )
        assert at.instance.intent is Intent.STOP
        assert at.instance.stop_reason == (
            "its boot failed (startup_script): machine i-1 | no disk | resolute: the startup script failed"
        )
        assert at.boot_failures() == 1


async def test_a_report_without_the_machines_token_changes_nothing() -> None:
    async with doors() as at:
        for token in ("", "guessed", at.hub.join_token("another")):
            assert await at.report("x", token=token) == 403
        assert at.instance.intent is Intent.RUN and at.boot_failures() == 0


async def test_a_report_may_come_again_and_be_long() -> None:
    async with doors() as at:
        assert await at.report("x" * 100_000, stage="y" * 1000) == 204
        assert len(at.instance.stop_reason) < 1200
        assert await at.report("again") == 403  # the machine is given up: its token is good for nothing
        assert at.boot_failures() == 1


async def test_everybody_may_fetch_the_wheel_and_nothing_else() -> None:
    async with doors() as at:
        wheel = agent_wheel(VERSION)
        async with at.client.get(f"/agents/wheels/{wheel.name}") as answer:
            assert (answer.status, answer.content_type) == (200, "application/zip")
            assert hashlib.sha256(await answer.read()).hexdigest() == wheel.reference.sha256
        for name in ("resolute_ml-0-py3-none-any.whl", "..%2f..%2fetc%2fpasswd"):
            async with at.client.get(f"/agents/wheels/{name}") as answer:
                assert answer.status == 404


def test_equal_installations_make_equal_wheels() -> None:
    assert agent_wheel(VERSION) == agent_wheel(VERSION)
    assert agent_wheel("1.2.4").reference != agent_wheel(VERSION).reference


def test_the_wheel_is_one_and_runs_an_agent_by_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(agent_wheel(VERSION).data)) as archive:
        names = archive.namelist()
        assert not any("__pycache__" in name for name in names)
        assert {name.partition("/")[0] for name in names} == {
            "resolute",
            "resolute_agent",
            "resolute_provisioner",
            f"resolute_ml-{VERSION}.dist-info",
        }
        record = archive.read(f"resolute_ml-{VERSION}.dist-info/RECORD").decode().splitlines()
        assert len([name for name in names if name.startswith("resolute_provisioner/")]) < 10
        assert sorted(line.partition(",")[0] for line in record) == sorted(names)
        assert "Provides-Extra: agent" in archive.read(f"resolute_ml-{VERSION}.dist-info/METADATA").decode()
        archive.extractall(tmp_path)
    # With the installed packages, and without what an editable installation adds to them: a machine has no more.
    program = (
        f"import sys; sys.path += [{sysconfig.get_path('purelib')!r}]\n"
        "import resolute_agent.main as m; print(m.__file__)\n"
        "from resolute.clock import SystemClock; from resolute.providers import NOTICE_SOURCES, part\n"
        "for provider in NOTICE_SOURCES.values():\n"
        "    opened = part(provider, 'notices', 'open_notices')(SystemClock())\n"
        "    print(sys.modules[type(opened).__module__].__file__)\n"
    )
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    files = told.stdout.splitlines()
    assert len(files) == 1 + len(NOTICE_SOURCES) and all(file.startswith(str(tmp_path)) for file in files)
