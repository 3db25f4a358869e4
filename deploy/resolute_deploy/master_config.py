"""Renders the configuration of a deployed master from the outputs of Terraform (facts)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from resolute.errors import InvalidInput
from resolute_deploy.cloud import CHECKPOINTS, Facts, facts_of

FORMAT = 1
SHARED_FILES = "/mnt/shared_fs"
"""The mount point of the shared file system on agents; tasks see it as shared_fs in their working directory."""


def master_config(facts: Mapping[str, Any], *, directory: str, addresses: tuple[str, ...]) -> dict[str, Any]:
    """The content of `master.yaml`. `directory` contains the files of secrets on the master's machine.

    The content does not include the password of the database: the master's libraries read it from the file that `PGPASSFILE` names,
    which is updated from the secret store. Raises `InvalidInput` if the facts are of a later version.
    """
    if facts.get("format") != FORMAT:
        raise InvalidInput(
            f"the cluster's facts have the format {facts.get('format')}, and this version reads {FORMAT}; "
            "take the version that made them"
        )
    cloud = facts_of(facts["cloud"])
    database = facts["database"]
    config: dict[str, Any] = {
        "cluster_name": facts["cluster_id"],
        "port": facts["port"],
        "security": {
            "tls": {"enabled": True, "names": list(addresses)},
            "seal": {"key_file": f"{directory}/seal.key"},
        },
        "db": {
            "type": "postgres",
            "host": database["host"],
            "port": database["port"],
            "name": database["name"],
            "user": database["user"],
            "password": "",
            "ssl_mode": database["ssl_mode"],
        },
        "checkpoint_storage": {**cloud.storage(facts), "prefix": CHECKPOINTS},
        "resource_manager": {
            "type": "agent",
            "scheduler": _scheduler(facts["scheduler"]),
            "default_aux_resource_pool": "aux-pool",
            "default_compute_resource_pool": "compute-pool",
        },
        "resource_pools": _pools(facts, cloud),
    }
    defaults = _task_defaults(facts, cloud)
    return config | ({"task_container_defaults": defaults} if defaults else {})


def _scheduler(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduler of the pools. Fair share always preempts."""
    kind = asked["type"]
    return {"type": kind, **({"preemption": asked["preemption"]} if kind == "priority" else {})}


def _task_defaults(facts: Mapping[str, Any], cloud: Facts) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if facts["task_images"] is not None:
        defaults["image"] = dict(facts["task_images"])
    if facts["shared_file_system"] is not None:
        defaults["bind_mounts"] = [{"host_path": SHARED_FILES, "container_path": "shared_fs"}]
    variables = list(cloud.environment(facts))
    if variables:
        defaults["environment_variables"] = variables
    return defaults


def _pools(facts: Mapping[str, Any], cloud: Facts) -> list[dict[str, Any]]:
    agents, pools = facts["agents"], facts["pools"]
    return [
        {
            "pool_name": "aux-pool",
            "description": "Work without slots",
            "max_aux_containers_per_agent": agents["max_aux"],
            "provider": _provider(facts, pools["aux"], cloud, slots_on_cpu=False),
        },
        {
            "pool_name": "compute-pool",
            "description": "Training",
            "max_aux_containers_per_agent": 0,
            "provider": _provider(facts, pools["compute"], cloud, slots_on_cpu=True),
        },
    ]


def _provider(facts: Mapping[str, Any], pool: Mapping[str, Any], cloud: Facts, *, slots_on_cpu: bool) -> dict[str, Any]:
    agents = facts["agents"]
    steps = list(cloud.setup(facts)) if facts["container_runtime"] == "docker" else []
    if facts["shared_file_system"] is not None:
        steps.append(_mount(facts["shared_file_system"]))
    return {
        **cloud.provider(facts, pool),
        "cpu_slots_allowed": slots_on_cpu,
        "min_instances": agents["min"],
        "max_instances": agents["max"],
        "max_idle_agent_period": agents["idle"],
        "max_agent_starting_period": agents["starting"],
        "agent_config_file_contents": {"container_runtime": facts["container_runtime"]},
        **({"startup_script": "#!/bin/bash\nset -e\n" + "".join(steps)} if steps else {}),
    }


def _mount(files: Mapping[str, str]) -> str:
    """`files` contains the source (`server:/directory`) and the options of the NFS mount."""
    return (
        "command -v mount.nfs4 >/dev/null || { apt-get update -q && apt-get install -q -y nfs-common; }\n"
        f"mkdir -p {SHARED_FILES}\n"
        f"mount -t {files['type']} -o {files['options']} {files['source']} {SHARED_FILES}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the desired state (JSON) from the standard input, and prints the configuration (JSON, which is YAML as well).

    Runs with the release that the master will run, so that the models of that release validate the configuration.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", required=True)
    args = parser.parse_args(arguments)
    desired = json.load(sys.stdin)
    try:
        config = checked_master_config(desired, directory=args.directory)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(config, indent=2))
    return 0


def checked_master_config(desired: Mapping[str, Any], *, directory: str) -> dict[str, Any]:
    """`master_config`, validated by the models of the master. Raises `InvalidInput` with every error."""
    from resolute.config.master import parse_master_config

    config = master_config(desired["facts"], directory=directory, addresses=tuple(desired["addresses"]))
    parse_master_config(config, subject="the configuration of the deployed master")
    return config


if __name__ == "__main__":
    raise SystemExit(main())
