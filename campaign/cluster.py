"""The cluster under test: real programs with points, several small elastic pools, SQLite or a private PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import psutil

from campaign.points import children, parent
from resolute.client.sdk import Experiment, Resolute
from support.live import LiveCluster
from support.postgres import PostgresServer

POOLS = 3
"""Number of pools. A pool that pauses after a machine died during its boot does not stop the others."""

STEPS = 80
CHECKPOINT_EVERY = 4
STEP_S = 0.08

IN_TASKS = "/determined_shared_fs"
"""Environment variable with the checkpoint storage, for tasks."""

CODE = ("__init__.py", "points.py", "trial.py")
"""Files of this package that the trial imports."""

HERE = Path(__file__).resolve().parent


class CampaignCluster(LiveCluster):
    """Without `server` the store is SQLite."""

    agent_program = "campaign.agent"
    machine_program = "campaign.machine"
    task_program = "campaign.trial"

    def __init__(self, directory: Path, server: PostgresServer | None = None) -> None:
        self.server = server
        self.database = server.new_database() if server is not None else ""
        config: dict[str, Any] = {"resource_pools": [_pool(f"pool-{number}") for number in range(1, POOLS + 1)]}
        config["resource_manager"] = {"default_compute_resource_pool": "pool-1", "default_aux_resource_pool": "pool-1"}
        if server is not None:
            config["db"] = server.db_config(self.database)
        super().__init__(directory, **config)
        self.database_file = directory / "state" / "resolute.db"
        self.orders = self.storage / "orders"
        for name in ("struck", "pids"):
            (self.orders / name).mkdir(parents=True)
        self.master_program = ("campaign.master", str(self.orders))
        # The environment of a master, which machines and agents inherit. Modules are compiled once, as in an installation, even if
        # PYTHONDONTWRITEBYTECODE is set.
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")])),
        }
        self.write_pids()

    def spawn(self) -> None:
        super().spawn()
        self.write_pids()

    def write_pids(self) -> None:
        """Writes the process ids of master and database server for the points of other programs."""
        found = {"master": self.master.pid if self.master else 0, "database": self.server.pid if self.server else 0}
        for name, pid in found.items():
            beside = self.orders / "pids" / f".{name}"
            beside.write_text(str(pid))
            beside.replace(self.orders / "pids" / name)

    def submit_work(self, client: Resolute, name: str, pool: int) -> Experiment:
        """An experiment with a unique upload."""
        context = self.directory / "contexts" / name
        if not context.exists():  # A retry sends the same bytes, including times.
            (context / "campaign").mkdir(parents=True)
            for file in CODE:
                shutil.copy(HERE / file, context / "campaign" / file)
            (context / "name.txt").write_text(name)
        config = {
            "name": name,
            "entrypoint": "python3 -m campaign.trial",
            "searcher": {"name": "single", "metric": "loss", "max_length": 1000000},
            "hyperparameters": {
                "script": [f"report {STEPS} every {STEP_S}s", f"checkpoint every {CHECKPOINT_EVERY}"],
                "event_log": f"{IN_TASKS}/event_log/",
                "orders": f"{IN_TASKS}/orders",
            },
            "resources": {"slots_per_trial": 1, "resource_pool": f"pool-{pool}"},
            "max_restarts": 10_000,
            "checkpoint_storage": {
                "type": "shared_fs",
                "host_path": str(self.storage),
                "save_trial_latest": 10_000,  # The checks compare every checkpoint with the storage.
            },
        }
        return client.create_experiment(config, model_dir=context)

    def hosts(self) -> list[psutil.Process]:
        """Machines with work."""
        return [psutil.Process(parent(machine.pid)) for machine in self.working_machines()]

    def connections(self) -> int:
        """Number of the master's connections to its database server; 0 for SQLite."""
        if self.server is None:
            return 0
        counting = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{self.database}'"
        return int(self.server.execute(counting))

    def select(self, statement: str) -> list[str]:
        """The first column of a query on the store, as text. Call it only while no master uses the store."""
        if self.server is not None:
            return [line for line in self.server.execute(statement, self.database).splitlines() if line]
        connection = sqlite3.connect(self.database_file)
        try:
            return [str(row[0]) for row in connection.execute(statement)]
        finally:
            connection.close()

    def backends(self) -> list[int]:
        """Processes of the database server that serve a connection of the master."""
        if self.server is None or not self.server.pid:
            return []
        names = {pid: Path(f"/proc/{pid}/cmdline") for pid in children(self.server.pid)}
        return [pid for pid, file in names.items() if f" {self.database} " in _text(file)]


def _text(file: Path) -> str:
    try:
        return file.read_text().replace("\0", " ")
    except OSError:
        return ""


def _pool(name: str) -> dict[str, Any]:
    return {
        "pool_name": name,
        "agent_reconnect_wait": "180s",  # No lease expires while killed masters start on a busy machine.
        "provider": {
            "type": "local",
            "slots_per_instance": 1,
            "max_instances": 1,
            "max_idle_agent_period": "8s",
            "price_per_hour": 1,
        },
    }
