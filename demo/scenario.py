"""The script of the demonstration as values: the pool, the submission, and the interruptions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from demo.folder import Folder

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits_pytorch"

STEPS = 500
CHECKPOINT_PERIOD = 150
"""Period of checkpoints. It is longer than the distance to each cut, so that no periodic checkpoint coincides with a cut."""
STEP_SLEEP_S = 0.05

MAX_INSTANCES = 3
BOOT_DELAY_S = 2.0
IDLE_S = 5.0
PRICE_PER_HOUR = 3.6
POOL = "default"
USER = "determined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An interruption of the training machine after a number of steps; `notice_s` is None without a notice."""

    after_steps: int
    notice_s: float | None

    @property
    def text(self) -> str:
        how = "without notice" if self.notice_s is None else f"with {self.notice_s:g} s of notice"
        return f"at step {self.after_steps} its machine is taken away {how}"


CUTS = (Cut(after_steps=100, notice_s=10.0), Cut(after_steps=210, notice_s=None))


def master_configuration(
    folder: Folder, *, port: int, password: str, bucket: Mapping[str, object] | None
) -> dict[str, Any]:
    """The contents of `master.yaml`."""
    directory = {"type": "shared_fs", "host_path": str(folder.checkpoints)}
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": MAX_INSTANCES,
        "boot_delay": f"{BOOT_DELAY_S:g}s",
        "price_per_hour": PRICE_PER_HOUR,
        "max_idle_agent_period": f"{IDLE_S:g}s",
        "max_agent_starting_period": "60s",
        "refuse": [{"launch": 1, "error": "no_capacity"}],
    }
    return {
        "host": "127.0.0.1",
        "port": port,
        "cluster_name": "demo",
        "cluster_state_dir": str(folder.root),
        "db": {"type": "sqlite", "path": str(folder.database)},
        "security": {"initial_user_password": password},
        "checkpoint_storage": {**(bucket or directory), "save_trial_latest": 1000},  # all, for the judge
        "heartbeat_interval": "1s",
        "resource_pools": [{"pool_name": POOL, "agent_reconnect_wait": "15s", "provider": provider}],
    }


def write_master_configuration(
    folder: Folder, *, port: int, password: str, bucket: Mapping[str, object] | None
) -> None:
    """`bucket` stores checkpoints in place of a directory; the tasks get this process's credentials."""
    config = master_configuration(folder, port=port, password=password, bucket=bucket)
    if bucket is not None:
        identity = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("AWS_")]
        config["task_container_defaults"] = {"environment_variables": identity}
    text = yaml.safe_dump(config, sort_keys=False)
    folder.master_config.touch(mode=0o600)
    folder.master_config.write_text(text, encoding="utf-8")


OVERRIDES: Mapping[str, str] = {
    "name": "digits-demo",
    "hyperparameters.width": "16",
    "hyperparameters.learning_rate": "0.005",
    "hyperparameters.dropout": "0.1",
    "hyperparameters.schedule_steps": str(STEPS),
    "hyperparameters.step_sleep_s": f"{STEP_SLEEP_S:g}",
    "searcher.max_length.batches": str(STEPS),
    "min_checkpoint_period.batches": str(CHECKPOINT_PERIOD),
    "min_validation_period.batches": str(STEPS // 2),
    "environment.environment_variables": "[OMP_NUM_THREADS=1]",
}
"""Changes to the example's `const.yaml`: a smaller model, fewer steps, and a slower pace for watching."""


def submission() -> list[str]:
    """Arguments of `det`, for the example's directory."""
    changes = [word for key, value in OVERRIDES.items() for word in ("--config", f"{key}={value}")]
    return ["experiment", "create", "const.yaml", ".", *changes]
