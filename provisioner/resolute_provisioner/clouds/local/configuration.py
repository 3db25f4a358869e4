"""Machines that are processes on the master's own machine."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from resolute.config.base import ConfigModel, Count, NonEmptyText, Number, PositiveInteger, Text, broken_at, broken_rule
from resolute.config.durations import Duration, PositiveDuration
from resolute.config.providers.common import ProviderBase


class LaunchRefusal(ConfigModel):
    """One launch that the local cloud refuses, as a real one might."""

    launch: PositiveInteger
    """Which launch, counted from 1."""
    error: Literal["no_capacity", "quota_exceeded", "bad_request", "transient"]
    """The error of the launch."""


class Interruption(ConfigModel):
    """One machine that the local cloud takes away, as a real one might."""

    instance: PositiveInteger
    """Which machine, counted from 1 in the order of their start."""
    after: Duration | None = None
    """How long after its start; instead of `after_steps`."""
    after_steps: Count | None = None
    """After how many training steps; instead of `after`."""
    notice: Duration | None = None
    """Time of the notice before the end; null interrupts without a notice."""

    @model_validator(mode="after")
    def _one_moment(self) -> Self:
        if (self.after is None) == (self.after_steps is None):
            raise broken_rule("must have exactly one of the keys after and after_steps")
        return self


class LocalProvider(ProviderBase):
    """Machines that are processes on the master's own machine."""

    on_masters_machine: ClassVar[bool] = True

    type: Literal["local"] = "local"
    """Tag of the provider."""
    slots_per_instance: PositiveInteger = 1
    """Slots of each machine."""
    slot_type: Literal["cpu", "cuda", "rocm"] = "cpu"
    """What a slot is: a share of the processors, or a GPU of `visible_gpus`."""
    visible_gpus: tuple[NonEmptyText, ...] = ()
    """GPUs of this machine by UUID; each machine of the pool gets `slots_per_instance` of them for itself."""
    boot_delay: Duration = 0.0
    """How long a machine takes to start."""
    price_per_hour: Annotated[Number, Field(ge=0)] = 0.0
    """What the ledger books for a machine's hour."""
    spot_price_per_hour: Annotated[Number, Field(ge=0)] | None = None
    """With a price, the same machines are also available on a spot market; null means on demand only."""
    master_timeout: PositiveDuration = 600.0
    """Time without contact to the master before a machine ends itself."""
    container_runtime: Literal["process", "docker"] = "process"
    """What runs tasks on the machines: processes, or containers of this machine's Docker engine."""
    docker_host: Text = "unix:///var/run/docker.sock"
    """Socket of that engine."""
    refuse: tuple[LaunchRefusal, ...] = ()
    """Launches that are refused."""
    interruptions: tuple[Interruption, ...] = ()
    """Machines that are interrupted."""

    @model_validator(mode="after")
    def _gpus_for_all(self) -> Self:
        if (self.slot_type == "cpu") != (not self.visible_gpus):
            raise broken_rule("slot_type cuda or rocm and visible_gpus go together: set both, or none of them")
        if len(set(self.visible_gpus)) != len(self.visible_gpus):
            raise broken_at((("visible_gpus",), "names a GPU twice; list each once", list(self.visible_gpus)))
        most = self.slots_per_instance * self.max_instances
        if self.visible_gpus and most > len(self.visible_gpus):
            raise broken_at(
                (
                    ("max_instances",),
                    f"{self.max_instances} machines of {self.slots_per_instance} slots need {most} GPUs, and visible_gpus "
                    f"lists {len(self.visible_gpus)}",
                    self.max_instances,
                )
            )
        return self


CONFIGURATION = LocalProvider
