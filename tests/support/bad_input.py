"""Reads the stored data of a master from its database, without the master's code."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

STORED = (
    "experiments",
    "trials",
    "jobs",
    "allocations",
    "checkpoints",
    "contexts",
    "outbox",
    "sessions",
    "metrics",
    "users",
)


def rows(database: Path) -> dict[str, int]:
    """Number of rows of each table that user requests write."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in STORED}


def intact(database: Path) -> bool:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        answer: str = connection.execute("PRAGMA integrity_check").fetchone()[0]
        return answer == "ok"


def write_master_config(directory: Path, free_port: int, **changes: Any) -> Path:
    config: Mapping[str, Any] = {
        "host": "127.0.0.1",
        "port": free_port,
        "cluster_state_dir": str(directory / "state"),
        "security": {"initial_user_password": "correct horse"},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(directory / "checkpoints")},
        "resource_pools": [{"pool_name": "default", "provider": {"type": "local", "max_instances": 1}}],
        **changes,
    }
    file = directory / "master.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def refused_start(config: Path, *, before: tuple[str, ...] = ()) -> tuple[int, str]:
    """(exit code, output) of a master that ends by itself. `before` is prepended to its command."""
    command = [*before, sys.executable, "-m", "resolute_master", "--config-file", str(config)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, ran.stderr


def files_may_grow_to(count: int) -> None:
    """Limits file sizes in a child process: a larger write fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, count))
