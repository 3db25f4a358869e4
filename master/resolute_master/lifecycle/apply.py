"""A command, carried out on a working copy; the reply is what the caller gets once it is stored."""

from __future__ import annotations

from typing import Any

from resolute.errors import NotFound
from resolute.wire.states import ExperimentState as S
from resolute_master.domain import administration as a
from resolute_master.domain import commands as c
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.machines import RecordBootFailure, RecordPrices, RecordStray, SpendJoinToken
from resolute_master.lifecycle import (
    agents,
    allocations,
    checkpoints,
    experiments,
    instances,
    jobs,
    log_policies,
    offers,
    reports,
    spending,
    templates,
    trials,
    unmanaged,
    users,
    workspaces,
)
from resolute_master.lifecycle import allocation as machine
from resolute_master.lifecycle.step import Step


def apply(step: Step, command: c.Command) -> Any:
    """Raises a `ResoluteError` when the command is refused; what it has written is taken back then (`Step.attempt`)."""
    reply = _apply(step, command)
    settle(step)
    return reply


def settle(step: Step) -> None:
    """Make ends known to those who wait for them, until nothing is left to tell."""
    while step.ended_allocations or step.ended_trials:
        if step.ended_allocations:
            trials.allocation_ended(step, step.ended_allocations.pop(0))
        else:
            experiments.trial_ended(step, step.ended_trials.pop(0))


def _apply(step: Step, command: c.Command) -> Any:
    match command:
        case c.MasterStarted():
            instances.trust_configuration_again(step)
            offers.retire(step)
            offers.catch_up(step)
            return agents.disconnect_all(step)
        case c.Reconsider():
            return None
        case c.CreateUser() | c.ChangeUser() | c.StartSession() | c.EndSession():
            return _user(step, command)
        case c.RegisterAgent():
            return agents.register(step, command)
        case c.LoseAgentLink():
            return agents.disconnect(step, command.agent, command.incarnation)
        case c.ReportContainer():
            return agents.report(step, command.agent, command.incarnation, command.report)
        case c.ReportNotice():
            return agents.notice(step, command)
        case SpendJoinToken():
            return agents.spend_join_token(step, command.agent, command.incarnation)
        case c.SetAgentEnabled():
            return agents.set_enabled(step, command.agent, enabled=command.enabled, draining=command.draining)
        case c.SetSlotEnabled():
            return agents.set_slot_enabled(
                step, command.agent, command.index, enabled=command.enabled, draining=command.draining
            )
        case c.RecordLaunch():
            return instances.launched(step, command)
        case c.RecordRefusal():
            return instances.refused(step, command)
        case c.RecordObservation():
            return instances.observed(step, command)
        case RecordBootFailure():
            return instances.boot_failed(step, command)
        case RecordStray():
            return instances.stray(step, command)
        case RecordPrices():
            return offers.record_prices(step, command)
        case c.UpdateJob():
            return jobs.update(step, command)
        case a.PutTemplate() | a.RenameTemplate() | a.DeleteTemplate():
            return _template(step, command)
        case a.SetBudget():
            return spending.set_budget(step, command)
        case a.CreateWorkspace() | a.PatchWorkspace() | a.CreateProject() | a.BindPool():
            return _workspace(step, command)
        case c.KillTrial() | c.SetTrialLogRetention() | c.StartUnmanagedRun() | c.HearUnmanagedTrial():
            return _trial(step, command)
        case _:
            return _experiment(step, command) if _about_experiments(command) else _task(step, command)


def _user(step: Step, command: c.CreateUser | c.ChangeUser | c.StartSession | c.EndSession) -> Any:
    match command:
        case c.CreateUser():
            return users.create(step, command)
        case c.ChangeUser():
            return users.change(step, command)
        case c.StartSession():
            return users.start_session(step, command)
        case c.EndSession():
            return users.end_session(step, command.session)


def _template(step: Step, command: a.PutTemplate | a.RenameTemplate | a.DeleteTemplate) -> None:
    match command:
        case a.PutTemplate():
            templates.put(step, command)
        case a.RenameTemplate():
            templates.rename(step, command)
        case a.DeleteTemplate():
            templates.delete(step, command.name)


def _workspace(step: Step, command: a.CreateWorkspace | a.PatchWorkspace | a.CreateProject | a.BindPool) -> Any:
    match command:
        case a.CreateWorkspace():
            return workspaces.create(step, command)
        case a.PatchWorkspace():
            return workspaces.patch(step, command)
        case a.CreateProject():
            return workspaces.create_project(step, command)
        case a.BindPool():
            return workspaces.bind(step, command)


