"""Reads what an experiment, a trial or a checkpoint is shown with, and renders it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from resolute.wire.rest.experiments import Experiment as WireExperiment
from resolute.wire.rest.trials import Trial as WireTrial
from resolute.wire.states import CheckpointState
from resolute_master.api.context import ApiContext
from resolute_master.api.reading.finders import find_experiment, trials_of
from resolute_master.api.render import experiments as render_experiments
from resolute_master.api.render import trials as render_trials
from resolute_master.api.render.summaries import summaries
from resolute_master.batches import map_in_batches
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Project, Workspace
from resolute_master.event_loop import yielding
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.store.base import CheckpointQuery, ExperimentNumbers
from resolute_master.store.metric_chunks import Chunk
from resolute_master.store.metric_rows import STEPPED_GROUPS, VALIDATION

FEW = 5
"""More experiments than this are rendered in a thread: each takes a part of a millisecond."""

COUNTED_AT_ONCE = 10
"""Experiments that are counted at once: to count the thousand checkpoints of a search takes a part of a millisecond."""


def job_allocations(api: ApiContext, experiment: Experiment) -> tuple[Allocation, ...]:
    return api.engine.state.find(Allocation, "allocations_of_job", experiment.job_id)


def owner_of(api: ApiContext, place: Workspace | Project) -> User | None:
    """The owner that is shown for built-in entities: the first user."""
    users = api.engine.state.all(User)
    return api.engine.state.get(User, place.owner) or next(iter(users), None)


async def show_experiments(
    api: ApiContext, experiments: Sequence[Experiment], trial_ids: tuple[int, ...] = ()
) -> tuple[WireExperiment, ...]:
    numbers = await _numbers(api, experiments)
    users = {user.id: user for user in api.engine.state.all(User)}
    projects = {project.id: project for project in workspaces.projects(api.engine.state)}
    places = {place.id: place for place in workspaces.workspaces(api.engine.state)}
    found = [
        (
            experiment,
            render_experiments.Surroundings(
                owner=users.get(experiment.owner),
                # By its project: an experiment follows a project that was moved a moment later.
                workspace=places[projects[experiment.project_id].workspace_id],
                project=projects[experiment.project_id],
                project_owner=owner_of(api, projects[experiment.project_id]),
                allocations=job_allocations(api, experiment),
                numbers=numbers.get(experiment.id, ExperimentNumbers()),
                trial_ids=trial_ids,
                secret_names=api.config.security.secrets.names,
                now=api.clock.now(),
            ),
        )
        for experiment in experiments
    ]
    return await asyncio.to_thread(lambda: _rendered(yielding(found))) if len(found) > FEW else _rendered(found)


async def _numbers(api: ApiContext, experiments: Sequence[Experiment]) -> Mapping[ExperimentId, ExperimentNumbers]:
    """Numbers of each experiment. Those of active experiments come from the committed state, which holds all their trials and
    checkpoints. Only the others are read from the store."""
    state = api.engine.state
    counted = await map_in_batches(experiments, lambda each: _counted(state, each.id), at_once=COUNTED_AT_ONCE)
    held = {each.id: numbers for each, numbers in zip(experiments, counted, strict=True) if numbers is not None}
    over = [each.id for each in experiments if each.id not in held]
    return {**held, **await api.store.experiment_numbers(over)} if over else held


def _counted(state: ClusterState, id_: ExperimentId) -> ExperimentNumbers | None:
    """Numbers of an experiment in memory; None for one that is only in the store."""
    if state.get(Experiment, id_) is None:
        return None
    found = (state.get(Checkpoint, key) for key in state.keys("checkpoints_of_experiment", id_))
    sizes = [each.size for each in found if each is not None and each.state is not CheckpointState.DELETED]
    trials = len(state.keys("trials_of_experiment", id_))
    return ExperimentNumbers(trials=trials, checkpoints=len(sizes), checkpoint_bytes=sum(sizes))


def _rendered(
    found: Iterable[tuple[Experiment, render_experiments.Surroundings]],
) -> tuple[WireExperiment, ...]:
    return tuple(render_experiments.experiment(experiment, surroundings) for experiment, surroundings in found)


async def show_experiment(api: ApiContext, experiment: Experiment) -> WireExperiment:
    trials = await trials_of(api, experiment)
    (shown,) = await show_experiments(api, [experiment], tuple(t.id for t in trials))
    return shown


async def show_trials(api: ApiContext, experiment: Experiment, trials: Iterable[Trial]) -> tuple[WireTrial, ...]:
    return tuple([await show_trial(api, trial, experiment=experiment) for trial in trials])


async def show_trial(
    api: ApiContext, trial: Trial, *, experiment: Experiment | None = None, with_summaries: bool = False
) -> WireTrial:
    if experiment is None:
        experiment = await find_experiment(api, trial.experiment_id)
    checkpoints = await api.store.checkpoints(CheckpointQuery(trial_id=trial.id))
    return render_trials.trial(
        trial,
        render_trials.TrialSurroundings(
            experiment=experiment,
            allocations=await api.store.allocations_of_task(trial.task_id),
            checkpoints=checkpoints,
            validations=await validations_at(api, checkpoints),
            summaries=await summaries_of(api, trial.id) if with_summaries else None,
            now=api.clock.now(),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParts:
    """The parts from which a trial is shown, and the metrics that its groups have reported."""

    trial: Trial
    around: render_trials.TrialSurroundings
    chunks: Mapping[str, Sequence[Chunk]]

    def shown(self) -> WireTrial:
        return render_trials.trial(self.trial, replace(self.around, summaries=summaries(self.chunks)))

    def kept(self) -> list[Checkpoint]:
        """Its checkpoints that have files."""
        return [each for each in self.around.checkpoints if each.state is not CheckpointState.DELETED]


async def trial_parts(
    api: ApiContext, trials: Sequence[Trial], experiments: Mapping[ExperimentId, Experiment]
) -> dict[TrialId, TrialParts]:
    """Parts of many trials. The number of reads of the store does not depend on the number of trials."""
    ids = [trial.id for trial in trials]
    chunks = await api.store.metric_chunks(ids) if ids else {}
    checkpoints = await api.store.checkpoints(CheckpointQuery(trial_ids=tuple(ids))) if ids else ()
    allocations = await api.store.attempts_of_tasks([trial.task_id for trial in trials]) if ids else ()
    validations = await validations_of(api, checkpoints)
    by_task, by_trial = defaultdict[str, list[Allocation]](list), defaultdict[TrialId, list[Checkpoint]](list)
    by_group = defaultdict[int, dict[str, Sequence[Chunk]]](dict)
    for (trial_id, group), found in chunks.items():
        by_group[trial_id][group] = found
    for allocation in allocations:
        by_task[allocation.task_id].append(allocation)
    for checkpoint in checkpoints:
        by_trial[checkpoint.trial_id].append(checkpoint)
    return {
        trial.id: TrialParts(
            trial=trial,
            around=render_trials.TrialSurroundings(
                experiment=experiments[trial.experiment_id],
                allocations=tuple(by_task[trial.task_id]),
                checkpoints=tuple(by_trial[trial.id]),
                validations=validations.get(trial.id, ()),
                now=api.clock.now(),
            ),
            chunks=by_group[trial.id],
        )
        for trial in trials
    }


async def summaries_of(api: ApiContext, trial: TrialId) -> dict[str, Any]:
    """The summaries of the reports that count, as they were updated at each report."""
    return summaries({group: chunks for (_, group), chunks in (await api.store.metric_chunks([trial])).items()})


async def validations_at(api: ApiContext, checkpoints: Iterable[Checkpoint]) -> tuple[MetricReport, ...]:
    """The validations at the steps of these checkpoints, of all their trials."""
    return tuple(chain.from_iterable((await validations_of(api, checkpoints)).values()))


async def validations_of(api: ApiContext, checkpoints: Iterable[Checkpoint]) -> dict[TrialId, tuple[MetricReport, ...]]:
    """The validations at the steps of these checkpoints, by trial. Each trial that has a checkpoint is contained."""
    return await reports_at(api, checkpoints, (VALIDATION,))


async def reports_at(
    api: ApiContext, checkpoints: Iterable[Checkpoint], groups: Sequence[str] = STEPPED_GROUPS
) -> dict[TrialId, tuple[MetricReport, ...]]:
    """The reports at the steps of each trial's checkpoints, by trial. Their number does not depend on the number of reports."""
    steps: dict[TrialId, set[int]] = defaultdict(set)
    for checkpoint in checkpoints:
        steps[checkpoint.trial_id].add(checkpoint.steps_completed)
    found: dict[TrialId, tuple[MetricReport, ...]] = {}
    for trial, own in sorted(steps.items()):
        of_groups = [await api.store.metrics_at(trial, group, own) for group in groups]
        found[trial] = tuple(chain.from_iterable(of_groups))
    return found
