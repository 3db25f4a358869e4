"""What a task knows of itself, read once from its environment and the info files of its run directory.

This is the only module of the harness that reads the process environment. Everything else is given a `TaskInfo`,
a `ProcessPlace` or a copy of the environment from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute.wire.agent_link import LONG_VARIABLES, LONG_VARIABLES_FILE
from resolute.wire.states import TaskType

DEFAULT_RUN_DIR = "/run/determined"
SHARED_FS_MOUNT = "/determined_shared_fs"
LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousInfo:
    """The members of the gang: one host and one slot count per container, chief first, and this container's index."""

    container_addrs: tuple[str, ...]
    container_rank: int
    container_slot_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """The trial that a task of type TRIAL works on. `config` is the complete defaulted experiment configuration."""

    trial_id: int
    experiment_id: int
    trial_run_id: int
    trial_seed: int
    hparams: Mapping[str, Any]
    config: Mapping[str, Any]
    steps_completed: int = 0
    inter_node_network_interface: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """One container of one allocation. `private_root`: a mount makes `run_dir` private to this container."""

    master_url: str
    cluster_id: str
    agent_id: str
    container_id: str
    resources_id: str
    slot_ids: tuple[int, ...]
    task_id: str
    allocation_id: str
    session_token: str = field(repr=False)
    task_type: TaskType
    run_dir: Path
    workdir: Path
    private_root: bool
    master_cert_file: str | None = None
    master_cert_name: str | None = None
    latest_checkpoint: str | None = None
    comm_port: int | None = None
    trial: TrialInfo | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> TaskInfo | None:
        """Read the task environment. None when there is none: the process runs off-cluster.

        Raises `InvalidInput` naming the variable when the environment is a task's but incomplete or malformed.
        """
        if "DET_ALLOCATION_ID" not in environ or "DET_MASTER" not in environ:
            return None
        run_dir = Path(environ.get("DET_RUN_DIR") or DEFAULT_RUN_DIR)
        read = _Reader({**_long_variables(run_dir, environ), **environ})
        task_type = read.choice("DET_TASK_TYPE", TaskType)
        container_id = environ.get("DET_CONTAINER_ID", "")
        return cls(
            master_url=read.text("DET_MASTER").rstrip("/"),
            cluster_id=environ.get("DET_CLUSTER_ID", ""),
            agent_id=environ.get("DET_AGENT_ID", ""),
            container_id=container_id,
            resources_id=environ.get("DET_RESOURCES_ID") or container_id,
            slot_ids=read.slot_ids("DET_SLOT_IDS"),
            task_id=read.text("DET_TASK_ID"),
            allocation_id=read.text("DET_ALLOCATION_ID"),
            session_token=read.text("DET_SESSION_TOKEN"),
            task_type=task_type,
            run_dir=run_dir,
            workdir=Path(environ.get("DET_WORKDIR") or run_dir / "workdir"),
            # A container made by anything but our process runtime has a root of its own and does not say so.
            private_root=environ.get("DET_PRIVATE_ROOT", "1") != "0",
            master_cert_file=environ.get("DET_MASTER_CERT_FILE") or None,
            master_cert_name=environ.get("DET_MASTER_CERT_NAME") or None,
            latest_checkpoint=environ.get("DET_LATEST_CHECKPOINT") or None,
            comm_port=read.optional_number("INTER_TRAIN_PROCESS_COMM_PORT_1"),
            trial=_trial_info(read) if task_type is TaskType.TRIAL else None,
        )

    @property
    def info_dir(self) -> Path:
        return self.run_dir / "info"

    @property
    def model_dir(self) -> Path:
        """The pristine copy of the user's model code."""
        return self.run_dir / "train" / "model"

    def rendezvous(self) -> RendezvousInfo:
        """The gang as the launcher wrote it down; a task that never met others is alone on this host."""
        path = self.info_dir / "rendezvous.json"
        try:
            body = json.loads(path.read_text())
        except FileNotFoundError:
            return RendezvousInfo(
                container_addrs=("127.0.0.1",), container_rank=0, container_slot_counts=(len(self.slot_ids),)
            )
        return RendezvousInfo(
            container_addrs=tuple(body["container_addrs"]),
            container_rank=int(body["container_rank"]),
            container_slot_counts=tuple(int(count) for count in body["container_slot_counts"]),
        )

    @property
    def container_addrs(self) -> tuple[str, ...]:
        return self.rendezvous().container_addrs

    @property
    def container_rank(self) -> int:
        return self.rendezvous().container_rank

    @property
    def container_slot_counts(self) -> tuple[int, ...]:
        return self.rendezvous().container_slot_counts

    @property
    def user_data(self) -> Mapping[str, Any]:
        """The `data` section of the experiment configuration; empty for other tasks."""
        return (self.trial.config.get("data") or {}) if self.trial is not None else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """The rank of one process among all processes of a job, from `process_per_slot` or torchrun."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    chief_address: str
    gang_token: str = field(default="", repr=False)
    comm_port: int | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ProcessPlace | None:
        """None when no launcher set `RANK` and `WORLD_SIZE`."""
        if "RANK" not in environ or "WORLD_SIZE" not in environ:
            return None
        read = _Reader(environ)
        size = read.number("WORLD_SIZE")
        return cls(
            rank=read.number("RANK"),
            size=size,
            local_rank=read.number("LOCAL_RANK", 0),
            local_size=read.number("LOCAL_WORLD_SIZE", size),
            cross_rank=read.number("GROUP_RANK", 0),
            cross_size=read.number("GROUP_WORLD_SIZE", 1),
            chief_address=environ.get("DET_CHIEF_IP") or environ.get("MASTER_ADDR") or "127.0.0.1",
            gang_token=environ.get("RESOLUTE_GANG_TOKEN") or environ.get("TORCHELASTIC_RUN_ID") or "",
            comm_port=read.optional_number("INTER_TRAIN_PROCESS_COMM_PORT_1"),
        )


def environment() -> dict[str, str]:
    """A copy of this process's environment: for `from_env` and for starting children."""
    return dict(os.environ)


