"""`det cost`, `det budget` and the limits against the real API."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from support.api import PASSWORD, World, a_config, an_api, settled
from support.cluster import T0
from support.engines import joined, launched
from support.paid_cluster import a_paid_pool

CONFIG: dict[str, Any] = {"resource_pools": [{"pool_name": "default"}], "launch_error": False}


@dataclass
class Shell:
    """Runs commands as the administrator, each in a thread, for the master is in this process."""

    world: World
    clock: FixedClock
    home: Path

    async def __call__(self, *words: str, code: int = 0) -> str:
        """What it printed, or for another code what it complained."""
        environ = {
            "DET_MASTER": str(self.world.server.make_url("/")).rstrip("/"),
            "DET_USER": "root",
            "DET_PASS": PASSWORD,
            "DET_DEBUG_CONFIG_PATH": str(self.home / "config"),
            "HOME": str(self.home),
        }
        out, err = io.StringIO(), io.StringIO()
        invocation = Invocation(environ=environ, render=Renderer(out, err), stdin=io.StringIO())
        ended = await asyncio.to_thread(main, words, invocation)
        assert ended == code, err.getvalue()
        return out.getvalue() if code == 0 else err.getvalue()


@pytest.fixture
async def det(tmp_path: Path) -> AsyncIterator[Shell]:
    """Half an hour after a machine began to cost 3.6 an hour, 100 s of it for its boot; one experiment runs there."""
    clock = FixedClock(T0)
    async with an_api(tmp_path, clock=clock, pools=a_paid_pool(), config=CONFIG) as world:
        await world.create(a_config())
        await settled(world)
        (machine,) = world.engine.state.all(Instance)
        await launched(world.engine, machine, clock.now())
        clock.advance(100)
        await joined(world.engine, machine)
        clock.advance(1700)
        yield Shell(world, clock, tmp_path)


async def test_a_table_for_people_with_its_total_and_window(det: Shell) -> None:
    lines = (await det("cost", "--by", "user")).splitlines()
    assert lines[1] == "Slot-time and its price, from the beginning to 2026-01-01 00:30:00+0000:"
    cells = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    assert [row[0] for row in cells if row[0] and "-" not in row[0]] == ["User", "2 (ada)", "(no task)", "total"]
    assert [row[7] for row in cells if row[0] in ("2 (ada)", "(no task)", "total")] == ["1.7000", "0.1000", "1.8000"]
    assert "from 2026-01-01 00:20:00+0000" in await det("cost", "--since", "10m")


async def test_json_csv_and_one_experiment(det: Shell) -> None:
    answer = json.loads(await det("cost", "--by", "workspace", "--json"))
    assert [row["name"] for row in answer["rows"]] == ["Uncategorized", ""]
    rows = list(csv.DictReader(io.StringIO(await det("cost", "--by", "experiment", "--csv"))))
    assert sum(float(row["cost"]) for row in rows) == pytest.approx(1.8)
    one = await det("cost", "--experiment", "1")
    assert "1.7000" in one and "no limit" in one
    assert "excludes --by" in await det("cost", "--experiment", "1", "--by", "user", code=2)
    assert "no time; write 2026-05-01" in await det("cost", "--since", "yesterday", code=1)


async def test_a_limit_is_set_and_its_landing_is_told(det: Shell) -> None:
    assert "Set `max-cost` of experiment 1 to 1.8" in await det("experiment", "set", "max-cost", "1", "1.8")
    det.clock.advance(50)
    await det.world.engine.submit(Reconsider())
    assert "max_cost of experiment 1 is reached" in await det("cost", "--experiment", "1")
    assert "raise it with" in await det("experiment", "activate", "1", code=1)
    await det("experiment", "set", "max-cost", "1", "none")
    await det("experiment", "activate", "1")
    assert "not more than" in await det("experiment", "set", "max-cost", "1", "0.1", code=1)


async def test_budgets_are_listed_set_and_taken_away(det: Shell) -> None:
    table = await det("budget")
    assert "1.8000" in table and "no limit" in table
    assert "give --per-day" in await det("resource-pool", "set-budget", "default", code=2)
    await det("workspace", "set-budget", "Uncategorized", "--per-day", "5", "--per-month", "50")
    stopped = await det("resource-pool", "set-budget", "default", "--per-day", "1.5")
    assert "stopped until 2026-01-02 00:00 UTC" in stopped and "det resource-pool set-budget default" in stopped
    states = {row["owner"]: row for row in json.loads(await det("budget", "--json"))}
    assert states["workspace"]["budget"] == {"perDay": 5.0, "perMonth": 50.0}
    (job,) = det.world.engine.state.all(Job)
    assert "was preempted" in await det("job", "explain", job.id)
    assert "stopped" not in await det("resource-pool", "set-budget", "default", "--none")
