"""Errors of asyncpg on a lane, which has one writer at a time: those that mean that the connection has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from resolute_master.store.sql.postgres_address import is_away
from resolute_master.store.sql.postgres_session import Backend, Lane, LaneConnection, Session


class NoPool:
    def execution_options(self, **_: object) -> NoPool:
        return self


def session() -> Session:
    nothing: Any = None
    pool: Any = NoPool()
    return Session({Lane.METRICS: LaneConnection(nothing)}, pool, nothing, Backend(1, datetime(2026, 1, 1, tzinfo=UTC)))


async def raised_for(error: Exception) -> BaseException:
    async def run(_: asyncpg.Connection) -> None:
        raise error

    with pytest.raises((asyncpg.InterfaceError, OSError)) as caught:
        await session().on_lane(Lane.METRICS, run)
    return caught.value


async def test_an_operation_that_the_end_of_the_connection_interrupted_is_repeated_on_the_next_connection() -> None:
    busy = asyncpg.InterfaceError("cannot perform operation: another operation is in progress")
    assert not is_away(busy)
    assert is_away(await raised_for(busy))


async def test_other_misuse_of_the_driver_stays_an_error_of_the_program() -> None:
    assert not is_away(await raised_for(asyncpg.InterfaceError("the server expects 2 arguments for this query")))
