"""Common parts of the test environments of `det deploy` on all clouds: a database in the network of machines, and packages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from support.booted_machines import BootedMachine, Network
from support.cloud_bridge import CloudBridge
from support.det import Det
from support.postgres import USER, PostgresServer

PIP_OPTIONS = "--no-index --no-compile"
"""Disables compilation: most installed modules are not imported, and compiling all of them would dominate the installation."""

CHECKOUT = Path(__file__).resolve().parents[2]


class DeployWorld(Protocol):
    """An account, its network of machines, and a substitute for the account's database. `flags` are those of `up`."""

    cloud: str
    directory: Path
    flags: tuple[str, ...]

    @property
    def bridge(self) -> CloudBridge: ...

    def deploy(self, *arguments: str) -> str:
        """Runs `det deploy <cloud> ...` with the account's credentials. Raises `AssertionError` if it fails."""
        ...

    def master(self, machine: str) -> BootedMachine:
        """The machine of that name."""
        ...

    def checkpoints(self, bucket: str) -> list[str]:
        """Keys of the bucket below `checkpoints/`."""
        ...

    def remaining(self) -> list[str]:
        """Names of all new resources of the account, regardless of their labels."""
        ...


def det_deploy(cloud: str, det: Det, *arguments: str, variables: Mapping[str, str]) -> str:
    ran = det.run("deploy", cloud, *arguments, variables=variables, within_s=900)
    assert ran.returncode == 0, (
        f"det deploy {cloud} {' '.join(arguments)}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    )
    return ran.stdout + ran.stderr


def wheelhouse(directory: Path) -> Path:
    """Packages of the master's machine, downloaded if there is a network."""
    command = [sys.executable, "-m", "pip", "download", "-qqq", "--only-binary", ":all:", "--require-hashes"]
    subprocess.run([*command, "-r", str(CHECKOUT / "requirements" / "master.lock"), "-d", str(directory)], check=True)
    return directory


@contextmanager
def database_of_cluster(network: Network) -> Iterator[tuple[str, ...]]:
    """A PostgreSQL server for the machines. Yields `key=value` of `--existing-database`, without the password's secret."""
    # Where the account `postgres` may read: the directories of tests are closed.
    with tempfile.TemporaryDirectory(prefix="resolute-deploy-") as name:
        place = Path(name)
        place.chmod(0o755)
        server = PostgresServer(place / "postgres", settings={"listen_addresses": network.host})
        server.host = network.host
        with (place / "postgres" / "data" / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all {USER} 10.0.0.0/8 scram-sha-256\n")
        server.start()
        try:
            told = {"host": server.host, "port": server.port, "name": server.new_database(), "user": USER}
            yield (*(f"{key}={value}" for key, value in told.items()), "ssl_mode=disable")
        finally:
            server.stop()
