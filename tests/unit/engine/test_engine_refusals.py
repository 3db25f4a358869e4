"""A command that holds what cannot be stored is refused alone: the engine goes on, and so do the others of its batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.errors import Unavailable
from resolute_master.domain.change import Change
from resolute_master.domain.commands import Command, CreateUser, EndSession, Reconsider, StartSession
from resolute_master.domain.ids import SessionId, UserId
from resolute_master.domain.user import Session, User
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.store.base import Store, Unstorable
from resolute_master.store.memory import MemoryStore
from support.cluster import at
from support.engines import POOLS, a_user, an_engine, running
from support.stores import STORES, CommitLost, CommitScript, store_home

WITHOUT_UTC = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
"""A time that cannot be written down in UTC."""


def login(name: str, user: UserId, until: datetime) -> StartSession:
    return StartSession(session=SessionId(name), user=user, expires_at=until)


def sessions(engine: Engine) -> list[str]:
    return [session.id for session in engine.state.all(Session)]


async def together(engine: Engine, commands: Sequence[Command]) -> list[str]:
    """Sent in one batch; of each, the class of its error or empty."""
    replies = await asyncio.gather(*map(engine.submit, commands), return_exceptions=True)
    return [type(reply).__name__ if isinstance(reply, Exception) else "" for reply in replies]


async def assert_replays(store: Store) -> None:
    first, *_ = await store.snapshots()
    outcome = await replay(first, store.journal(first.sequence), POOLS)
    assert outcome.divergence is None and outcome.cycles


@pytest.mark.parametrize("stored_in", STORES)
@pytest.mark.parametrize(
    "until", [WITHOUT_UTC, datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(hours=14)))]
)
async def test_a_time_without_a_value_in_utc_is_refused_alone(
    stored_in: str, until: datetime, request: pytest.FixtureRequest
) -> None:
    request.param = stored_in
    home = await store_home(request)
    store = await home.open()
    async with running(an_engine(store)) as engine:
        user = await a_user(engine)
        good = datetime(2100, 1, 1, tzinfo=UTC)
        batch = [login("a", user, good), login("bad", user, until), login("b", user, good), login("c", user, good)]
        assert await together(engine, batch) == ["", "Unstorable", "", ""]
        with pytest.raises(Unstorable, match=r"StartSession is refused: a value cannot be stored: .*range"):
            await engine.submit(login("bad", user, until))
        assert sessions(engine) == ["a", "b", "c"] and engine.stopped is None
        await assert_replays(store)
    await store.close()
    again = await home.open()
    async with running(an_engine(again)) as engine:
        assert sessions(engine) == ["a", "b", "c"]
    await again.close()


class Picky(CommitScript):
    """Does not take a change in which a user has such a name."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__()
        self._name, self._error = name, error

    def before_commit(self, change: Change) -> None:
        if any(isinstance(entity, User) and self._name in entity.username for entity in change.upserts):
            raise self._error


@pytest.mark.parametrize("bad", [{0}, {7}, {3, 4}, {0, 2, 4, 6}, set(range(8))])
async def test_only_what_the_store_does_not_take_is_refused(bad: set[int]) -> None:
    store = MemoryStore(hook=Picky("bad", Unstorable("no such name")))
    async with running(an_engine(store)) as engine:
        names = [f"{'bad' if number in bad else 'good'}-{number}" for number in range(8)]
        told = await together(engine, [CreateUser(username=name, password_hash="x") for name in names])
        assert told == ["Unstorable" if number in bad else "" for number in range(8)]
        assert [user.username for user in engine.state.all(User)] == [name for name in names if "good" in name]
        await assert_replays(store)


async def test_a_store_that_fails_still_stops_the_engine() -> None:
    store = MemoryStore(hook=Picky("bad", CommitLost("the disk has gone")))
    async with running(an_engine(store)) as engine:
        with pytest.raises(Unavailable, match="could not store the change: the disk has gone"):
            await engine.submit(CreateUser(username="bad", password_hash="x"))
        assert engine.stopped is not None


async def test_what_was_due_in_a_cycle_that_came_to_nothing_is_due_in_the_next() -> None:
    clock = FixedClock(at(0))
    engine = an_engine(MemoryStore(), clock=clock)
    async with running(engine):
        user = await a_user(engine)
        await engine.submit(login("short", user, at(10)))
        await engine.submit(login("long", user, at(100)))
        clock.set(at(20))
        with pytest.raises(Unstorable):
            await engine.submit(login("bad", user, WITHOUT_UTC))
        await engine.submit(Reconsider())
        assert sessions(engine) == ["long"]
        clock.set(at(200))
        await engine.submit(Reconsider())
        assert sessions(engine) == []


async def test_a_listener_that_fails_does_not_end_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> None:
        raise OverflowError("date value out of range")

    engine = an_engine(MemoryStore())
    engine.on_commit(fail)
    engine.on_cycle(fail)
    async with running(engine):
        user = await a_user(engine)
        await engine.submit(EndSession(session=SessionId("none")))
        assert user and engine.stopped is None
    assert "a listener of the engine has failed" in caplog.text
