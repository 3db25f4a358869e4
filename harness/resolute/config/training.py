"""Smaller blocks of an experiment: seeds, profiling, retention, integrations, and what is kept for old files."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from resolute.config.base import ConfigModel, Count, Flag, Integer, PositiveInteger, Secret, Text, broken_rule

Seed = Annotated[Integer, Field(ge=0, le=2**32 - 1)]


class Reproducibility(ConfigModel):
    """What makes a search repeatable."""

    experiment_seed: Seed
    """Seed of the search and, through it, of every trial; the time of submission when left out."""


class RetentionPolicy(ConfigModel):
    """How long logs are kept."""

    log_retention_days: Annotated[Integer, Field(ge=-1, le=32767)]
    """Days after the end of a task; -1 keeps its logs for ever, 0 removes them with the next sweep."""


class Profiling(ConfigModel):
    """System metrics of a trial."""

    enabled: Flag = False
    """Record system metrics."""
    begin_on_batch: Count = 0
    """Has no effect; accepted for old configurations."""
    end_after_batch: Count | None = None
    """Has no effect; accepted for old configurations."""
    sync_timings: Flag = True
    """Has no effect; accepted for old configurations."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end_after_batch is not None and self.begin_on_batch > self.end_after_batch:
            raise broken_rule("begin_on_batch must not be greater than end_after_batch")
        return self


class Optimizations(ConfigModel):
    """Old switches of distributed training; training code does this itself now."""

    aggregation_frequency: PositiveInteger = 1
    """Batches whose gradients are added up before a step."""
    average_aggregated_gradients: Flag = True
    """Average those gradients."""
    average_training_metrics: Flag = True
    """Average training metrics over all processes."""
    gradient_compression: Flag = False
    """Send gradients with half the bits."""
    grad_updates_size_file: Text | None = None
    """File for the sizes of updates."""
    mixed_precision: Literal["O0", "O1", "O2", "O3"] = "O0"
    """Level of mixed precision."""
    tensor_fusion_threshold: Count = 64
    """Megabytes that are sent together."""
    tensor_fusion_cycle_time: Count = 1
    """Milliseconds that sending waits for more."""
    auto_tune_tensor_fusion: Flag = False
    """Find the two values above by trying."""


class WebhooksIntegration(ConfigModel):
    """The webhooks that get events of this experiment."""

    webhook_id: tuple[Integer, ...] | None = None
    """Webhooks by id."""
    webhook_name: tuple[Text, ...] | None = None
    """Webhooks by name."""
    exclude: Flag = False
    """No webhook at all."""


class PachydermServer(ConfigModel):
    """Where the data versioning server is."""

    host: Text | None = None
    """Its host."""
    port: Integer | None = None
    """Its port."""


class PachydermProxy(ConfigModel):
    """How browsers reach it."""

    scheme: Text | None = None
    """http or https."""
    host: Text | None = None
    """Its host."""
    port: Integer | None = None
    """Its port."""


class PachydermDataset(ConfigModel):
    """Which data."""

    project: Text | None = None
    """Project."""
    repo: Text | None = None
    """Repository."""
    commit: Text | None = None
    """Commit."""
    branch: Text | None = None
    """Branch."""
    token: Secret | None = None
    """Token that may read it."""


class PachydermIntegration(ConfigModel):
    """Data from a versioning server; has no effect."""

    pachd: PachydermServer
    """The server."""
    proxy: PachydermProxy | None = None
    """The way to it for browsers."""
    dataset: PachydermDataset | None = None
    """The data."""


class Integrations(ConfigModel):
    """Other systems that are notified of this experiment."""

    webhooks: WebhooksIntegration | None = None
    """Webhooks."""
    pachyderm: PachydermIntegration | None = None
    """Data from a versioning server."""


class Slurm(ConfigModel):
    """For HPC schedulers only; has no effect."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"slots_per_node", "gpu_type", "sbatch_args"})

    slots_per_node: PositiveInteger | None = None
    """Slots of a node."""
    gpu_type: Text | None = None
    """Kind of GPU."""
    sbatch_args: tuple[Text, ...] | None = None
    """More arguments of its submission."""


class Pbs(ConfigModel):
    """For HPC schedulers only; has no effect."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"slots_per_node", "pbsbatch_args"})

    slots_per_node: PositiveInteger | None = None
    """Slots of a node."""
    pbsbatch_args: tuple[Text, ...] | None = None
    """More arguments of its submission."""


class Kerberos(ConfigModel):
    """Old place of a Kerberos configuration; has no effect."""

    config_file: Text
    """Its file."""


class ExperimentSecurity(ConfigModel):
    """Accepted for old configurations; has no effect."""

    kerberos: Kerberos | None = None
    """Kerberos."""
