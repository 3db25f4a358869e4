"""Experiments: searches over hyperparameters. A single training is a search with one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, field
from msgspec.json import Decoder
from msgspec.structs import force_setattr

from resolute.config.durations import parse_duration
from resolute.wire.states import ExperimentState
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import ExperimentId, JobId, TrialId, UserId
from resolute_master.domain.json_text import canonical

DEFAULT_PREEMPTION_TIMEOUT_S = 3600.0
"""Default time for a task to save and end."""


class Settings(Struct, frozen=True, gc=False):
    """The parts of a configuration that the rules read."""

    resources: Mapping[str, Any] = {}
    searcher: Mapping[str, Any] = {}
    hyperparameters: Mapping[str, Any] = {}
    max_restarts: Any = None
    log_policies: Any = None
    preemption_timeout: Any = None
    retention_policy: Mapping[str, Any] | None = None

    @property
    def slots_per_trial(self) -> int:
        return int(self.resources["slots_per_trial"])

    @property
    def single_node(self) -> bool:
        return bool(self.resources.get("is_single_node"))

    @property
    def deadline(self) -> datetime | None:
        """Deadline of each trial; None without one."""
        text = self.resources.get("deadline")
        return None if text is None else datetime.fromisoformat(text)

    @property
    def preemption_timeout_s(self) -> float:
        timeout = self.preemption_timeout
        return DEFAULT_PREEMPTION_TIMEOUT_S if timeout is None else float(timeout)

    @property
    def warm_start_checkpoint(self) -> str | None:
        """The checkpoint from which its trials start."""
        uuid: str | None = self.searcher.get("source_checkpoint_uuid")
        return uuid

    @property
    def log_retention_days(self) -> int | None:
        days: int | None = (self.retention_policy or {}).get("log_retention_days")
        return days


_whole: Decoder[dict[str, Any]] = Decoder(dict[str, Any])
_settings = Decoder(Settings)


def settings_of(configuration: Raw | bytes) -> Settings:
    """The settings in a configuration as an experiment stores it."""
    return _settings.decode(configuration)


def written(config: Mapping[str, Any]) -> Raw:
    """The stored form of a configuration of JSON values."""
    return Raw(canonical(config))


class Experiment(Struct, frozen=True, kw_only=True, gc=False):
    """`configuration` is the complete defaulted configuration; `original_config` is the text that the user sent.

    The configuration stays the JSON text that it is in the store: a master that starts takes thousands over, and looks into few.

    `context_hash` names the uploaded model definition (sha256 of its archive), which is stored beside the state.
    What its search remembers is kept beside it (`domain.search`).
    """

    id: ExperimentId
    job_id: JobId
    owner: UserId
    workspace_id: int
    project_id: int
    name: str
    configuration: Raw = field(name="config")
    original_config: str
    context_hash: str
    state: ExperimentState
    started_at: datetime
    description: str = ""
    labels: tuple[str, ...] = ()
    notes: str = ""
    archived: bool = False
    parent_id: ExperimentId | None = None
    ended_at: datetime | None = None
    progress: float = 0.0
    best_validation: float | None = None
    best_trial: TrialId | None = None
    """The trial of the best validation."""
    metric_warning: str = ""
    """Why trials cannot be ranked, while no validation contains the searcher's metric."""
    shutdown_reason: str = ""
    unmanaged: bool = False
    """Whether its trials run elsewhere and report. They are not scheduled, and the experiment's state follows from theirs."""
    external_id: str | None = None
    """Its owner's name for it; unmanaged experiments only."""
    removes_checkpoints: bool = False
    """Whether checkpoints that exceed the `save_*` counts of its storage are removed automatically. Older experiments keep all."""

    def __post_init__(self) -> None:
        # Else it would be a view that keeps all of the text alive that the experiment was read from.
        force_setattr(self, "configuration", self.configuration.copy())

    @property
    def config(self) -> Mapping[str, Any]:
        """The whole configuration, parsed at each call: a caller that needs several parts should keep it."""
        return _whole.decode(self.configuration)

    def with_settings(self, block: str, settings: Mapping[str, Any]) -> Experiment:
        """The experiment with these keys of one block of its configuration set."""
        config = self.config
        return replace(self, configuration=written({**config, block: {**config[block], **settings}}))

    @property
    def settings(self) -> Settings:
        """The parts of the configuration that the rules read; cheaper than `config`."""
        return settings_of(self.configuration)

    @property
    def max_cost(self) -> float | None:
        """The most that it may cost, in the currency of the prices; None is no limit."""
        limit = self.settings.resources.get("max_cost")
        return None if limit is None else float(limit)

    @property
    def estimated_duration_s(self) -> float | None:
        """The owner's estimate of a trial's training time."""
        text = self.settings.resources.get("estimated_duration")
        return None if text is None else parse_duration(text)

    @property
    def max_batches(self) -> int | None:
        """Length of a trial in steps; None if it is unknown or has another unit."""
        length = self.settings.searcher.get("max_length")
        batches = length.get("batches") if isinstance(length, Mapping) else None
        return None if batches is None else int(batches)

    @property
    def max_restarts(self) -> int:
        return int(self.settings.max_restarts)

    @property
    def log_policies(self) -> Sequence[Mapping[str, Any]]:
        return self.settings.log_policies or ()

    @property
    def metric(self) -> str:
        """The searcher's metric."""
        return str(self.settings.searcher["metric"])

    @property
    def smaller_is_better(self) -> bool:
        return bool(self.settings.searcher["smaller_is_better"])
