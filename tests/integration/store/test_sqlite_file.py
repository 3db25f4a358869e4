"""A database file that is taken away, cut off or replaced under a running store, and one that is missing where a cluster was."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from resolute.errors import FailedPrecondition, Unavailable
from resolute_master.store.base import StoreBroken
from resolute_master.store.sql.sqlite_file import OpenFile, marker_of
from resolute_master.store.sql.store import SqlStore
from support.engines import a_user, an_engine, running
from support.stores import a_change, a_counter, a_line


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "master.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    store = await SqlStore.open(f"sqlite:///{path}")
    await store.commit(a_change(1, upserts=(a_counter(),)))
    yield store
    await store.close()


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def replace(path: Path) -> None:
    shutil.copyfile(path, f"{path}.copy")
    os.replace(f"{path}.copy", path)


def cut_off(path: Path) -> None:
    os.truncate(path, 0)


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def remove_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def cut_log(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def leave(path: Path, content: bytes | None) -> None:
    remove(path)
    if content is not None:
        path.write_bytes(content)


def found(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize("harm", [remove, replace, cut_off, cut_short, remove_log, cut_log])
async def test_nothing_is_acknowledged_that_was_written_into_nothing(
    store: SqlStore, path: Path, harm: Callable[[Path], None]
) -> None:
    harm(path)
    with pytest.raises(StoreBroken, match=r"master\.db.*while the master runs.*restore a backup|is damaged.*backup"):
        await store.commit(a_change(2, upserts=(a_counter("other"),)))
    with pytest.raises(StoreBroken):
        await store.append_logs([a_line("1")])
    left = found(path)
    await store.close()
    assert found(path) == left, "what is left of it is not made to look like a database"


@pytest.mark.parametrize("harm", [remove, replace, cut_off, cut_short, remove_log])
async def test_a_store_that_writes_nothing_notices_too(
    store: SqlStore, path: Path, harm: Callable[[Path], None]
) -> None:
    watch = asyncio.create_task(store.watch())
    await asyncio.sleep(0)
    assert not watch.done()
    harm(path)
    with pytest.raises(StoreBroken, match=r"was removed|was replaced|was cut off"):
        await asyncio.wait_for(watch, 30)


async def test_the_watch_sees_nothing_wrong_in_ordinary_work(store: SqlStore) -> None:
    watch = asyncio.create_task(store.watch())
    for sequence in range(2, 60):  # with some checkpoints of SQLite's own log
        await store.commit(a_change(sequence, upserts=(a_counter(f"c{sequence}"),)))
        await store.append_logs([a_line(f"{sequence}-{n}", log="x" * 2_000) for n in range(100)])
    await store.forget_replaced()
    await asyncio.sleep(0.7)
    await store.commit(a_change(60, upserts=(a_counter("last"),)))
    assert not watch.done()
    watch.cancel()


READ = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
print(database.execute("SELECT count(*) FROM journal").fetchone()[0])
database.close()
"""


async def test_another_program_may_read_the_database_and_end(store: SqlStore, path: Path) -> None:
    """The last program that closes a database removes its log: the store's locks say that it is not the last one."""
    read = [sys.executable, "-c", READ, str(path)]
    for sequence in (2, 3):
        await store.commit(a_change(sequence, upserts=(a_counter(f"c{sequence}"),)))
        done = await asyncio.to_thread(subprocess.run, read, capture_output=True, text=True)
        assert (done.stdout.strip(), done.returncode) == (str(sequence), 0), done.stderr
    await store.commit(a_change(4, upserts=(a_counter("last"),)))


def test_a_file_that_a_reader_keeps_short_is_sound(path: Path) -> None:
    """A checkpoint writes the header, which counts all pages, and leaves the last page, changed since, in the log."""
    writer, reader = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE texts (text TEXT)")
    writer.execute("PRAGMA wal_checkpoint")
    opened = OpenFile(path)
    opened.check()
    writer.executemany("INSERT INTO texts VALUES (?)", [("a" * 3_000,)] * 100)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM texts").fetchone()
    writer.execute("UPDATE texts SET text = ?", ("b" * 3_000,))
    writer.execute("PRAGMA wal_checkpoint")
    header, size = path.read_bytes()[:100], path.stat().st_size
    assert size < int.from_bytes(header[16:18], "big") * int.from_bytes(header[28:32], "big")
    opened.check()
    reader.close()
    writer.close()


async def test_an_engine_stops_on_a_file_that_is_gone(path: Path) -> None:
    store = await SqlStore.open(f"sqlite:///{path}")
    async with running(an_engine(store)) as engine:
        await a_user(engine)
        remove(path)
        with pytest.raises(
            Unavailable, match=r"could not store the change: the store .* was removed while the master runs"
        ):
            await a_user(engine, "bob")
        assert engine.stopped is not None
    await store.close()


# ------------------------------------------------------------------------------------------------------------ at a start


@pytest.mark.parametrize("left", [None, b""])
async def test_a_missing_or_empty_database_where_a_cluster_was_is_refused(
    store: SqlStore, path: Path, left: bytes | None
) -> None:
    await store.close()
    leave(path, left)
    with pytest.raises(
        FailedPrecondition, match=r"master\.db is (missing|empty), and .*cluster marks it .*restore a backup"
    ):
        await SqlStore.open(f"sqlite:///{path}")
    assert found(path) == left, "nothing was made"
    marker_of(path).unlink()
    again = await SqlStore.open(f"sqlite:///{path}")
    assert (await again.load()).sequence == 0, "a new cluster, on purpose"
    await again.close()


async def test_a_database_of_before_the_mark_gets_one_and_a_restored_backup_needs_nothing(
    store: SqlStore, path: Path, tmp_path: Path
) -> None:
    await store.close()
    marker_of(path).unlink()
    await (await SqlStore.open(f"sqlite:///{path}")).close()
    assert "to start a new cluster" in marker_of(path).read_text().lower()
    assert marker_of(path).stat().st_mode & 0o777 == 0o600
    elsewhere = tmp_path / "moved" / "master.db"
    elsewhere.parent.mkdir()
    shutil.copyfile(path, elsewhere)
    for place in (elsewhere, path):
        again = await SqlStore.open(f"sqlite:///{place}")
        assert (await again.load()).sequence == 1
        await again.close()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_the_database_is_for_the_user_of_the_master_alone(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = await SqlStore.open(f"sqlite:///{path}")
    finally:
        os.umask(before)
    await store.commit(a_change(1, upserts=(a_counter(),)))
    modes = [mode_of(path.with_name(path.name + suffix)) for suffix in ("", "-wal", "-shm")]
    await store.close()
    assert modes == [0o600] * 3


async def test_a_database_that_others_could_read_is_told_of_and_mended(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await SqlStore.open(f"sqlite:///{path}")
    await store.commit(a_change(1, upserts=(a_counter(),)))
    await store.close()
    change_mode(path, 0o644)
    caplog.clear()
    store = await SqlStore.open(f"sqlite:///{path}")
    await store.close()
    assert mode_of(path) == 0o600
    (told,) = [record.message for record in caplog.records if "was open to other users (mode 644)" in record.message]
    assert str(path) in told


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def change_mode(path: Path, mode: int) -> None:
    path.chmod(mode)
