"""PostgreSQL: its schema, its one master, what it says when it cannot be used."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, func, select
from sqlalchemy.types import TypeEngine

from resolute.errors import Conflict, FailedPrecondition, InvalidInput, Unavailable
from resolute_master.domain.ids import TaskId, TrialId
from resolute_master.store.base import LogQuery, StoreBroken
from resolute_master.store.sql import open_store, tables
from resolute_master.store.sql.postgres_address import PostgresAddress
from resolute_master.store.sql.postgres_session import MASTER_LOCK
from resolute_master.store.sql.postgres_store import PostgresStore
from resolute_master.store.sql.searching import searching
from support.postgres import PostgresServer
from support.stores import a_change, a_counter, a_line, a_report, an_experiment
from support.stores_schema import OLDER_VERSIONS, filled_at, filled_rows, migrated_rows

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
def address(postgres: PostgresServer) -> PostgresAddress:
    return PostgresAddress.of_url(postgres.url(postgres.new_database()))


@pytest.fixture
async def store(address: PostgresAddress) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open_at(address)
    yield store
    await store.close()


# --------------------------------------------------------------------------------------------------------- the schema


async def test_the_migrations_make_the_tables_that_the_code_expects(store: PostgresStore) -> None:
    def spelled_differently(
        context: MigrationContext, _inspected: object, _meant: object, found: TypeEngine[Any], meant: TypeEngine[Any]
    ) -> bool:
        assert context.dialect is not None
        spelled = (type_.compile(context.dialect) for type_ in (found, meant))
        ours, theirs = (s.replace("VARCHAR", "TEXT").replace("DOUBLE PRECISION", "FLOAT") for s in spelled)
        return ours != theirs

    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": spelled_differently})
        return list(compare_metadata(context, tables.metadata))

    assert await store._postgres.read(differences) == []


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_a_database_of_an_older_version_is_upgraded_with_what_is_in_it(
    version: str, postgres: PostgresServer, address: PostgresAddress
) -> None:
    filled_at(postgres.url(address.name).replace("postgresql:", "postgresql+asyncpg:"), version)
    store = await PostgresStore.open_at(address)
    try:
        assert await migrated_rows(store) == filled_rows(version)
    finally:
        await store.close()


async def test_a_database_of_something_else_is_left_alone(postgres: PostgresServer, address: PostgresAddress) -> None:
    postgres.execute("CREATE TABLE pets (name text)", address.name)
    with pytest.raises(FailedPrecondition, match=r"belongs to another program \(it has the tables pets\).*\(db.name\)"):
        await PostgresStore.open_at(address)


async def test_a_database_of_a_newer_version_is_left_alone(postgres: PostgresServer, address: PostgresAddress) -> None:
    await (await PostgresStore.open_at(address)).close()
    postgres.execute("UPDATE alembic_version SET version_num = '9999'", address.name)
    with pytest.raises(FailedPrecondition, match=r"written by a newer version of Resolute .schema 9999"):
        await PostgresStore.open_at(address)


# ------------------------------------------------------------------------------------------------------- one master


async def test_a_second_master_is_refused_and_the_first_goes_on(store: PostgresStore, address: PostgresAddress) -> None:
    with pytest.raises(FailedPrecondition, match=r"in use by another master \(127.0.0.1, connected since .*db.name"):
        await PostgresStore.open_at(address)
    await store.commit(a_change(1))


async def test_a_master_that_was_fenced_out_cannot_write(
    store: PostgresStore, postgres: PostgresServer, address: PostgresAddress
) -> None:
    await store.commit(a_change(1))
    # Its connections end and another takes the lock before it is back.
    other = await asyncpg.connect(postgres.url(address.name))
    try:
        waiting = asyncio.create_task(other.fetchval("SELECT pg_advisory_lock($1)", MASTER_LOCK))
        postgres.execute(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE locktype = 'advisory' AND granted", address.name
        )
        await waiting
        for write in (
            store.commit(a_change(2, upserts=(a_counter(),))),
            store.append_metrics([a_report(1)]),
            store.append_logs([a_line("1")]),
            store.put_setting("a", 1),
        ):
            with pytest.raises(FailedPrecondition, match="in use by another master"):
                await write
        assert await other.fetchval("SELECT max(sequence) FROM journal") == 1
        assert await other.fetchval("SELECT count(*) FROM logs") == 0
    finally:
        await other.close()


async def test_whoever_does_not_follow_the_last_change_stores_nothing_of_his(
    store: PostgresStore, postgres: PostgresServer, address: PostgresAddress
) -> None:
    await store.commit(a_change(1))
    postgres.execute("INSERT INTO journal VALUES (2, 0, '', '', '', 'of another')", address.name)
    with pytest.raises(Conflict, match="change 2 does not follow change 2, the last one stored: another master"):
        await store.commit(a_change(2, upserts=(an_experiment(1), a_counter()), logs=(a_line("x"),)))
    assert await store.experiment(an_experiment(1).id) is None
    assert await store.logs(LogQuery(task_ids=(TaskId("task"),))) == ()


# ----------------------------------------------------------------------------------------- what it says at the start


async def test_each_mistake_in_the_address_is_named_by_its_key(
    postgres: PostgresServer, address: PostgresAddress
) -> None:
    for wrong, text in (
        (replace(address, password="guess"), "db.password: .* refuses the user 'resolute'"),
        (replace(address, user="nobody"), "db.password: .* refuses the user 'nobody'"),
        (replace(address, name="none"), "db.name: there is no database 'none' at .*createdb --owner resolute none"),
        (replace(address, ssl_mode="require"), "db.ssl_mode: .* cannot be reached with 'require'"),
        (replace(address, ssl_mode="verify-full", ssl_root_cert="/none.pem"), "db.ssl_root_cert: '/none.pem' cannot"),
    ):
        with pytest.raises(StoreBroken, match=text) as told:
            await PostgresStore.open_at(wrong)
        assert postgres.password not in str(told.value) and "guess" not in str(told.value)


async def test_a_user_without_rights_is_told_so(postgres: PostgresServer, address: PostgresAddress) -> None:
    postgres.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN PASSWORD 'guest'", address.name)
    with pytest.raises(StoreBroken, match=r"db.user: 'guest' lacks a right in .*make it the owner"):
        await PostgresStore.open_at(replace(address, user="guest", password="guest"))


async def test_a_database_that_cannot_hold_every_text_is_refused(
    postgres: PostgresServer, address: PostgresAddress
) -> None:
    postgres.execute("CREATE DATABASE latin ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(StoreBroken, match=r"db.name: .*is encoded as LATIN1.*createdb --encoding UTF8"):
        await PostgresStore.open_at(replace(address, name="latin"))


async def test_a_server_that_stays_down_is_waited_for_and_then_named(
    address: PostgresAddress, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(Unavailable, match=r"db.host: .* did not answer for 1 s .*start the server"),
    ):
        await PostgresStore.open_at(replace(address, port=1), timeout_s=1)
    assert "waiting for the database" in caplog.text


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://u:secret@host/", "lacks a host, a user or the name"),
        ("postgresql://host/name", "lacks a host, a user or the name"),
        ("postgresql://u:secret@h:x/name", "not the URL of a database"),
        ("postgresql://u:secret@h/name?sslmode=maybe", "sslmode 'maybe' is not known"),
        ("postgresql://u:secret@h/name?ssl=1", "parameter 'ssl'"),
    ],
)
async def test_a_url_that_says_too_little_is_refused_without_being_repeated(url: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=text) as told:
        await open_store(url)
    assert "secret" not in str(told.value)


# ------------------------------------------------------------------------------------------------------------ streams


async def test_a_batch_with_one_old_line_stores_the_others_in_order(store: PostgresStore) -> None:
    await store.append_logs([a_line("1"), a_line("2")])
    await store.append_logs([a_line("3"), a_line("2"), a_line("4"), a_line("4")])
    lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert [line.key for line in lines] == ["1", "2", "3", "4"]


async def test_an_expression_that_the_server_does_not_know_is_refused_with_the_reason(store: PostgresStore) -> None:
    await store.append_logs([a_line("1")])
    with pytest.raises(InvalidInput, match=r"searchText: PostgreSQL does not understand the regular expression"):
        await store.logs(LogQuery(task_ids=(TaskId("task"),), text=r"(?P<name>x)", regex=True))


async def test_a_newer_run_archives_although_its_earlier_reports_did(store: PostgresStore) -> None:
    """What the copier remembers must not outlive a late report of the older run."""
    await store.append_metrics([a_report(steps, run_id=1) for steps in (1, 2, 3, 4)])
    await store.append_metrics([a_report(3, run_id=2)])
    await store.append_metrics([a_report(5, run_id=1)])
    await store.append_metrics([a_report(4, run_id=2)])
    rows = await store.metrics(TrialId(1))
    assert [(row.run_id, row.steps_completed) for row in rows] == [(1, 1), (1, 2), (2, 3), (2, 4)]


def test_the_driver_is_imported_only_by_who_uses_a_server(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from resolute_master.store.sql import open_store\n"
        "async def open_and_close(url):\n"
        "    await (await open_store(url)).close()\n"
        f"asyncio.run(open_and_close('sqlite:///{tmp_path}/x.db'))\n"
        "print('asyncpg' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


async def test_a_search_that_takes_too_long_is_ended_in_words(store: PostgresStore) -> None:
    await store.append_logs([a_line("1")])

    def search(connection: Connection) -> None:
        with searching(connection, tables.logs.c.log, ".", limit_s=0.01) as found:
            connection.execute(select(func.pg_sleep(30)).where(*found).select_from(tables.logs)).all()

    with pytest.raises(InvalidInput, match=r"searchText: the search for '\.' takes more than 10 s"):
        await store._postgres.read(search)
    assert len(await store.logs(LogQuery(task_ids=(TaskId("task"),)))) == 1, "the connection goes on without the limit"
