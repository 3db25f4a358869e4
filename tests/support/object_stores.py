"""Local object stores for the vendors' clients: moto, the Google emulator and Azurite."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's well-known key."""

STARTED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """`config` is an existing bucket as `checkpoint_storage`; `environ` contains further variables for a client."""

    config: Mapping[str, Any]
    environ: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


def azurite() -> str | None:
    """The program that `npm install` has installed."""
    own = ROOT / "node_modules" / ".bin" / "azurite-blob"
    return str(own) if own.exists() else shutil.which("azurite-blob")


@contextmanager
def moto_store(bucket: str = "checkpoints") -> Iterator[ObjectStore]:
    """S3, by moto."""
    port = free_port()
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port):
        yield moto_bucket(f"http://127.0.0.1:{port}", bucket)


def moto_bucket(address: str, bucket: str) -> ObjectStore:
    """Creates a bucket."""
    import boto3

    environ = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    client.create_bucket(Bucket=bucket)
    client.close()
    config = {"type": "s3", "bucket": bucket, "endpoint_url": address, "prefix": "some/where"}
    return ObjectStore(config=config, environ=environ, address=address)


@contextmanager
def google_store(bucket: str = "checkpoints", address: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """Google Cloud Storage, by gcp-storage-emulator."""
    port = free_port(address)
    command = [
        sys.executable, "-m", "gcp_storage_emulator", "start", "--host", address, "--port", str(port), "--in-memory",
        "--default-bucket", bucket,
    ]  # fmt: skip
    with _running(command, port, address):
        environ = {"STORAGE_EMULATOR_HOST": f"http://{address}:{port}"}
        config = {"type": "gcs", "bucket": bucket, "prefix": "some/where"}
        yield ObjectStore(config=config, environ=environ, address=environ["STORAGE_EMULATOR_HOST"])


@contextmanager
def azure_store(container: str = "checkpoints") -> Iterator[ObjectStore]:
    """Azure Blob Storage, by Azurite."""
    from azure.storage.blob import BlobServiceClient

    program = azurite()
    assert program is not None, "the test is marked with needs('azurite')"
    port = free_port()
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent",
               "--skipApiVersionCheck", "--disableTelemetry"]  # fmt: skip
    with _running(command, port):
        address = f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
        text = (
            f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};BlobEndpoint={address};"
        )
        with BlobServiceClient.from_connection_string(text) as service:
            service.create_container(container)
        config = {"type": "azure", "container": container, "connection_string": text}
        yield ObjectStore(config=config, address=address)


class Stores:
    """Every store by its type in a configuration."""

    programs: Mapping[str, Callable[[], AbstractContextManager[ObjectStore]]] = {
        "s3": moto_store,
        "gcs": google_store,
        "azure": azure_store,
    }

    @contextmanager
    def session(self) -> Iterator[Callable[[str], ObjectStore]]:
        """Yields a function that starts a store at its first call. All stores end with the context."""
        with ExitStack() as stack:
            yield cache(lambda kind: stack.enter_context(self.programs[kind]()))


STORES = Stores()


def a_place(store: ObjectStore, name: str) -> ObjectStore:
    """An empty place in the store: a new prefix, or on Azure, which has none, a new container."""
    config = dict(store.config)
    if config["type"] == "azure":
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(config["connection_string"]) as service:
            service.create_container(name)
        return replace(store, config={**config, "container": name})
    return replace(store, config={**config, "prefix": f"some/{name}"})


@contextmanager
def _running(command: list[str], port: int, address: str = "127.0.0.1") -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + STARTED_WITHIN_S
        while not _answers(port, address):
            assert process.poll() is None and time.monotonic() < end, f"{command[0]} does not start"
            time.sleep(0.1)
        yield
    finally:
        process.kill()
        process.wait()


def _answers(port: int, address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
