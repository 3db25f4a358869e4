"""A gang saves one checkpoint in shards to a bucket and goes on from it on machines that never saw the first ones' disks.

Each rank is a thread with a link of its own, each pair of ranks a machine with a directory of its own.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resolute import core
from resolute.core.distributed import DistributedContext
from resolute.errors import ResoluteError
from resolute.storage import CorruptCheckpoint
from resolute.storage.objects import ObjectStorage
from resolute.storage.s3 import S3Bucket
from resolute.storage.staging import Staging
from support.object_stores import ObjectStore, a_place, moto_store

RANKS, ON_A_MACHINE = 4, 2


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with moto_store() as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environ.items():
            patch.setenv(name, value)
        yield made


class Gang:
    """Ranks on two machines; `fetched` counts the files that each machine has downloaded."""

    def __init__(self, store: ObjectStore, place: str, directory: Path) -> None:
        self._config = a_place(store, place).config
        self._directory = directory
        self.fetched: dict[int, Counter[str]] = {0: Counter(), 1: Counter()}

    def storage(self, machine: int) -> ObjectStorage:
        bucket = S3Bucket(self._config["bucket"], endpoint_url=self._config["endpoint_url"])
        really, fetched = bucket.download, self.fetched[machine]

        def download(key: str, path: Path) -> None:
            fetched[key.rpartition("/")[2]] += 1
            really(key, path)

        bucket.download = download  # type: ignore[method-assign]
        return ObjectStorage(
            bucket, prefix=self._config["prefix"], staging=Staging(self._directory / f"machine-{machine}")
        )

    def run(self, key: str, work: Callable[[core.Context], Any]) -> list[Any]:
        """What each rank gives; exceptions are results."""
        results: list[Any] = [None] * RANKS

        def one(rank: int) -> None:
            machine, local = divmod(rank, ON_A_MACHINE)
            try:
                distributed = DistributedContext(
                    rank=rank,
                    size=RANKS,
                    local_rank=local,
                    local_size=ON_A_MACHINE,
                    cross_rank=machine,
                    cross_size=RANKS // ON_A_MACHINE,
                    key=f"{os.getpid()}-{key}",
                )
                with core.init(
                    environ={}, distributed=distributed, checkpoint_storage=self.storage(machine)
                ) as context:
                    results[rank] = work(context)
            except BaseException as error:
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return results


def save(context: core.Context) -> str:
    rank = context.distributed.rank
    with context.checkpoint.store_path({"steps_completed": 7}, shard=True) as (path, uuid):
        (path / f"shard-{rank}").write_bytes(bytes([rank]) * 100_000)
        (path / "config").write_text("the same on every rank")
    return uuid


def test_shards_of_every_rank_come_back_on_other_machines_once_for_each(store: ObjectStore, tmp_path: Path) -> None:
    saved = Gang(store, "restored", tmp_path / "first").run("save", save)
    assert len(set(saved)) == 1, saved

    def restore(context: core.Context) -> tuple[str, list[bytes]]:
        with context.checkpoint.restore_path(saved[0]) as path:
            return str(path), [(path / f"shard-{rank}").read_bytes()[:1] for rank in range(RANKS)]

    gang = Gang(store, "restored", tmp_path / "second")
    restored = gang.run("restore", restore)
    assert [shards for _, shards in restored] == [[bytes([rank]) for rank in range(RANKS)]] * RANKS
    places = [place for place, _ in restored]
    assert places[0] == places[1] != places[2] == places[3]
    names = {"config", "manifest.json", "metadata.json", *(f"shard-{rank}" for rank in range(RANKS))}
    assert gang.fetched == {machine: Counter(dict.fromkeys(names, 1)) for machine in (0, 1)}
    assert not any(Path(place).exists() for place in places)


def test_each_rank_may_fetch_its_own_shard_alone(store: ObjectStore, tmp_path: Path) -> None:
    saved = Gang(store, "own", tmp_path / "first").run("save own", save)

    def restore(context: core.Context) -> bytes:
        name = f"shard-{context.distributed.rank}"
        mode = core.DownloadMode.NoSharedDownload
        with context.checkpoint.restore_path(saved[0], mode, selector=lambda path: path == name) as path:
            assert [found.name for found in path.iterdir()] == [name]
            return (path / name).read_bytes()

    gang = Gang(store, "own", tmp_path / "second")
    assert gang.run("restore own", restore) == [bytes([rank]) * 100_000 for rank in range(RANKS)]
    assert gang.fetched == {0: Counter({"shard-0": 1, "shard-1": 1}), 1: Counter({"shard-2": 1, "shard-3": 1})}


def test_a_shard_that_is_damaged_stops_every_rank(store: ObjectStore, tmp_path: Path) -> None:
    gang = Gang(store, "damaged", tmp_path / "first")
    (uuid, *_) = gang.run("save damaged", save)
    storage = gang.storage(0)
    storage._bucket.put(f"{storage._above}{uuid}/shard-3", bytes(100_000))

    def restore(context: core.Context) -> None:
        with context.checkpoint.restore_path(uuid):
            raise AssertionError("the damage was not found")

    found = Gang(store, "damaged", tmp_path / "second").run("restore damaged", restore)
    assert all(isinstance(error, CorruptCheckpoint) and "shard-3" in str(error) for error in found), found


def test_a_rank_that_dies_while_it_uploads_leaves_nothing_visible(store: ObjectStore, tmp_path: Path) -> None:
    gang = Gang(store, "died", tmp_path / "first")

    def die(context: core.Context) -> str:
        if context.distributed.rank == 3:
            really = context.checkpoint.storage.put

            def put(uuid: str, part: str, names: Any) -> None:
                really(uuid, part, list(names)[:1])
                context.distributed.close()  # as the kernel does for a process that was killed
                raise SystemExit(137)

            context.checkpoint.storage.put = put  # type: ignore[method-assign]
        return save(context)

    found = gang.run("die", die)
    assert all(isinstance(error, ResoluteError) for error in found[:3]), found
    assert gang.storage(0).list() == ()
