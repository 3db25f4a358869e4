"""Checkpoints in a local bucket: rates of upload and download, latency after a notice, and rate of removal."""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import storage_notice, storage_removal
from benchmarks.cluster import disk
from benchmarks.report import Row, Spread, Target, ratio
from benchmarks.storage_server import BUCKET, Server, server
from resolute.storage import storage_from_config

FILES, FILE_BYTES = 16, 64 * 1024**2
ROUNDS = 2
WARM_UP = 2
"""Files of the round before them."""


def main() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="resolute-bench-", dir=disk()) as name:
        directory = Path(name)
        with server({"TMPDIR": name}) as store:
            return [
                *_transfers(store, directory),
                *storage_notice.rows(store, directory),
                *storage_removal.rows(store, directory),
            ]


# -------------------------------------------------------------------------------------------------------- transfers


class Copies:
    """Uploads and downloads of the same files by the storage port, and by boto3's transfer manager with its default settings."""

    def __init__(self, store: Server, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._files = directory / "files"
        self._files.mkdir()
        self.names = [f"shard-{number:02}" for number in range(FILES)]
        for name in self.names:
            (self._files / name).write_bytes(os.urandom(FILE_BYTES))
        tempfile.tempdir = str(directory)  # Staged files are on the same disk, so that a link is enough.
        self._storage = storage_from_config(store.config("own"), shared_fs_mount=None)
        self._client = store.client()

    def only(self, count: int) -> Copies:
        """The first file."""
        few = copy.copy(self)
        few.names = self.names[:count]
        return few

    def own_upload(self, uuid: str) -> Callable[[], None]:
        staged = self._storage.stage(uuid, "rank-0")
        for name in self.names:
            os.link(self._files / name, staged / name)

        def upload() -> None:
            self._storage.put(uuid, "rank-0", self.names)
            self._storage.commit(uuid, b"{}")

        return upload

    def own_download(self, uuid: str) -> Callable[[], None]:
        def download() -> None:
            with self._storage.restore(uuid) as path:
                self._check(path)

        return download

    def vendors_upload(self, prefix: str) -> Callable[[], None]:
        return lambda: self._transferred(
            lambda manager, name: manager.upload(str(self._files / name), BUCKET, f"{prefix}/{name}")
        )

    def vendors_download(self, prefix: str) -> Callable[[], None]:
        target = self._directory / "fetched"
        target.mkdir()

        def download() -> None:
            self._transferred(lambda manager, name: manager.download(BUCKET, f"{prefix}/{name}", str(target / name)))
            self._check(target)
            for name in self.names:
                (target / name).unlink()
            target.rmdir()

        return download

    def remove(self, uuid: str, prefix: str) -> None:
        self._storage.delete(uuid)
        self._client.delete_objects(
            Bucket=BUCKET, Delete={"Objects": [{"Key": f"{prefix}/{name}"} for name in self.names]}
        )

    def _transferred(self, begin: Callable[[Any, str], Any]) -> None:
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        with create_transfer_manager(self._client, TransferConfig()) as manager:
            for future in [begin(manager, name) for name in self.names]:
                future.result()

    def _check(self, path: Path) -> None:
        assert all((path / name).stat().st_size == FILE_BYTES for name in self.names)


def _transfers(store: Server, directory: Path) -> list[Row]:
    whole = Copies(store, directory)
    taken: dict[str, list[float]] = {"own upload": [], "upload": [], "own download": [], "download": []}
    for number in range(ROUNDS + 1):
        copies = whole if number else whole.only(WARM_UP)
        uuid, prefix = f"round-{number}", f"vendors/{number}"
        steps = [
            ("own upload", copies.own_upload(uuid)),
            ("upload", copies.vendors_upload(prefix)),
            ("own download", copies.own_download(uuid)),
            ("download", copies.vendors_download(prefix)),
        ]
        for name, step in steps if number % 2 else [steps[1], steps[0], steps[3], steps[2]]:
            begun = time.perf_counter()
            step()
            if number:
                taken[name].append(time.perf_counter() - begun)
        copies.remove(uuid, prefix)
    return [_transfer_row(name, taken[f"own {name}"], taken[name]) for name in ("upload", "download")]


def _transfer_row(name: str, own: list[float], vendors: list[float]) -> Row:
    mebibytes = FILES * FILE_BYTES / 1024**2
    return Row(
        name=f"{name} of 1 GiB in {FILES} files",
        subject=Spread.of([mebibytes / seconds for seconds in own], "MiB/s"),
        bound_name="boto3's transfer manager",
        bound=Spread.of([mebibytes / seconds for seconds in vendors], "MiB/s"),
        result=ratio(vendors, own),
        target=Target(at_least=0.9),
        notes="S3 by moto",
    )
