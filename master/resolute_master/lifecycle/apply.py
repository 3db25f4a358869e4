"""Applies a command to a working copy. The caller gets the reply once the change is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from resolute.errors import NotFound
from resolute.wire.states import ExperimentState as S
from resolute_master.domain import administration as a
from resolute_master.domain import commands as c
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.machines import ForgetAgent, RecordBootFailure, RecordPrices, RecordStray, SpendJoinToken
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle import (
    agents,
    allocation_fsm,
    allocations,
    archiving,
    checkpoints,
    experiments,
    instances,
    jobs,
    log_policies,
    offers,
    place_deletion,
    projects,
    reports,
    searching,
    spending,
    templates,
    trials,
    unmanaged,
    user_settings,
    users,
    workspaces,
)
from resolute_master.lifecycle.step import Step


def apply(step: Step, command: c.Command) -> Any:
    """Applies the command. Raises a `ResoluteError` if it is refused; then its writes are undone (`Step.attempt`)."""
    reply = RULES[type(command)](step, command)
    settle(step)
    return reply


def settle(step: Step) -> None:
    """Notify waiting entities of ends, until no notification is left."""
    while step.ended_allocations or step.ended_trials:
        if step.ended_allocations:
            trials.allocation_ended(step, step.ended_allocations.pop(0))
        else:
            experiments.trial_ended(step, step.ended_trials.pop(0))


def _started(step: Step, command: c.MasterStarted) -> None:
    instances.trust_configuration_again(step)
    offers.retire(step)
    offers.catch_up(step)
    agents.disconnect_all(step)


def _activate(step: Step, command: c.ActivateExperiment) -> None:
    experiment = experiments.need(step, command.experiment)
    spending.go_on(step, experiment)
    experiments.set_state(step, experiment, S.ACTIVE)


def _patch(step: Step, command: c.PatchExperiment) -> None:
    if command.job is not None:
        jobs.update(step, command.job)
    if command.checkpoint_policy is not None:
        checkpoints.set_policy(step, command.checkpoint_policy)
    experiments.patch(step, command)


def _acknowledge(step: Step, command: c.AcknowledgePreemption) -> None:
    """Records an acknowledgement. A task for which its search has no work ends without a request."""
    allocation = step.get(Allocation, command.allocation)
    trial = None if allocation is None or allocation.trial_id is None else step.get(Trial, allocation.trial_id)
    row = None if trial is None else searching.row_of(step, trial)
    if allocation is not None and allocation.containers and row is not None and row.idle:
        allocations.preempt(step, allocation.id, "it waits for its search to decide about it")
    allocations.from_task(step, command.allocation, allocation_fsm.PreemptionAcknowledged())


def _request_preemption(step: Step, command: c.RequestPreemption) -> None:
    if step.get(Allocation, command.allocation) is None:
        raise NotFound("allocation", command.allocation)
    allocations.preempt(step, command.allocation, command.reason)


def _record_reports(step: Step, command: c.RecordReports) -> None:
    for report in command.reports:
        reports.record(step, report)


def _record_log_matches(step: Step, command: c.RecordLogMatches) -> None:
    for match in command.matches:
        log_policies.record(step, match)


RULES: Mapping[type[c.Command], Callable[[Step, Any], Any]] = {
    c.MasterStarted: _started,
    c.Reconsider: lambda step, command: None,
    # Users
    c.CreateUser: users.create,
    c.ChangeUser: users.change,
    c.StartSession: users.start_session,
    c.EndSession: lambda step, command: users.end_session(step, command.session),
    # Agents and machines
    c.RegisterAgent: agents.register,
    c.LoseAgentLink: lambda step, command: agents.disconnect(step, command.agent, command.incarnation),
    c.ReportContainer: lambda step, command: agents.report(step, command.agent, command.incarnation, command.report),
    c.ReportNotice: agents.notice,
    SpendJoinToken: lambda step, command: agents.spend_join_token(step, command.agent, command.incarnation),
    ForgetAgent: agents.forget,
    c.SetAgentEnabled: lambda step, command: agents.set_enabled(
        step, command.agent, enabled=command.enabled, draining=command.draining
    ),
    c.SetSlotEnabled: lambda step, command: agents.set_slot_enabled(
        step, command.agent, command.index, enabled=command.enabled, draining=command.draining
    ),
    c.RecordLaunch: instances.launched,
    c.RecordRefusal: instances.refused,
    c.RecordObservation: instances.observed,
    RecordBootFailure: instances.boot_failed,
    RecordStray: instances.stray,
    RecordPrices: offers.record_prices,
    # Requests of administrators and of users of the queue
    c.UpdateJob: jobs.update,
    a.PutTemplate: templates.put,
    a.RenameTemplate: templates.rename,
    a.SetUserSettings: user_settings.put,
    a.ResetUserSettings: user_settings.reset,
    a.VisitProject: user_settings.visit,
    a.DeleteTemplate: lambda step, command: templates.delete(step, command.name),
    a.SetBudget: spending.set_budget,
    a.SetMaxCost: spending.set_max_cost,
    a.CreateWorkspace: workspaces.create,
    a.PatchWorkspace: workspaces.patch,
    a.CreateProject: workspaces.create_project,
    a.BindPool: workspaces.bind,
    a.PinWorkspace: user_settings.pin,
    a.ArchiveWorkspace: archiving.archive_workspace,
    a.DeleteWorkspace: place_deletion.delete_workspace,
    a.PatchProject: projects.patch,
    a.SetProjectNotes: projects.set_notes,
    a.ArchiveProject: archiving.archive_project,
    a.MoveProject: projects.move,
    a.FollowProject: projects.follow,
    a.RecordProjectMoved: projects.moved,
    a.DeleteProject: place_deletion.delete_project,
    a.ForgetProject: place_deletion.forget_project,
    a.FailProjectDeletion: place_deletion.fail,
    # Experiments
    c.CreateExperiment: experiments.create,
    c.ActivateExperiment: _activate,
    c.PauseExperiment: lambda step, command: experiments.set_state(
        step, experiments.need(step, command.experiment), S.PAUSED
    ),
    c.CancelExperiment: lambda step, command: experiments.cancel(step, command.experiment),
    c.KillExperiment: lambda step, command: experiments.kill(step, command.experiment),
    c.ArchiveExperiment: lambda step, command: experiments.archive(step, command.experiment, command.archived),
    c.DeleteExperiment: lambda step, command: experiments.delete(step, command.experiment),
    c.PatchExperiment: _patch,
    c.MoveExperiment: lambda step, command: workspaces.move(
        step, experiments.need(step, command.experiment), command.project_id
    ),
    c.SetCheckpointPolicy: checkpoints.set_policy,
    c.KeepCheckpoints: checkpoints.keep,
    c.RemoveTensorboards: lambda step, command: experiments.remove_tensorboards(
        step, experiments.need(step, command.experiment)
    ),
    c.RecordRemovedTensorboards: lambda step, command: step.done(f"remove-tensorboards:{command.removed_from}"),
    c.SetExperimentLogRetention: lambda step, command: experiments.set_log_retention(
        step, command.experiment, command.days
    ),
    # Trials
    c.KillTrial: lambda step, command: trials.kill(step, command.trial),
    c.SetTrialLogRetention: lambda step, command: trials.set_log_retention(
        step, reports.need_trial(step, command.trial), command.days
    ),
    c.CreateUnmanagedTrial: unmanaged.create_trial,
    c.StartUnmanagedRun: unmanaged.start_run,
    c.ReportUnmanagedTrial: lambda step, command: unmanaged.record_contact(step, command.trial, command.state),
    # Reports of tasks
    c.JoinRendezvous: lambda step, command: allocations.join_rendezvous(step, command.allocation, command.container),
    c.AcknowledgePreemption: _acknowledge,
    c.RequestPreemption: _request_preemption,
    c.MarkWaiting: lambda step, command: allocations.from_task(step, command.allocation, allocation_fsm.Waits()),
    c.MarkReady: lambda step, command: allocations.from_task(step, command.allocation, allocation_fsm.Ready()),
    c.MarkDaemon: lambda step, command: allocations.from_task(
        step, command.allocation, allocation_fsm.DaemonMarked(container=command.container)
    ),
    c.ReportEarlyExit: lambda step, command: trials.report_early_exit(
        step, command.trial, invalid_hparams=command.invalid_hparams
    ),
    c.ReportProgress: lambda step, command: reports.progress(step, command.trial, command.progress),
    c.CompleteOperation: lambda step, command: reports.operation_completed(
        step, command.trial, command.length, command.metric
    ),
    c.ProposePoints: lambda step, command: experiments.propose(step, command),
    c.ReportRunnerState: lambda step, command: reports.runner_state(step, command.trial, command.state),
    c.SetRunMetadata: lambda step, command: reports.metadata(step, command.trial, command.metadata),
    c.RecordReports: _record_reports,
    c.RecordLogMatches: _record_log_matches,
    # Checkpoints
    c.ReportCheckpoint: reports.checkpoint,
    c.SetCheckpointMetadata: lambda step, command: checkpoints.set_metadata(step, command.uuid, command.metadata),
    c.SetCheckpointResources: checkpoints.set_resources,
    c.DeleteCheckpoints: lambda step, command: checkpoints.delete(step, command.uuids),
    c.RemoveCheckpointFiles: checkpoints.remove_files,
    c.ReportRemovalWaits: checkpoints.removal_waits,
    c.UseCheckpoint: checkpoints.use,
}
"""The rule for each command."""
