"""Trials of an experiment as rows: read all at once, for a search may have thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.wire.rest.enums import WireTrialState
from resolute.wire.states import CheckpointState
from resolute_master.api.context import ApiContext
from resolute_master.api.reading.booked_runs import runs_of
from resolute_master.api.render.states import trial_state
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, TrialId
from resolute_master.domain.trial import Trial
from resolute_master.store.base import CheckpointQuery, Page, TrialQuery
from resolute_web.life import Life, life_of

REMOVED_SHOWN = 20
"""Removed checkpoints that a page lists; `det checkpoint list --all` lists them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """A trial with its state as it is shown, and the seconds since it began."""

    trial: Trial
    state: WireTrialState
    seconds: float
    best: float | None
    latest: float | None


async def rows_of(api: ApiContext, experiment: Experiment, query: TrialQuery) -> Page[TrialRow]:
    found = await api.store.page_trials(query)
    rows = tuple(row_of(api, experiment, trial) for trial in found.rows)
    return Page(rows=rows, offset=found.offset, total=found.total)


def row_of(api: ApiContext, experiment: Experiment, trial: Trial) -> TrialRow:
    trial = api.engine.state.get(Trial, trial.id) or trial
    allocations = api.engine.state.find(Allocation, "allocations_of_task", trial.task_id)
    end = trial.ended_at or api.clock.now()
    return TrialRow(
        trial=trial,
        state=trial_state(trial.state, allocations, unmanaged=experiment.unmanaged),
        seconds=max(0.0, (end - trial.started_at).total_seconds()),
        best=trial.best_validation.metric if trial.best_validation else None,
        latest=trial.latest_validation.metric if trial.latest_validation else None,
    )


async def lived(api: ApiContext, trial: Trial) -> Life | None:
    """Where the trial's time went; None before anything was requested."""
    runs = await runs_of(api.store, [trial.task_id])
    checkpoints = await api.store.checkpoints(CheckpointQuery(trial_id=trial.id))
    return life_of(runs, checkpoints, api.clock.now())


async def removed_checkpoints(
    api: ApiContext, experiment: ExperimentId, trial: TrialId | None = None
) -> Sequence[Checkpoint]:
    """Those that are gone, or are going, and why: the ones of the most steps."""
    query = CheckpointQuery(
        experiment_id=experiment, trial_id=trial, states=(CheckpointState.DELETED,), most=REMOVED_SHOWN
    )
    return tuple(reversed(await api.store.checkpoints(query)))


def best_first(rows: Sequence[TrialRow], experiment: Experiment) -> Sequence[TrialRow]:
    """Those without a result come last."""
    sign = 1 if experiment.smaller_is_better else -1
    return sorted(rows, key=lambda row: (row.best is None, sign * (row.best or 0.0), row.trial.id))


def searched(rows: Sequence[TrialRow]) -> tuple[str, ...]:
    """Names of the hyperparameters that differ between trials, in their order; those of a nested one are joined by dots."""
    seen: dict[str, set[str]] = {}
    for row in rows:
        for name, value in flat(row.trial.hparams).items():
            seen.setdefault(name, set()).add(repr(value))
    return tuple(name for name, values in seen.items() if len(values) > 1)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested hyperparameters by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
