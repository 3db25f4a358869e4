"""Ended experiments and machines leave the memory; a command that concerns one takes it up again for its cycle."""

from __future__ import annotations

from collections.abc import Sequence

from resolute_master.domain import commands as c
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
    """What the commands need and the memory does not have; unknown ids are left to the rules to refuse."""
    wanted: set[ExperimentId] = set()
    for command in commands:
        wanted |= await _experiments_of(store, state, command)
    found: list[Entity] = []
    for id_ in sorted(wanted):
        if state.get(Experiment, id_) is None:
            found += await store.experiment_entities(id_)
    for command in commands:
        if isinstance(command, RecordStray):
            found += await _ended_machine(store, state, command)
    return tuple(found)


async def _ended_machine(store: Store, state: ClusterState, command: RecordStray) -> list[Entity]:
    """The row that a stray's tags name. Its token must agree: tags can be written by others, too."""
    id_ = command.instance_id
    if id_ is None or not command.token or state.get(Instance, id_) is not None:
        return []
    row = await store.instance(id_)
    return [row] if row is not None and row.pool == command.pool and row.token == command.token else []


async def _experiments_of(store: Store, state: ClusterState, command: c.Command) -> set[ExperimentId]:
    match command:
        case c.CreateExperiment(parent=parent):
            return set() if parent is None else {parent}
        case (
            c.ActivateExperiment()
            | c.PauseExperiment()
            | c.CancelExperiment()
            | c.KillExperiment()
            | c.ArchiveExperiment()
            | c.DeleteExperiment()
            | c.PatchExperiment()
            | c.MoveExperiment()
            | c.SetCheckpointPolicy()
            | c.RemoveTensorboards()
            | c.SetExperimentLogRetention()
            | c.CreateUnmanagedTrial()
        ):
            return {command.experiment}
        case (
            c.KillTrial()
            | c.SetRunMetadata()
            | c.ReportRunnerState()
            | c.ReportProgress()
            | c.ReportEarlyExit()
            | c.SetTrialLogRetention()
            | c.StartUnmanagedRun()
            | c.HearUnmanagedTrial()
        ):
            return await _of_trial(store, state, command.trial)
        case c.UseCheckpoint():
            return {
                *await _of_trial(store, state, command.trial),
                *await _of_checkpoint(store, state, command.uuid),
            }
        case c.RecordReports():
            return {id_ for report in command.reports for id_ in await _of_trial(store, state, report.trial)}
        case c.ReportCheckpoint():
            return _of_allocation(state, command.allocation)
        case c.SetCheckpointMetadata() | c.SetCheckpointResources():
            return await _of_checkpoint(store, state, command.uuid)
        case c.DeleteCheckpoints() | c.RemoveCheckpointFiles():
            found: set[ExperimentId] = set()
            for uuid in command.uuids:
                found |= await _of_checkpoint(store, state, uuid)
            return found
        case _:
            return set()


async def _of_trial(store: Store, state: ClusterState, id_: TrialId) -> set[ExperimentId]:
    if state.get(Trial, id_) is not None:
        return set()
    trial = await store.trial(id_)
    return set() if trial is None else {trial.experiment_id}


def _of_allocation(state: ClusterState, id_: AllocationId) -> set[ExperimentId]:
    """An allocation that has ended says in its own name whose it was."""
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