def _trial(
    step: Step, command: c.KillTrial | c.SetTrialLogRetention | c.StartUnmanagedRun | c.HearUnmanagedTrial
) -> Any:
    match command:
        case c.KillTrial():
            return trials.kill(step, command.trial)
        case c.SetTrialLogRetention():
            return trials.set_log_retention(step, reports.need_trial(step, command.trial), command.days)
        case c.StartUnmanagedRun():
            return unmanaged.start_run(step, command)
        case c.HearUnmanagedTrial():
            return unmanaged.hear(step, command.trial, command.state)


def _about_experiments(command: c.Command) -> bool:
    return isinstance(command, c.CreateExperiment) or hasattr(command, "experiment")


def _experiment(step: Step, command: c.Command) -> Any:
    match command:
        case c.CreateExperiment():
            return experiments.create(step, command)
        case c.ActivateExperiment():
            experiment = experiments.need(step, command.experiment)
            spending.go_on(step, experiment)
            return experiments.set_state(step, experiment, S.ACTIVE)
        case c.PauseExperiment():
            return experiments.set_state(step, experiments.need(step, command.experiment), S.PAUSED)
        case c.CancelExperiment():
            return experiments.cancel(step, command.experiment)
        case c.KillExperiment():
            return experiments.kill(step, command.experiment)
        case c.ArchiveExperiment():
            return experiments.archive(step, command.experiment, command.archived)
        case c.DeleteExperiment():
            return experiments.delete(step, command.experiment)
        case c.PatchExperiment():
            return experiments.patch(step, command)
        case a.SetMaxCost():
            return spending.set_max_cost(step, command)
        case c.MoveExperiment():
            return workspaces.move(step, experiments.need(step, command.experiment), command.project_id)
        case c.SetCheckpointPolicy():
            return checkpoints.set_policy(step, command)
        case c.RemoveTensorboards():
            return experiments.remove_tensorboards(step, experiments.need(step, command.experiment))
        case c.SetExperimentLogRetention():
            return experiments.set_log_retention(step, command.experiment, command.days)
        case c.CreateUnmanagedTrial():
            return unmanaged.create_trial(step, command)
        case _:
            raise AssertionError(f"no rule for {type(command).__name__}")


def _task(step: Step, command: c.Command) -> Any:
    match command:
        case c.JoinRendezvous():
            return allocations.join_rendezvous(step, command.allocation, command.container)
        case c.AcknowledgePreemption():
            return allocations.from_task(step, command.allocation, machine.PreemptionAcknowledged())
        case c.RequestPreemption():
            if step.get(Allocation, command.allocation) is None:
                raise NotFound("allocation", command.allocation)
            return allocations.preempt(step, command.allocation, command.reason)
        case c.MarkWaiting():
            return allocations.from_task(step, command.allocation, machine.Waits())
        case c.MarkReady():
            return allocations.from_task(step, command.allocation, machine.Ready())
        case c.MarkDaemon():
            return allocations.from_task(step, command.allocation, machine.DaemonMarked(container=command.container))
        case c.ReportEarlyExit():
            return trials.report_early_exit(step, command.trial, invalid_hparams=command.invalid_hparams)
        case c.ReportProgress():
            return reports.progress(step, command.trial, command.progress)
        case c.ReportRunnerState():
            return reports.runner_state(step, command.trial, command.state)
        case c.SetRunMetadata():
            return reports.metadata(step, command.trial, command.metadata)
        case c.RecordReports():
            for report in command.reports:
                reports.record(step, report)
            return None
        case c.RecordLogMatches():
            for match in command.matches:
                log_policies.record(step, match)
            return None
        case _:
            return _checkpoint(step, command)


def _checkpoint(step: Step, command: c.Command) -> Any:
    match command:
        case c.ReportCheckpoint():
            return reports.checkpoint(step, command)
        case c.SetCheckpointMetadata():
            return checkpoints.set_metadata(step, command.uuid, command.metadata)
        case c.SetCheckpointResources():
            return checkpoints.set_resources(step, command)
        case c.DeleteCheckpoints():
            return checkpoints.delete(step, command.uuids)
        case c.RemoveCheckpointFiles():
            return checkpoints.remove_files(step, command)
        case c.UseCheckpoint():
            return checkpoints.use(step, command)
        case c.RecordRemovedTensorboards():
            return step.done(f"remove-tensorboards:{command.removed_from}")
        case _:
            raise AssertionError(f"no rule for {type(command).__name__}")
