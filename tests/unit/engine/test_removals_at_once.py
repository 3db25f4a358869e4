"""Removals of checkpoints run at once up to a bound: in order for one checkpoint, and past a storage that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from resolute.host_paths import HostPathRules
from resolute.storage import StorageAway, StorageUnavailable
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import DeleteCheckpoints, RemoveCheckpointFiles, ReportCheckpoint
from resolute_master.domain.ids import UserId
from resolute_master.engine import checkpoint_files
from resolute_master.engine.checkpoint_files import REMOVALS_AT_ONCE, CheckpointRemoval
from resolute_master.engine.checkpoint_storage import KeptStorages, StorageAccess
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running

COUNT = 8 * REMOVALS_AT_ONCE
ACCESS = StorageAccess(rules=HostPathRules(remedy=""))


@dataclass
class Threads:
    """Carries out what is given to it once it is opened, and remembers it."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    away: str = ""
    """A directory that does not answer."""
    error: type[StorageUnavailable] = StorageAway
    locked: str = ""
    """A checkpoint that may not be removed."""
    at_work: int = 0
    most: int = 0
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """(what, of which checkpoint)"""
    refused: int = 0

    async def __call__(self, action: Callable[..., Any], storage: dict[str, Any], wanted: Any) -> Any:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        await self.opened.wait()
        self.at_work -= 1
        if self.away and storage["container_path"] == self.away:
            self.refused += 1
            raise self.error(f"{self.away} cannot be used.")
        if self.locked == wanted:
            raise StorageUnavailable(f"{wanted} is locked.")
        self.asked.append((action.__name__, wanted if isinstance(wanted, str) else wanted.uuid))
        return action(storage, wanted)


async def an_agent_and_a_user(engine: Engine) -> tuple[AgentByHand, UserId]:
    agent = AgentByHand(engine)
    await agent.register()
    return agent, await a_user(engine)


async def ended(engine: Engine, agent: AgentByHand, owner: UserId, directory: Path) -> tuple[str, ...]:
    """An experiment that has ended; the uuids of its checkpoints, each of which is a directory with two files."""
    config = {**a_config(), "checkpoint_storage": {"type": "directory", "container_path": str(directory)}}
    await an_experiment(engine, owner, config)
    (allocation,) = engine.state.all(Allocation)
    uuids = tuple(f"{directory.name}-{number:04}" for number in range(COUNT))
    for number, uuid in enumerate(uuids):
        (directory / uuid).mkdir(parents=True)
        for name in ("weights", "log"):
            (directory / uuid / name).write_text("some")
        await engine.submit(
            ReportCheckpoint(
                uuid=uuid,
                allocation=allocation.id,
                steps_completed=number,
                resources={"weights": 4, "log": 4},
                metadata={},
            )
        )
    await agent.run_all()
    return uuids


@asynccontextmanager
async def removing(engine: Engine, store: MemoryStore, threads: Threads) -> AsyncIterator[None]:
    removal = CheckpointRemoval(engine, store, ACCESS, cluster_id="cluster-1", blocking=threads)
    task = asyncio.create_task(removal.run())
    try:
        async with asyncio.timeout(60):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(engine: Engine, holds: Callable[[], bool]) -> None:
    with engine.watch("", "") as news:
        while not holds():
            await news.changed(0.02)


async def test_removals_run_at_once_and_no_more_than_so_many(tmp_path: Path) -> None:
    store, threads = MemoryStore(), Threads()
    async with running(an_engine(store)) as engine, removing(engine, store, threads):
        agent, owner = await an_agent_and_a_user(engine)
        uuids = await ended(engine, agent, owner, tmp_path / "a")
        await engine.submit(DeleteCheckpoints(uuids=uuids))
        await until(engine, lambda: threads.at_work == REMOVALS_AT_ONCE)
        threads.opened.set()
        await until(engine, lambda: not engine.outstanding())
    assert threads.most == REMOVALS_AT_ONCE
    assert sorted(uuid for _, uuid in threads.asked) == sorted(uuids)
    assert not any((tmp_path / "a").glob("a-*"))


async def test_removals_from_one_checkpoint_keep_their_order(tmp_path: Path) -> None:
    store, threads = MemoryStore(), Threads()
    async with running(an_engine(store)) as engine, removing(engine, store, threads):
        agent, owner = await an_agent_and_a_user(engine)
        uuids = await ended(engine, agent, owner, tmp_path / "a")
        await engine.submit(RemoveCheckpointFiles(uuids=uuids, globs=("log",)))
        await engine.submit(DeleteCheckpoints(uuids=uuids))
        threads.opened.set()
        await until(engine, lambda: not engine.outstanding())
    for uuid in uuids:
        assert [what for what, of in threads.asked if of == uuid] == ["_remove_matching", "_delete"]


@pytest.mark.parametrize("error", [StorageAway, StorageUnavailable])
async def test_a_storage_that_is_away_or_denied_does_not_hold_up_the_others(
    tmp_path: Path, error: type[StorageUnavailable]
) -> None:
    store, threads = MemoryStore(), Threads(away=str(tmp_path / "a"), error=error)
    threads.opened.set()
    async with running(an_engine(store)) as engine, removing(engine, store, threads):
        agent, owner = await an_agent_and_a_user(engine)
        first = await ended(engine, agent, owner, tmp_path / "a")
        second = await ended(engine, agent, owner, tmp_path / "b")
        await engine.submit(DeleteCheckpoints(uuids=first))
        await engine.submit(DeleteCheckpoints(uuids=second))
        await until(engine, lambda: len(engine.outstanding()) == COUNT)
        assert 1 <= threads.refused <= REMOVALS_AT_ONCE, "the others of the experiment wait, too"
    assert not any((tmp_path / "b").glob("b-*")) and len(list((tmp_path / "a").glob("a-*"))) == COUNT


async def test_one_checkpoint_that_cannot_be_removed_does_not_keep_the_others_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_files, "RETRY_S", 0.05)
    store, threads = MemoryStore(), Threads(locked="a-0003")
    threads.opened.set()
    async with running(an_engine(store)) as engine, removing(engine, store, threads):
        agent, owner = await an_agent_and_a_user(engine)
        await engine.submit(DeleteCheckpoints(uuids=await ended(engine, agent, owner, tmp_path / "a")))
        await until(engine, lambda: len(engine.outstanding()) == 1)
        threads.locked = ""
        await until(engine, lambda: not engine.outstanding())
    assert not any((tmp_path / "a").glob("a-*"))


def test_a_storage_is_opened_once_for_many_removals(tmp_path: Path) -> None:
    kept = KeptStorages(ACCESS)
    config = {"type": "directory", "container_path": str(tmp_path / "a"), "save_trial_latest": 1}
    opened = kept.storage(config)
    assert kept.storage({**config, "save_trial_latest": 2}) is opened
    assert kept.storage({**config, "container_path": str(tmp_path / "b")}) is not opened
