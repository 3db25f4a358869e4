"""Experiments."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from resolute.config import SecretNames, mask_experiment, mask_experiment_text
from resolute.wire.rest.experiments import Experiment as WireExperiment
from resolute_master.api.render.states import experiment_state
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Project, Workspace
from resolute_master.store.base import ExperimentNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Related values of an experiment; unknown owners are None."""

    owner: User | None
    workspace: Workspace
    project: Project
    project_owner: User | None
    allocations: tuple[Allocation, ...] = ()
    numbers: ExperimentNumbers = field(default_factory=ExperimentNumbers)
    trial_ids: tuple[int, ...] = ()
    model_definition_size: int | None = None
    secret_names: SecretNames
    """Names of environment variables whose values are secret."""
    now: datetime


def experiment(value: Experiment, around: Surroundings) -> WireExperiment:
    config = mask_experiment(value.config, around.secret_names)
    ended = value.ended_at or around.now
    owner = around.owner
    return WireExperiment(
        id=value.id,
        job_id=value.job_id,
        name=value.name,
        description=value.description,
        labels=value.labels,
        notes=value.notes,
        archived=value.archived,
        state=experiment_state(value.state, around.allocations, unmanaged=value.unmanaged),
        unmanaged=value.unmanaged,
        external_experiment_id=value.external_id,
        progress=value.progress,
        start_time=value.started_at,
        end_time=value.ended_at,
        duration=max(0, int((ended - value.started_at).total_seconds())),
        config=config,
        original_config=mask_experiment_text(value.original_config, around.secret_names),
        hyperparameters=config["hyperparameters"],
        searcher_type=str(config["searcher"]["name"]),
        searcher_metric=value.metric,
        best_trial_id=value.best_trial,
        best_trial_searcher_metric=value.best_validation,
        warning=value.metric_warning or None,
        resource_pool=str(config["resources"]["resource_pool"]),
        num_trials=around.numbers.trials,
        trial_ids=around.trial_ids,
        checkpoint_count=around.numbers.checkpoints,
        checkpoint_size=around.numbers.checkpoint_bytes,
        model_definition_size=around.model_definition_size,
        forked_from=value.parent_id,
        user_id=value.owner,
        username=owner.username if owner else "",
        display_name=owner.display_name if owner else "",
        project_id=value.project_id,
        project_name=around.project.name,
        project_owner_id=around.project_owner.id if around.project_owner else 0,
        parent_archived=around.project.archived or around.workspace.archived,
        workspace_id=around.workspace.id,
        workspace_name=around.workspace.name,
    )
