"""The journal's snapshots are written beside the cycles, and are the state of their cycle all the same."""

from __future__ import annotations

import asyncio
import logging

import pytest

from resolute.errors import Unavailable
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.user import User
from resolute_master.engine.journal import decode_state, encode_state
from resolute_master.engine.snapshots import Snapshots
from resolute_master.store.base import Snapshot
from resolute_master.store.encoding import UnreadableValue
from resolute_master.store.memory import MemoryStore
from support.engines import a_user, an_engine, an_experiment, running


class AwayStore(MemoryStore):
    """Takes no snapshots."""

    async def save_snapshot(self, snapshot: Snapshot, *, retain: int) -> None:
        raise Unavailable("the database is away")


async def test_a_snapshot_is_the_state_of_the_moment_whatever_is_committed_meanwhile() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        owner = await a_user(engine)
        await an_experiment(engine, owner)
        snapshots = Snapshots(store, retain=0)
        at = engine.memory.sequence
        snapshots.begin(engine.memory)
        later = [asyncio.ensure_future(a_user(engine, f"user-{n}")) for n in range(20)]
        await snapshots.written()
        await asyncio.gather(*later)
    (snapshot,) = await store.snapshots()
    assert snapshot.sequence == at
    state = decode_state(snapshot.body)
    assert [user.username for user in state.all(User)] == ["ada"]
    assert [e.name for e in state.all(Experiment)] == ["an experiment"]


async def test_one_snapshot_is_written_at_a_time_and_none_after_the_end() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        snapshots = Snapshots(store, retain=5)
        snapshots.begin(engine.memory)
        await engine.submit(CreateUser(username="bob", password_hash="hash"))
        first = engine.memory.sequence
        snapshots.begin(engine.memory)
        snapshots.begin(engine.memory)
        await snapshots.written()
        await engine.submit(CreateUser(username="eve", password_hash="hash"))
        snapshots.begin(engine.memory)
        await snapshots.close()
    assert max(s.sequence for s in await store.snapshots()) <= first


async def test_a_snapshot_that_cannot_be_stored_is_told_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = AwayStore()
    with caplog.at_level(logging.ERROR):
        async with running(an_engine(store)) as engine:
            assert await a_user(engine)
    assert "no snapshot of cycle 0: the database is away" in caplog.text


async def test_equal_states_give_equal_bodies_and_damage_is_named() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        await an_experiment(engine, await a_user(engine))
        body = encode_state(engine.state)
    assert encode_state(decode_state(body)) == body
    with pytest.raises(UnreadableValue, match="a snapshot cannot be read"):
        decode_state(body[:-20])