def user_data_dir(environ: Mapping[str, str]) -> Path:
    """Where files of off-cluster runs go when the user names no place."""
    base = environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "resolute"


def _long_variables(run_dir: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What the run directory has of the variables that the environment lacks."""
    if all(name in environ for name in LONG_VARIABLES):
        return {}
    try:
        found: dict[str, str] = json.loads((run_dir / LONG_VARIABLES_FILE).read_bytes())
    except FileNotFoundError:
        return {}
    return found


def _trial_info(read: _Reader) -> TrialInfo:
    return TrialInfo(
        trial_id=read.number("DET_TRIAL_ID"),
        experiment_id=read.number("DET_EXPERIMENT_ID"),
        trial_run_id=read.number("DET_TRIAL_RUN_ID"),
        trial_seed=read.number("DET_TRIAL_SEED"),
        hparams=read.mapping("DET_HPARAMS"),
        config=read.mapping("DET_EXPERIMENT_CONFIG"),
        steps_completed=read.number("DET_STEPS_COMPLETED", 0),
        inter_node_network_interface=read.environ.get("DET_INTER_NODE_NETWORK_INTERFACE") or None,
    )


class _Reader:
    """Typed reads of variables with errors that name them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    def text(self, name: str) -> str:
        value = self.environ.get(name, "")
        if not value:
            raise InvalidInput(f"the task environment lacks {name}; tasks are started by an agent, which sets it")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self.environ.get(name, "")
        if not value and default is not None:
            return default
        try:
            return int(self.text(name))
        except ValueError:
            raise InvalidInput(f"{name} is {value!r} in the task environment; it must be a whole number") from None

    def optional_number(self, name: str) -> int | None:
        return self.number(name) if self.environ.get(name) else None

    def choice(self, name: str, kind: type[TaskType]) -> TaskType:
        value = self.text(name)
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(kind)
            raise InvalidInput(f"{name} is {value!r} in the task environment; known are {known}") from None

    def parsed(self, name: str, text: str) -> Any:
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{name} in the task environment is not JSON: {error}") from None

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.parsed(name, self.text(name))
        if not isinstance(value, dict):
            raise InvalidInput(f"{name} in the task environment must be a JSON object, not {type(value).__name__}")
        return value

    def slot_ids(self, name: str) -> tuple[int, ...]:
        value = self.parsed(name, self.environ.get(name) or "[]")
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise InvalidInput(f"{name} in the task environment must be a JSON list of whole numbers, not {value!r}")
        return tuple(value)
