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
    "jinja2": "the first page of the web interface",
    "markdown_it": "the first page of the web interface",
    "pygments": "the first page that shows code",
    "rich": "the command line",
    "resolute_cli": "the command line",
    "resolute_sim.twin.advice": "the process that plays a history",
    "resolute_sim.world": "the simulation",
}
"""Who needs it, if not a master on SQLite with a pool of the local cloud."""

FOR_TOKENS = {"jwt", "cryptography"}
"""Modules for the tokens of tasks, which are loaded when tasks are placed."""

OF_LOCAL_POOLS = {"psutil", "resolute_provisioner.clouds.local.cloud"}

PROGRAM = """
import sys
from pathlib import Path
from resolute.clock import SystemClock
from resolute.config import load_master_config
from resolute_master import app, main
from resolute_master.pools.clouds import check, cloud_of
from resolute_provisioner.clouds.driver import CloudPlace
config = load_master_config(sys.argv[1], {}, {})
check(config)
place = CloudPlace(directory=Path(sys.argv[2]), environ={}, clock=SystemClock(), wheel=lambda: None)
clouds = [cloud_of(pool, place) for pool in config.resource_pools]
assert [cloud is None for cloud in clouds] == [pool.provider is None for pool in config.resource_pools]
print(*sys.modules, sep='\\n')
"""


def imported(directory: Path, pools: list[dict[str, object]]) -> set[str]:
    """By a master on SQLite with these pools, until it opens its store."""
    file = directory / "master.yaml"
    file.write_text(yaml.safe_dump({"db": {"type": "sqlite"}, "resource_pools": pools}))
    command = [sys.executable, "-c", PROGRAM, str(file), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_master_imports_nothing_that_only_other_masters_need(tmp_path: Path) -> None:
    pool: dict[str, object] = {"pool_name": "default", "provider": {"type": "local", "max_instances": 2}}
    found = imported(tmp_path, [pool])
    assert found >= {"aiohttp", *OF_LOCAL_POOLS}
    assert found.isdisjoint(OF_OTHER_MASTERS), found & OF_OTHER_MASTERS.keys()


def test_a_master_without_elastic_pools_imports_no_cloud(tmp_path: Path) -> None:
    found = imported(tmp_path, [{"pool_name": "default"}])
    assert "aiohttp" in found
    assert found.isdisjoint(OF_LOCAL_POOLS), found & OF_LOCAL_POOLS


def test_what_signs_tokens_is_imported_with_the_first_task(tmp_path: Path) -> None:
    found = imported(tmp_path, [{"pool_name": "default"}])
    assert "resolute_master.api.app" in found and found.isdisjoint(FOR_TOKENS), found & FOR_TOKENS
