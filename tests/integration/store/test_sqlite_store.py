"""What only the SQLite store has: a file, its lock, its schema, and everything that can be wrong with them."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, select, text
from sqlalchemy.dialects import sqlite

from resolute.errors import FailedPrecondition, InvalidInput, ResoluteError, Unavailable
from resolute_master.domain.change import Counter
from resolute_master.domain.ids import ExperimentId, TaskId, TrialId
from resolute_master.store.base import ExperimentQuery, LogQuery, StoreBroken
from resolute_master.store.listing import SEARCH_S
from resolute_master.store.sql import schema, tables
from resolute_master.store.sql.database import SqliteDatabase
from resolute_master.store.sql.queries import trials_of_projects
from resolute_master.store.sql.searching import searching
from resolute_master.store.sql.store import SqlStore, sqlite_url
from support.stores import a_change, a_counter, a_line, a_report, an_experiment
from support.stores_schema import OLDER_VERSIONS, filled_at, filled_rows, migrated_rows


def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    store = await SqlStore.open(url(tmp_path / "master.db"))
    yield store
    await store.close()


# --------------------------------------------------------------------------------------------------------- the schema


def test_the_migrations_make_the_tables_that_the_code_expects(tmp_path: Path) -> None:
    engine = create_engine(url(tmp_path / "x.db"))
    with engine.begin() as connection:
        schema.migrate(connection, "x.db", "db.path")
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
        assert schema.current_version(connection, "x.db", "db.path") == schema.HEAD
    engine.dispose()


@pytest.mark.parametrize("version", OLDER_VERSIONS)
async def test_a_database_of_an_older_version_is_upgraded_with_what_is_in_it(version: str, tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    filled_at(url(path), version)
    store = await SqlStore.open(url(path))
    try:
        assert await migrated_rows(store) == filled_rows(version)
    finally:
        await store.close()


def test_head_is_the_newest_migration() -> None:
    assert ScriptDirectory(str(schema.MIGRATIONS)).get_heads() == [schema.HEAD]


async def test_a_store_of_this_version_is_opened_without_the_migration_tool_and_other_databases(tmp_path: Path) -> None:
    await (await SqlStore.open(url(tmp_path / "master.db"))).close()
    program = (
        "import asyncio, sys\n"
        "from resolute_master.store.sql.store import SqlStore\n"
        "async def main():\n"
        "    store = await SqlStore.open(sys.argv[1])\n"
        "    await store.load()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "heavy = {'alembic', 'asyncpg', 'sqlalchemy.dialects.postgresql', 'sqlalchemy.orm'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    arguments = [sys.executable, "-c", program, url(tmp_path / "master.db")]
    await asyncio.to_thread(subprocess.run, arguments, check=True, timeout=60)


async def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    await (await SqlStore.open(url(path))).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(FailedPrecondition, match=r"master\.db was written by a newer version.*schema 9999"):
        await SqlStore.open(url(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    connection.close()


async def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    with pytest.raises(FailedPrecondition, match=r"photos\.db belongs to another program .*photos.*db\.path"):
        await SqlStore.open(url(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]
    connection.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    engine = create_engine(url(tmp_path / "x.db"), isolation_level=None)
    connection = engine.connect()
    with pytest.raises(ZeroDivisionError), connection.begin():
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        schema.migrate(connection, "x.db", "db.path")
        assert connection.execute(text("SELECT count(*) FROM journal")).scalar() == 0
        raise ZeroDivisionError
    connection.close()
    with engine.connect() as connection:
        assert schema.current_version(connection, "x.db", "db.path") is None
    engine.dispose()


# ----------------------------------------------------------------------------------------------------------- the file


async def test_missing_directories_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "master.db"
    await (await SqlStore.open(url(path))).close()
    assert path.exists()


async def test_both_spellings_of_the_url_name_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "100% of it? #1.db"
    store = await SqlStore.open(sqlite_url(path))
    await store.commit(a_change(1))
    await store.close()
    assert path.exists()
    store = await SqlStore.open(sqlite_url(path).replace("sqlite:", "sqlite+aiosqlite:"))
    assert (await store.load()).sequence == 1
    await store.close()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://root:secret@host/db", "type 'mysql' are not supported"),
        ("just/a/path.db", "is not the URL of a database"),
        ("", "is not the URL of a database"),
    ],
)
async def test_a_url_that_names_no_sqlite_file_is_refused(bad: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        await SqlStore.open(bad)
    assert "sqlite:///<path of a file>" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_file_that_is_not_a_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.write_bytes(b"this is a letter, not a database\n" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match=r"master\.db is not a database, or is damaged.*restore a backup"):
        await SqlStore.open(url(path))
    assert path.read_bytes() == before


async def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    store = await SqlStore.open(url(path))
    await store.commit(a_change(1, upserts=tuple(an_experiment(n) for n in range(1, 200))))
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(2, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    with pytest.raises(StoreBroken, match=r"master\.db is not a database, or is damaged"):
        store = await SqlStore.open(url(path))
        try:
            await store.page_experiments(ExperimentQuery(limit=None))
        finally:
            await store.close()


async def test_a_directory_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.mkdir()
    with pytest.raises(StoreBroken, match=r"master\.db cannot be written.*db\.path"):
        await SqlStore.open(url(path))


async def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreBroken, match=r"file/master\.db cannot be made there.*db\.path"):
        await SqlStore.open(url(tmp_path / "file" / "master.db"))


@pytest.fixture
def read_only_directory(tmp_path: Path) -> Iterator[Path]:
    """A directory that nobody may write to, or, where permissions do not bind us (root), /proc."""
    directory = tmp_path / "read-only"
    directory.mkdir()
    directory.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        (directory / "probe").touch()
    except PermissionError:
        yield directory
    else:
        yield Path("/proc/self/task")
    directory.chmod(stat.S_IRWXU)


async def test_a_directory_that_cannot_be_written_is_named(read_only_directory: Path) -> None:
    path = read_only_directory / "master.db"
    with pytest.raises(StoreBroken, match=r"master\.db cannot be made there.*may write to \(db\.path\)"):
        await SqlStore.open(url(path))


async def test_a_full_disk_is_named_and_leaves_nothing(store: SqlStore, tmp_path: Path) -> None:
    await store.commit(a_change(1, upserts=(a_counter(value=1),)))
    # SQLite treats its own limit on the number of pages as it treats the end of the disk.
    database = store._database
    assert isinstance(database, SqliteDatabase)
    await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count=1").scalar())
    with pytest.raises(Unavailable, match=r"master\.db did not store the change.*free space"):
        await store.commit(a_change(2, upserts=(a_counter(value=2),), logs=(a_line("k", log="x" * 1_000_000),)))
    loaded = await store.load()
    assert (loaded.sequence, loaded.entities) == (1, (a_counter(value=1),))
    await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count=1000000").scalar())
    await store.commit(a_change(2, upserts=(a_counter(value=2),)))


# ----------------------------------------------------------------------------------------------------------- the lock


async def test_a_second_master_is_refused_by_name_and_the_first_goes_on(store: SqlStore, tmp_path: Path) -> None:
    with pytest.raises(FailedPrecondition, match=r"master\.db is in use by another master \(process \d+\)"):
        await SqlStore.open(url(tmp_path / "master.db"))
    await store.commit(a_change(1))


async def test_a_second_process_is_refused(store: SqlStore, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from resolute_master.store.sql.store import SqlStore\n"
        "asyncio.run(SqlStore.open(sys.argv[1]))\n"
    )
    arguments = [sys.executable, "-c", program, url(tmp_path / "master.db")]
    ended = await asyncio.to_thread(subprocess.run, arguments, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "is in use by another master" in ended.stderr


async def test_a_store_can_be_opened_again_as_soon_as_it_is_closed(tmp_path: Path) -> None:
    for sequence in range(1, 4):
        store = await SqlStore.open(url(tmp_path / "master.db"))
        await store.commit(a_change(sequence))
        await store.close()
        await store.close()


async def test_a_store_that_could_not_be_opened_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    path.write_bytes(b"this is a letter, not a database\n" * 100)
    with pytest.raises(ResoluteError):
        await SqlStore.open(url(path))
    path.unlink()
    await (await SqlStore.open(url(path))).close()


# ------------------------------------------------------------------------------------------------------ at the same time


async def test_reads_see_whole_changes_only_while_changes_are_written(store: SqlStore) -> None:
    def counters(value: int) -> tuple[Counter, ...]:
        return tuple(a_counter(f"counter-{n}", value) for n in range(30))

    async def write() -> None:
        for n in range(1, 60):
            await store.commit(a_change(n, upserts=counters(n)))

    async def read() -> int:
        reads = 0
        while not writing.done():
            loaded = await store.load()
            assert loaded.entities == tuple(sorted(counters(loaded.sequence), key=str)) or loaded.sequence == 0
            reads += 1
        return reads

    writing = asyncio.create_task(write())
    reads = await asyncio.gather(read(), read(), read())
    await writing
    assert sum(reads) > 3


async def test_a_cancelled_caller_does_not_disturb_the_next(store: SqlStore) -> None:
    first = asyncio.create_task(store.commit(a_change(1, upserts=(a_counter(value=1),))))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    # It may have been stored or not; either way the store stands at a whole change and goes on.
    sequence = (await store.load()).sequence
    assert sequence in (0, 1)
    await store.commit(a_change((await settled_sequence(store)) + 1))


async def settled_sequence(store: SqlStore) -> int:
    """The sequence after everything handed to the writer so far is done: writes run one after the other."""
    await store.append_logs([a_line("after")])
    return (await store.load()).sequence


async def test_following_logs_uses_an_index(store: SqlStore) -> None:
    """A follower asks again and again; it must not read the lines that it has seen, or those of other tasks."""
    await store.append_logs([a_line(str(n), task_id=TaskId(f"task-{n % 3}")) for n in range(300)])
    database = store._database
    plan = await database.read(
        lambda connection: connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT * FROM logs WHERE task_id IN ('task-1', 'task-2') AND id > 290 ORDER BY id"
        ).all()
    )
    assert any("ix_logs_task_id_id (task_id=? AND id>?)" in str(row) for row in plan), plan
    lines = await store.logs(LogQuery(task_ids=(TaskId("task-1"), TaskId("task-2")), after_id=297))
    assert [line.key for line in lines] == ["298", "299"]


async def test_the_trials_of_a_project_are_counted_from_indexes_alone(store: SqlStore) -> None:
    """A project may have a hundred thousand experiments, each as large as its configuration."""
    statement = trials_of_projects([1]).compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
    database = store._database
    plan = await database.read(lambda connection: connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}").all())
    assert len(plan) == 2 and all("USING COVERING INDEX" in str(row) for row in plan), plan


async def test_more_ids_than_one_statement_may_carry(store: SqlStore) -> None:
    ids = [ExperimentId(n) for n in range(1, 40_001)]
    await store.commit(a_change(1, upserts=(an_experiment(39_999),)))
    assert len(await store.experiment_numbers(ids)) == 40_000


# ---------------------------------------------------------------------------------------------------------- searching


async def test_a_search_that_takes_too_long_is_ended_in_words(tmp_path: Path) -> None:
    path = tmp_path / "searched.db"
    store = await SqlStore.open(url(path))
    await store.append_logs([a_line(str(number)) for number in range(10)])
    await store.close()

    def search(connection: Connection) -> None:
        with searching(connection, tables.logs.c.log, "x", limit_s=-1.0) as found:
            connection.execute(select(tables.logs.c.id).where(*found)).all()

    database = await SqliteDatabase.open(path)
    try:
        with pytest.raises(InvalidInput, match=f"searchText: the search for 'x' takes more than {SEARCH_S:g} s"):
            await database.read(search)
    finally:
        await database.close()


# ------------------------------------------------------------------------------------------------ rows of older versions


async def test_a_moment_that_no_time_can_hold_is_read_as_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    store = await SqlStore.open(url(path))
    await store.append_logs([a_line("early"), a_line("late")])
    await store.append_metrics([a_report(1)])
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE logs SET at = -62135647200000000 WHERE key = 'early'")  # 0001-01-01T00:00:00+14:00
        connection.execute("UPDATE logs SET at = 253402351199000000 WHERE key = 'late'")  # 9999-12-31T23:59:59-14:00
        connection.execute("UPDATE metrics SET reported_at = -62135647200000000")
    connection.close()
    store = await SqlStore.open(url(path))
    early, late = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert (early.at, late.at) == (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    (report,) = await store.metrics(TrialId(1))
    assert report.reported_at == datetime.min.replace(tzinfo=UTC)
    await store.close()
