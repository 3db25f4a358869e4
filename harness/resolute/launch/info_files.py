"""The info files of a task, which identify the task to its programs. Names and keys are the contract's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute.task_info import RendezvousInfo, TaskInfo


def cluster_info(info: TaskInfo) -> dict[str, Any]:
    return {
        "master_url": info.master_url,
        "cluster_id": info.cluster_id,
        "agent_id": info.agent_id,
        "slot_ids": list(info.slot_ids),
        "task_id": info.task_id,
        "allocation_id": info.allocation_id,
        "session_token": info.session_token,
        "task_type": str(info.task_type),
        "master_cert_name": info.master_cert_name,
        "master_cert_file": info.master_cert_file,
        "latest_checkpoint": info.latest_checkpoint,
    }


def trial_info(info: TaskInfo) -> dict[str, Any] | None:
    trial = info.trial
    if trial is None:
        return None
    return {
        "trial_id": trial.trial_id,
        "experiment_id": trial.experiment_id,
        "trial_seed": trial.trial_seed,
        "hparams": trial.hparams,
        "config": trial.config,
        "steps_completed": trial.steps_completed,
        "trial_run_id": trial.trial_run_id,
        "debug": bool(trial.config.get("debug", False)),
        "inter_node_network_interface": trial.inter_node_network_interface,
    }


def write_identity(info: TaskInfo) -> None:
    """`cluster.json` and, for trials, `trial.json`. They hold the task's token, so only its user may read them."""
    info.info_dir.mkdir(parents=True, exist_ok=True)
    write_json(info.info_dir / "cluster.json", cluster_info(info))
    trial = trial_info(info)
    if trial is not None:
        write_json(info.info_dir / "trial.json", trial)


def write_resources(info: TaskInfo, gpu_uuids: list[str]) -> None:
    write_json(info.info_dir / "resources.json", {"gpu_uuids": gpu_uuids})


def write_rendezvous(info: TaskInfo, gang: RendezvousInfo) -> None:
    body = {
        "container_addrs": list(gang.container_addrs),
        "container_rank": gang.container_rank,
        "container_slot_counts": list(gang.container_slot_counts),
    }
    write_json(info.info_dir / "rendezvous.json", body)


def write_json(path: Path, body: Mapping[str, Any]) -> None:
    """Replace atomically, so that no reader ever sees half a file."""
    new = path.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(body, file)
    os.replace(new, path)
