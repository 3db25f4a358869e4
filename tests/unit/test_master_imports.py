"""What a master does not import: a start again is waited for, and a third of it is imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

OF_OTHER_MASTERS = {
    "alembic": "a database of an older version",
    "asyncpg": "PostgreSQL",
    "sqlalchemy.dialects.postgresql": "PostgreSQL",
    "sqlalchemy.orm": "nobody: the store uses SQLAlchemy's Core alone",
    "boto3": "pools and storage on AWS",
    "botocore": "pools and storage on AWS",
    "google": "pools and storage on Google Cloud",
    "opentelemetry": "traces",
    "docker": "the agent",
    "httpx": "the client",
    "rich": "the command line",
    "resolute_cli": "the command line",
    "resolute_sim": "the simulation",
}
"""Who needs it, if not a master on SQLite with a pool of the local cloud."""

SERVED_LATER = {
    "resolute_master.api.app",
    "resolute_master.api.resources.experiments",
    "resolute.wire.rest.experiments",
    "resolute.wire.rest.extensions",
}
"""Some of what is imported when the agents have their links."""

FOR_TOKENS = {"jwt", "cryptography"}
"""Of tasks, which are started when they are placed."""

OF_LOCAL_POOLS = {"psutil", "resolute_provisioner.clouds.local.cloud"}

PROGRAM = """
import asyncio
import sys
from pathlib import Path
from resolute.clock import SystemClock
from resolute.config import load_master_config
from resolute_master import main
from resolute_master.pools.clouds import check, cloud_of
from resolute_provisioner.clouds.driver import CloudPlace
config = load_master_config(sys.argv[1], {}, {})
check(config)
place = CloudPlace(directory=Path(sys.argv[2]), environ={}, clock=SystemClock(), wheel=lambda: None)
clouds = [cloud_of(pool, place) for pool in config.resource_pools]
assert [cloud is None for cloud in clouds] == [pool.provider is None for pool in config.resource_pools]
print(*sys.modules, sep='\\n')
if len(sys.argv) > 3:
    from resolute_master.api.loading import loaded_routes
    print('then')
    asyncio.run(loaded_routes())
    print(*sys.modules, sep='\\n')
"""


def imported(directory: Path, pools: list[dict[str, object]], *, later: bool = False) -> set[str]:
    """By a master on SQLite with these pools, until it opens its store; or what it imports `later`."""
    file = directory / "master.yaml"
    file.write_text(yaml.safe_dump({"db": {"type": "sqlite"}, "resource_pools": pools}))
    command = [sys.executable, "-c", PROGRAM, str(file), str(directory), *["later"] * later]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    before, _, after = done.stdout.partition("\nthen\n")
    return set(after.split()) - set(before.split()) if later else set(before.split())


def test_a_master_imports_nothing_that_only_other_masters_need(tmp_path: Path) -> None:
    pool: dict[str, object] = {"pool_name": "default", "provider": {"type": "local", "max_instances": 2}}
    found = imported(tmp_path, [pool])
    assert found >= {"aiohttp", *OF_LOCAL_POOLS}
    assert found.isdisjoint(OF_OTHER_MASTERS), found & OF_OTHER_MASTERS.keys()


def test_a_master_without_elastic_pools_imports_no_cloud(tmp_path: Path) -> None:
    found = imported(tmp_path, [{"pool_name": "default"}])
    assert "aiohttp" in found
    assert found.isdisjoint(OF_LOCAL_POOLS), found & OF_LOCAL_POOLS


def test_the_routes_and_their_shapes_are_imported_when_agents_have_their_links(tmp_path: Path) -> None:
    pools: list[dict[str, object]] = [{"pool_name": "default"}]
    found = imported(tmp_path, pools)
    assert "resolute_master.api.http.doors" in found and found.isdisjoint(SERVED_LATER), found & SERVED_LATER
    assert found.isdisjoint(FOR_TOKENS), found & FOR_TOKENS
    assert imported(tmp_path, pools, later=True) >= SERVED_LATER


STEPS = """
import asyncio
import importlib
import sys
import resolute_master.main
from resolute_master.api import loading
known = set(sys.modules)
def imported(name, importing=importlib.import_module):
    global known
    found = importing(name)
    print(name, *sorted(set(sys.modules) - known - {name}))
    known = set(sys.modules)
    return found
importlib.import_module = imported
asyncio.run(loading.loaded_routes())
"""

AT_ONCE = 6
"""Modules of the API in one step: some are small."""


def test_the_shapes_are_imported_one_in_a_step_and_of_the_api_few() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    steps = [line.split() for line in done.stdout.splitlines()]
    assert "resolute.wire.rest.allocations" in {name for name, *_ in steps}
    for name, *others in steps:
        assert not [other for other in others if other.startswith("resolute.wire.rest.")], name
        assert len(others) < AT_ONCE, f"{name} imports {others}"
