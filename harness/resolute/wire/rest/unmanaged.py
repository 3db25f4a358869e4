"""Experiments and trials that run elsewhere and report here."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resolute.wire.rest.enums import WireTrialState
from resolute.wire.rest.experiments import Experiment
from resolute.wire.rest.trials import Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class PutExperimentResponse:
    """The experiment under the external id, new or not."""

    config: Mapping[str, Any]
    experiment: Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTrialRequest:
    """A trial of an unmanaged experiment."""

    experiment_id: int = 0
    hparams: Mapping[str, Any] | None = None
    unmanaged: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTrialResponse:
    """The created trial."""

    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTrialRequest:
    """The trial that its owner calls `external_trial_id`; it is created when there is none."""

    create_trial_request: CreateTrialRequest | None = None
    external_trial_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTrialResponse:
    """The trial under the external id, new or not."""

    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTrialRequest:
    """A process starts to report; `resume` False requires that none has before."""

    resume: bool | None = None
    trial_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTrialResponse:
    """The checkpoint to resume from."""

    steps_completed: int
    trial_run_id: int
    latest_checkpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTrialRequest:
    """A sign of life; with a state, what has become of the trial."""

    state: WireTrialState | None = None
    trial_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTrialResponse:
    """The changed trial."""

    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialByExternalIDResponse:
    """The trial under the two external ids."""

    trial: Trial
