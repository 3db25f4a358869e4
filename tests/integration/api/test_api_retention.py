"""Logs are kept as long as somebody said, and removed when an administrator asks for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from resolute.clock import FixedClock
from resolute_master.domain.trial import Trial
from support.api import World, an_api

DAY_S = timedelta(days=1).total_seconds()


async def ended(world: World, **config: Any) -> Trial:
    """A trial with a line in its log, which has ended."""
    agent = await world.agent()
    trial, _, task = await world.started(agent, **config)
    await world.post("/task-logs", [{"task_id": trial.task_id, "log": "hello\n"}], task=task)
    await agent.run_all()
    return trial


async def cleaned_up(world: World) -> str:
    """By an administrator, who has to log in again: the last login is days old."""
    root = await world.login("root")
    removed: str = (await world.post("/api/v1/cleanup_logs", token=root))["removedCount"]
    return removed


async def lines(world: World, trial: Trial) -> int:
    return len(await world.lines(f"/api/v1/trials/{trial.id}/logs"))


async def test_logs_go_when_their_time_has_come(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, clock=clock, config={"retention_policy": {"log_retention_days": 5}}) as world:
        short = await ended(world, retention_policy={"log_retention_days": 2})
        usual, kept = await ended(world), await ended(world)
        body = {"trialId": kept.id, "numDays": -1}
        assert await world.call("PUT", f"/api/v1/trials/{kept.id}/retain_logs", body) == {}
        removed = []
        for days in (1, 1, 2, 1, 400):
            clock.advance(days * DAY_S)
            removed.append(await cleaned_up(world))
        world.token = await world.login("ada")
        assert [r == "0" for r in removed] == [True, False, True, False, True]
        assert await lines(world, short) == await lines(world, usual) == 0 < await lines(world, kept)
        experiment = f"/api/v1/experiments/{kept.experiment_id}"
        await world.call("PUT", f"{experiment}/retain_logs", {"experimentId": kept.experiment_id, "numDays": 0})
        assert (await world.get(experiment))["config"]["retention_policy"] == {"log_retention_days": 0}
        assert (await world.get(f"/api/v1/trials/{kept.id}"))["trial"]["logRetentionDays"] == 0
        assert int(await cleaned_up(world)) > 0
        assert await lines(world, kept) == 0


async def test_how_many_days_logs_are_still_kept(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, clock=clock, config={"retention_policy": {"log_retention_days": 2}}) as world:
        trial = await ended(world)
        path, left = f"/api/v1/trials/{trial.id}/remaining_log_retention_days", []
        for days in (0, 0.5, 1, 0.5, 9):
            clock.advance(days * DAY_S)
            world.token = await world.login("ada")
            left.append((await world.get(path))["remainingDays"])
        assert left == [2, 2, 1, 0, 0]
        await world.call("PUT", f"/api/v1/trials/{trial.id}/retain_logs", {"trialId": trial.id, "numDays": -1})
        assert await world.get(path) == {"remainingDays": -1}


async def test_without_a_word_logs_are_kept_for_ever(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, clock=clock) as world:
        trial = await ended(world)
        clock.advance(3000 * DAY_S)
        assert await cleaned_up(world) == "0"
        world.token = await world.login("ada")
        assert await lines(world, trial) > 0


async def test_what_runs_keeps_its_log_and_numbers_are_checked(world: World) -> None:
    trial, _, _ = await world.started(await world.agent())
    for path in (f"/api/v1/trials/{trial.id}", f"/api/v1/experiments/{trial.experiment_id}"):
        assert "ACTIVE" in await world.error("PUT", f"{path}/retain_logs", {"numDays": 1}, status=400)
        for days in (-2, 32768):
            text = await world.error("PUT", f"/api/v1/trials/{trial.id}/retain_logs", {"numDays": days}, status=400)
            assert str(days) in text
    await world.error("POST", "/api/v1/cleanup_logs", status=403)
