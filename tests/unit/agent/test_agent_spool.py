"""Output on the machine: how much of it may be unstored, and what is freed once it is stored."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute_agent import supervisor
from resolute_agent.runtimes.disk_space import BLOCK_BYTES, FREED_AT_ONCE_BYTES, free_stored
from resolute_agent.supervisor import MAX_UNSTORED_BYTES, Stream


class Stored:
    """Up to where the master has it."""

    to = 0
    asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return self.to


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def stream(tmp_path: Path, stored: Stored) -> Iterator[Stream]:
    stream = Stream(str(tmp_path / "stdout"), stored, limit=1000)
    yield stream
    for descriptor in (stream.source, stream.sink, stream.file, stream.times):
        os.close(descriptor)


def write(stream: Stream, count: int) -> None:
    os.write(stream.sink, b"x" * count)
    while stream.copy():
        pass


def test_a_task_waits_at_the_limit_and_not_before(stream: Stream, stored: Stored) -> None:
    write(stream, 999)
    assert not stream.held() and stored.asked == 0
    write(stream, 1)
    assert stream.held() and stored.asked == 1
    assert stream.held() and stored.asked == 1  # not at each turn of its loop
    stored.to, stream.looked = 1, 0.0
    assert not stream.held() and not stream.held() and stored.asked == 2


def test_what_a_restarted_supervisor_finds_counts(tmp_path: Path, stored: Stored, stream: Stream) -> None:
    write(stream, 1000)
    again = Stream(str(tmp_path / "stdout"), stored, limit=1000)
    assert again.held()
    for descriptor in (again.source, again.sink, again.file, again.times):
        os.close(descriptor)


@pytest.mark.parametrize(("unstored", "waits"), [(MAX_UNSTORED_BYTES - 1, False), (MAX_UNSTORED_BYTES, True)])
def test_without_another_order_so_much_may_be_unstored(
    tmp_path: Path, stored: Stored, unstored: int, waits: bool
) -> None:
    path = tmp_path / "stdout"
    path.touch()
    os.truncate(path, unstored)  # a hole: it takes no room
    stream = Stream(str(path), stored)
    assert stream.held() is waits
    for descriptor in (stream.source, stream.sink, stream.file, stream.times):
        os.close(descriptor)


def test_the_master_s_word_is_read_where_the_agent_writes_it(tmp_path: Path) -> None:
    reader = supervisor.Supervisor.__new__(supervisor.Supervisor)  # without the signals of a process of its own
    reader.directory = str(tmp_path)
    assert reader.stored("stdout") == 0
    supervisor.write_whole(str(tmp_path / supervisor.OFFSETS), b'{"stdout": 7, "stderr": 1}')
    assert (reader.stored("stdout"), reader.stored("stderr"), reader.stored("other")) == (7, 1, 0)


def test_nothing_is_read_from_the_pipe_of_a_task_that_has_to_wait(
    tmp_path: Path, stream: Stream, stored: Stored
) -> None:
    owner = supervisor.Supervisor.__new__(supervisor.Supervisor)
    owner.streams = [stream]
    owner.woken, wake = os.pipe()
    os.set_blocking(owner.woken, False)
    write(stream, 1000)
    os.write(stream.sink, b"more")
    owner.copy_output(0.0)
    assert stream.length == 1000
    stored.to, stream.looked = 4, 0.0
    owner.copy_output(0.0)
    assert stream.length == 1004 and (tmp_path / "stdout").read_bytes().endswith(b"xmore")
    os.close(owner.woken)
    os.close(wake)


def test_stored_output_takes_no_space_and_keeps_its_offsets(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    size = FREED_AT_ONCE_BYTES + 2 * BLOCK_BYTES
    with path.open("wb") as file:
        for _ in range(size // BLOCK_BYTES):
            file.write(os.urandom(16).ljust(BLOCK_BYTES, b"y"))
        os.fsync(file.fileno())
    before = path.stat().st_blocks
    assert free_stored(path, freed=0, stored=FREED_AT_ONCE_BYTES) == 0  # less than is worth it: one block always stays
    assert path.stat().st_blocks == before
    freed = free_stored(path, freed=0, stored=size - 1)
    assert freed == size - BLOCK_BYTES
    assert path.stat().st_size == size
    with path.open("rb") as file:
        file.seek(freed)
        assert file.read().endswith(b"y")
    assert path.stat().st_blocks < before // 2
    assert free_stored(path, freed=freed, stored=size) == freed


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: str, data: bytes, *, durable: bool = True) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor, "write_whole", write)


def test_small_files_are_written_on_a_full_disk_where_the_last_one_or_its_reserve_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, kill, other = (str(tmp_path / name) for name in ("lease", "kill.json", "other"))
    supervisor.write_small(lease, b"1.0 2.0")
    supervisor.reserve(kill)
    inode = os.stat(lease).st_ino
    full(monkeypatch)
    supervisor.write_small(lease, b"3.0 4.0")
    supervisor.write_small(kill, b'{"grace_s": 1}')
    supervisor.write_small(kill, b'{"grace_s": 0}')
    with pytest.raises(OSError, match="No space"):
        supervisor.write_small(other, b"x")
    assert Path(lease).read_text().split() == ["3.0", "4.0"] and os.stat(lease).st_ino == inode
    assert supervisor.read_json(kill) == {"grace_s": 0}
    assert sorted(os.listdir(tmp_path)) == ["kill.json", "lease"]


def test_what_may_wait_waits_for_the_disk_or_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOOK_EVERY_S", 0.0)
    path, looks = str(tmp_path / "exit.json"), iter((False, False, True))
    with monkeypatch.context() as while_full:
        full(while_full)
        supervisor.write_waiting(path, b"{}", until=lambda: next(looks))
    assert not os.path.exists(path) and next(looks, None) is None
    supervisor.write_waiting(path, b"{}")
    assert supervisor.read_json(path) == {}
