"""Ended experiments and machines are evicted from memory; a command that concerns one loads it again for its cycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from resolute_master.domain import commands as c
from resolute_master.domain.administration import FollowProject
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Entity
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, ExperimentId, TrialId, task_of
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import RecordStray
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.store.base import Store


async def entities_for(store: Store, state: ClusterState, commands: Sequence[c.Command]) -> tuple[Entity, ...]:
    """Entities that the commands need and the memory does not contain. The rules refuse unknown ids."""
    wanted: set[ExperimentId] = set()
    for command in commands:
        experiments_of = _EXPERIMENTS_OF.get(type(command))
        if experiments_of is not None:
            wanted |= await experiments_of(store, state, command)
    found: list[Entity] = []
    for id_ in sorted(wanted):
        if state.get(Experiment, id_) is None:
            found += await store.experiment_entities(id_)
    for command in commands:
        if isinstance(command, RecordStray):
            found += await _ended_machine(store, state, command)
    return tuple(found)


async def _ended_machine(store: Store, state: ClusterState, command: RecordStray) -> list[Entity]:
    """The row in the tags of a stray. Its token must match, because other programs can write tags as well."""
    id_ = command.instance_id
    if id_ is None or not command.token or state.get(Instance, id_) is not None:
        return []
    row = await store.instance(id_)
    return [row] if row is not None and row.pool == command.pool and row.token == command.token else []


async def _of_trial(store: Store, state: ClusterState, id_: TrialId) -> set[ExperimentId]:
    if state.get(Trial, id_) is not None:
        return set()
    trial = await store.trial(id_)
    return set() if trial is None else {trial.experiment_id}


def _of_allocation(state: ClusterState, id_: AllocationId) -> set[ExperimentId]:
    """The experiment of an allocation: the name of an ended one contains it."""
    number = task_of(id_).partition(".")[0]
    return (
        {ExperimentId(int(number))}
        if state.get(Allocation, id_) is None and number.isascii() and number.isdigit()
        else set()
    )


async def _of_checkpoint(store: Store, state: ClusterState, uuid: str) -> set[ExperimentId]:
    if state.get(Checkpoint, uuid) is not None:
        return set()
    checkpoint = await store.checkpoint(uuid)
    return set() if checkpoint is None else {checkpoint.experiment_id}


async def _of_parent(store: Store, state: ClusterState, command: c.CreateExperiment) -> set[ExperimentId]:
    """The parent of a new experiment, and the experiment of the checkpoint from which its trials start."""
    found = set() if command.parent is None else {command.parent}
    source = (command.config.get("searcher") or {}).get("source_checkpoint_uuid")
    return found | (await _of_checkpoint(store, state, source) if source else set())


async def _of_its_experiment(store: Store, state: ClusterState, command: Any) -> set[ExperimentId]:
    return {command.experiment}


async def _of_its_trial(store: Store, state: ClusterState, command: Any) -> set[ExperimentId]:
    return await _of_trial(store, state, command.trial)


async def _of_reports(store: Store, state: ClusterState, command: c.RecordReports) -> set[ExperimentId]:
    return {id_ for report in command.reports for id_ in await _of_trial(store, state, report.trial)}


async def _of_its_allocation(store: Store, state: ClusterState, command: c.ReportCheckpoint) -> set[ExperimentId]:
    return _of_allocation(state, command.allocation)


async def _of_its_checkpoint(store: Store, state: ClusterState, command: Any) -> set[ExperimentId]:
    return await _of_checkpoint(store, state, command.uuid)


async def _of_its_checkpoints(store: Store, state: ClusterState, command: Any) -> set[ExperimentId]:
    return {id_ for uuid in command.uuids for id_ in await _of_checkpoint(store, state, uuid)}


async def _of_use(store: Store, state: ClusterState, command: c.UseCheckpoint) -> set[ExperimentId]:
    return await _of_its_trial(store, state, command) | await _of_its_checkpoint(store, state, command)


_EXPERIMENTS_OF: Mapping[type[c.Command], Callable[[Store, ClusterState, Any], Awaitable[set[ExperimentId]]]] = {
    c.CreateExperiment: _of_parent,
    c.ActivateExperiment: _of_its_experiment,
    c.PauseExperiment: _of_its_experiment,
    c.CancelExperiment: _of_its_experiment,
    c.KillExperiment: _of_its_experiment,
    c.ArchiveExperiment: _of_its_experiment,
    c.DeleteExperiment: _of_its_experiment,
    c.PatchExperiment: _of_its_experiment,
    c.MoveExperiment: _of_its_experiment,
    FollowProject: _of_its_experiment,
    c.SetCheckpointPolicy: _of_its_experiment,
    c.KeepCheckpoints: _of_its_experiment,
    c.RemoveTensorboards: _of_its_experiment,
    c.SetExperimentLogRetention: _of_its_experiment,
    c.CreateUnmanagedTrial: _of_its_experiment,
    c.KillTrial: _of_its_trial,
    c.SetRunMetadata: _of_its_trial,
    c.CompleteOperation: _of_its_trial,
    c.ReportRunnerState: _of_its_trial,
    c.ReportProgress: _of_its_trial,
    c.ReportEarlyExit: _of_its_trial,
    c.SetTrialLogRetention: _of_its_trial,
    c.StartUnmanagedRun: _of_its_trial,
    c.ReportUnmanagedTrial: _of_its_trial,
    c.RecordReports: _of_reports,
    c.ReportCheckpoint: _of_its_allocation,
    c.SetCheckpointMetadata: _of_its_checkpoint,
    c.SetCheckpointResources: _of_its_checkpoint,
    c.DeleteCheckpoints: _of_its_checkpoints,
    c.RemoveCheckpointFiles: _of_its_checkpoints,
    c.ReportRemovalWaits: _of_its_checkpoint,
    c.UseCheckpoint: _of_use,
}
"""The experiments that a command concerns; other commands concern none that may have been unloaded from memory."""
