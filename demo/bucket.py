"""The variant with checkpoints in a bucket: a local S3 (moto), which outlives every machine of the cluster.

`verify` reads files. So the content of the bucket is downloaded into the folder at the end, through the storage port.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from demo.cluster import Companion, free_port
from demo.folder import Folder
from resolute.errors import Unavailable
from resolute.storage import MANIFEST_NAME, CheckpointStorage, Manifest, storage_from_config

BUCKET = "checkpoints"
STARTED_WITHIN_S = 60.0
IDENTITY = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo", "AWS_DEFAULT_REGION": "us-east-1"}
"""Credentials, of which moto accepts any."""


def start(folder: Folder) -> Companion:
    """Starts an S3 with an empty bucket, and writes its address to the folder. This process and its children may use it."""
    port = free_port()
    server = Companion("S3", ["moto.server", "-H", "127.0.0.1", "-p", str(port)], folder.root / "s3.log")
    until = time.monotonic() + STARTED_WITHIN_S
    while not _answers(port):
        server.check()
        if time.monotonic() > until:
            raise Unavailable(f"moto does not start; see s3.log in {folder.root}")
        time.sleep(0.1)
    os.environ |= IDENTITY
    import boto3

    address = f"http://127.0.0.1:{port}"
    boto3.client("s3", endpoint_url=address).create_bucket(Bucket=BUCKET)
    folder.bucket.write_text(json.dumps({"type": "s3", "bucket": BUCKET, "endpoint_url": address, "prefix": "demo"}))
    return server


def configured(folder: Folder) -> Mapping[str, Any] | None:
    """`checkpoint_storage` of this run's bucket; None if there is none."""
    return json.loads(folder.bucket.read_text()) if folder.bucket.exists() else None


def fetch(folder: Folder) -> int:
    """Downloads all committed checkpoints into the folder. Returns their number."""
    config = configured(folder)
    if config is None:
        return 0
    storage = storage_from_config(config, shared_fs_mount=None)
    missing = [uuid for uuid in storage.list() if not (folder.checkpoints / uuid).exists()]
    for uuid in missing:
        _fetch(storage, folder, uuid)
    return len(missing)


def _fetch(storage: CheckpointStorage, folder: Folder, uuid: str) -> None:
    """Sets the manifest's time to that in the bucket, which is the time of publication for `verify`."""
    arriving = folder.checkpoints / f"{uuid}.partial"
    with storage.restore(uuid) as path:
        shutil.copytree(path, arriving)
    manifest = Manifest.from_bytes(uuid, storage.manifest(uuid))
    with storage.open(uuid) as stored:
        published = next(file.modified for file in stored.files() if file.path == MANIFEST_NAME)
    # The store has times in whole seconds; a checkpoint is never published before its creation.
    moment = max(published, datetime.fromisoformat(manifest.created).timestamp())
    os.utime(arriving / MANIFEST_NAME, (moment, moment))
    arriving.rename(folder.checkpoints / uuid)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
