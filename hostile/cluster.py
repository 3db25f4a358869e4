"""The attacked cluster, with secrets in the configuration of its master, and users of its HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from resolute.wire.rest.passwords import hash_password
from support.live import PASSWORD, LiveCluster
from support.postgres import PostgresServer
from support.seeded_secrets import SecretSeeder

OF_ALL_TASKS = "a variable of all tasks"
"""Place of the only secret that the attackers' tasks receive."""


class HostileCluster(LiveCluster):
    """Pool `default` belongs to the victims; `tasks` has a machine for the attackers' tasks, and `rogue` their agent."""

    def __init__(self, directory: Path, seeder: SecretSeeder, server: PostgresServer | None = None) -> None:
        self.seeder = seeder
        provider = {
            "type": "local",
            "slots_per_instance": 1,
            "max_instances": 1,
            "max_idle_agent_period": "2h",
        }
        never = {"type": "priority", "preemption": False}
        config: dict[str, Any] = {
            "resource_manager": {
                "type": "agent",
                "scheduler": never,
                "default_compute_resource_pool": "default",
                "default_aux_resource_pool": "default",
            },
            "resource_pools": [
                {"pool_name": "default", "agent_reconnect_wait": "60s", "provider": provider, "scheduler": never},
                {"pool_name": "tasks", "agent_reconnect_wait": "60s", "provider": provider},
                {"pool_name": "rogue", "agent_reconnect_wait": "60s"},
            ],
            "security": {
                "initial_user_password": PASSWORD,
                "secrets": {"environment_patterns": ["MYSTERY_*"]},
                "agents": {"join_token": seeder.secret("join token of the cluster") + "-" + "j" * 32},
            },
            "observability": {"metrics_token": seeder.secret("observability.metrics_token")},
            "webhooks": {"signing_key": seeder.secret("webhooks.signing_key")},
            "telemetry": {"segment_master_key": seeder.secret("telemetry.segment_master_key")},
            "task_container_defaults": {
                "registry_auth": {"username": "u", "password": seeder.secret("registry_auth of all tasks")},
                "environment_variables": [f"CLUSTER_TOKEN={seeder.secret(OF_ALL_TASKS)}"],
            },
        }
        if server is not None:
            config["db"] = server.db_config(server.new_database())
        super().__init__(directory, **config)

    @property
    def pid(self) -> int:
        return self.master.pid if self.master is not None else 0


class Person:
    """A logged-in user of the HTTP API."""

    def __init__(self, cluster: LiveCluster, name: str, password: str = PASSWORD) -> None:
        self._http = httpx.Client(base_url=cluster.url, timeout=60)
        said = self.call(
            "POST", "/api/v1/auth/login", {"username": name, "password": hash_password(password), "isHashed": True}
        )
        self.token: str = said["token"]
        self.id = int(said["user"]["id"])
        self._http.headers["Authorization"] = f"Bearer {self.token}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Raises `AssertionError` for any status but 200."""
        answer = self._http.request(method, path, json=body)
        assert answer.status_code == 200, f"{method} {path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json()

    def read(self, path: str) -> httpx.Response:
        return self._http.get(path)

    def close(self) -> None:
        self._http.close()
