"""Creates an experiment: read, merge, check, store the code, and then submit the command.

Nothing is stored before everything has been checked, and nothing at all when only a validation was requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resolute.config import (
    ExperimentConfig,
    experiment_defaults,
    load_yaml,
    merge,
    parse_experiment,
    parse_template,
    runtime_warnings,
)
from resolute.config.deadlines import deadline_notes, resolved_deadline
from resolute.errors import InvalidInput
from resolute.wire.rest.enums import LaunchWarning
from resolute.wire.rest.experiment_changes import CreateExperimentRequest, CreateExperimentResponse
from resolute.wire.states import ExperimentState
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import find_experiment
from resolute_master.api.reading.showing import show_experiment
from resolute_master.api.render.experiments import Surroundings
from resolute_master.api.render.experiments import experiment as render_experiment
from resolute_master.api.submission.context_archive import check_files, digest_of, pack
from resolute_master.api.submission.experiment_limits import check_config_text, check_search, check_texts, check_words
from resolute_master.api.submission.forks import parent_of, with_secrets_of
from resolute_master.api.submission.host_paths import check_host_paths, rules_of
from resolute_master.api.submission.warm_start import with_source
from resolute_master.domain.agent import Agent
from resolute_master.domain.commands import CreateExperiment
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import ExperimentId, JobId, PoolName
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.template import Template
from resolute_master.domain.trial import Trial
from resolute_master.domain.workspace import UNCATEGORIZED_ID, Project, Workspace
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.budget import check_priced
from resolute_master.lifecycle.capacity import shortage

SEED_BITS = 31

THREAD_ABOVE_CHARACTERS = 16 * 1024
"""A longer configuration is read in a thread: reading its YAML would stall the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A submission that has passed all checks."""

    config: dict[str, Any]
    warnings: tuple[LaunchWarning, ...]
    notes: tuple[str, ...]
    """Notes for the task's log."""
    parent: Experiment | None
    workspace: Workspace
    project: Project


async def create_experiment(call: Call, _: None) -> CreateExperimentResponse:
    """Creates an experiment from a configuration and a model definition, or only validates them."""
    return await create_from(call, await call.body(CreateExperimentRequest))


async def create_from(
    call: Call, request: CreateExperimentRequest, *, external_id: str | None = None
) -> CreateExperimentResponse:
    """Creates the experiment of a request. `external_id`: the owner's name for an unmanaged experiment. If there is an experiment
    with that name, the answer has it instead."""
    checked = await _check(call, request)
    if request.validate_only:
        return _preview(call, request, checked)
    context = await _store_context(call, request, checked.parent)
    id_: ExperimentId = await call.api.engine.submit(_command(call, request, checked, context, external_id))
    await _mention(call, id_, checked.notes)
    shown = await show_experiment(call.api, await find_experiment(call.api, id_))
    return CreateExperimentResponse(experiment=shown, config=shown.config, warnings=checked.warnings)


# ---------------------------------------------------------------------------------------------------------- checks


async def _check(call: Call, request: CreateExperimentRequest) -> Checked:
    parent = await parent_of(call, request)
    check_files(request.model_definition)
    check_config_text(request.config)
    raw = await _read(request.config)
    if parent is not None:
        raw = await with_secrets_of(call, parent, raw)
    if request.template:
        raw = merge(raw, _template(call, request.template))
    state = call.api.engine.state
    project = _project(call, request, raw)
    workspaces.check_open(state, project)
    if parent is not None:
        workspaces.check_open(state, workspaces.need_project(state, parent.project_id))
    workspace = workspaces.need_workspace(state, project.workspace_id)
    raw = _with_default_pool(raw, workspace)
    defaults = experiment_defaults(call.api.config, raw, ids=call.api.ids, clock=call.api.clock)
    parsed = parse_experiment(raw, defaults=defaults, managed=not request.unmanaged)
    check_texts(name=parsed.name, description=parsed.description, labels=parsed.labels)
    pool = PoolName(
        call.api.config.pool_for(parsed.resources.resource_pool, parsed.resources.slots_per_trial).pool_name
    )
    if not request.unmanaged:
        workspaces.check_pool(state, pool, workspace, call.api.engine.pools)
        _check_kept(call, parsed, pool)
        if parsed.resources.max_cost is not None:
            check_priced(state, call.api.engine.pools.get(pool), pool)
    warnings = () if request.unmanaged else _check_capacity(call, parsed, pool)
    config = parsed.to_json()
    if not request.unmanaged:
        check_search(config["searcher"], config["hyperparameters"])
    check_words(config)
    config["searcher"] = await with_source(call.api, config["searcher"])
    await check_host_paths(call.api.config, rules_of(call.api.config, call.api.own_files), config)
    config["resources"] = {**config["resources"], "resource_pool": pool}
    if parsed.resources.deadline is not None:
        config["resources"]["deadline"] = resolved_deadline(parsed.resources.deadline, call.api.clock.now())
    if not project.immutable:
        config |= {"workspace": workspace.name, "project": project.name}
    return Checked(
        config=config,
        warnings=warnings,
        notes=(*runtime_warnings(parsed), *deadline_notes(parsed), *_unused_deadline(call, parsed, pool)),
        parent=parent,
        workspace=workspace,
        project=project,
    )


def _unused_deadline(call: Call, config: ExperimentConfig, pool: PoolName) -> tuple[str, ...]:
    scaling = call.api.engine.pools[pool].scaling
    if config.resources.deadline is None or (scaling is not None and len({o.market for o in scaling.offers}) > 1):
        return ()
    return (
        f"config.resources.deadline: pool {pool} cannot choose between spot and on demand, so that it runs as without one",
    )


async def _read(text: str) -> dict[str, Any]:
    what = "the experiment configuration"
    if len(text) <= THREAD_ABOVE_CHARACTERS:
        return load_yaml(text, what=what)
    return await asyncio.to_thread(load_yaml, text, what=what)


def _template(call: Call, name: str) -> Mapping[str, Any]:
    found = call.api.engine.state.get(Template, name)
    if found is None:
        raise InvalidInput(f"template: there is no template '{name}'; `det template list` shows the existing ones")
    return parse_template(found.config, name=name, experiment=True)


def _project(call: Call, request: CreateExperimentRequest, raw: Mapping[str, Any]) -> Project:
    """The project, which the request names by id, or the configuration by name."""
    state = call.api.engine.state
    if request.project_id not in (None, 0, UNCATEGORIZED_ID):
        found = next((one for one in workspaces.projects(state) if one.id == request.project_id), None)
        if found is None:
            raise InvalidInput(f"projectId: there is no project {request.project_id}; leave it out, or create one")
        return found
    workspace, project = raw.get("workspace"), raw.get("project")
    if isinstance(workspace, str) and isinstance(project, str) and workspace and project:
        return workspaces.project_named(state, workspace, project)
    return workspaces.need_project(state, UNCATEGORIZED_ID)


def _with_default_pool(raw: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The configuration with the default pool of its workspace, if it names no pool and the workspace has one."""
    resources = raw.get("resources")
    asked = resources if isinstance(resources, Mapping) else {}
    has_slots = asked.get("slots_per_trial") != 0
    pool = workspace.default_compute_pool if has_slots else workspace.default_aux_pool
    if asked.get("resource_pool") or pool is None or not isinstance(resources, Mapping | None):
        return raw
    return {**raw, "resources": {**asked, "resource_pool": pool}}


def _check_kept(call: Call, config: ExperimentConfig, pool: PoolName) -> None:
    """Raises `InvalidInput` if the checkpoints would be lost with the machine that writes them."""
    storage = config.checkpoint_storage
    if why := call.api.config.pool_loses_files(pool, None if storage is None else storage.type):
        raise InvalidInput(f"checkpoint_storage.type: {why}")


def _check_capacity(call: Call, config: ExperimentConfig, pool: PoolName) -> tuple[LaunchWarning, ...]:
    """Refuses an experiment that can never run. With `launch_error: false`, it is accepted with a warning."""
    resources = config.resources
    if resources.max_slots is not None and resources.slots_per_trial > resources.max_slots:
        raise InvalidInput(
            f"resources.max_slots: {resources.max_slots} is less than slots_per_trial {resources.slots_per_trial}, "
            "so no trial could ever run; raise it or leave it out"
        )
    state, policy = call.api.engine.state, call.api.engine.pools[pool]
    found = (state.get(Agent, key) for key in state.keys("agents_of_pool", pool))
    agents = (agent for agent in found if agent is not None)
    why = shortage(policy, agents, slots=resources.slots_per_trial, single_node=bool(resources.is_single_node))
    if why and call.api.config.launch_error:
        raise InvalidInput(why)
    return (LaunchWarning.CURRENT_SLOTS_EXCEEDED,) if why else ()


# --------------------------------------------------------------------------------------------------------- storing


async def _store_context(call: Call, request: CreateExperimentRequest, parent: Experiment | None) -> str:
    """Stores the code and returns its hash; "" without code."""
    if parent is not None:
        return parent.context_hash
    if not request.model_definition:
        return ""
    archive = await asyncio.to_thread(pack, request.model_definition)
    digest = await asyncio.to_thread(digest_of, archive)
    await call.api.swept.wait()
    await call.api.store.put_context(digest, archive)
    call.api.recent_code.remember(digest, archive)
    return digest


def _command(
    call: Call, request: CreateExperimentRequest, checked: Checked, context: str, external_id: str | None
) -> CreateExperiment:
    resources = checked.config["resources"]
    seed = checked.config["reproducibility"]["experiment_seed"]
    return CreateExperiment(
        owner=call.caller.user.id,
        config=checked.config,
        original_config=request.config,
        context_hash=context,
        pool=PoolName(resources["resource_pool"]),
        priority=int(resources["priority"]),
        weight=float(resources["weight"]),
        max_slots=resources["max_slots"],
        seed=int(seed) if seed is not None else call.api.ids.bits(SEED_BITS),
        activate=request.activate,
        workspace_id=checked.workspace.id,
        project_id=checked.project.id,
        parent=checked.parent.id if checked.parent else None,
        unmanaged=request.unmanaged,
        external_id=external_id,
    )


async def _mention(call: Call, id_: ExperimentId, notes: tuple[str, ...]) -> None:
    """Writes the notes, for example about keys without an effect, to the log of the task."""
    trials = call.api.engine.state.find(Trial, "trials_of_experiment", id_)
    records = [
        LogRecord(
            key=f"create:{trial.task_id}:{number}",
            task_id=trial.task_id,
            allocation_id=None,
            agent_id="",
            container_id="",
            rank=None,
            at=call.api.clock.now(),
            level="WARNING",
            stdtype="stdout",
            source="master",
            log=note + "\n",
        )
        for trial in trials
        for number, note in enumerate(notes)
    ]
    if records:
        await call.api.reporting.logs(records)


def _preview(call: Call, request: CreateExperimentRequest, checked: Checked) -> CreateExperimentResponse:
    """The experiment that would be created, without an id."""
    now = call.api.clock.now()
    user = call.caller.user
    draft = Experiment(
        id=ExperimentId(0),
        job_id=JobId(""),
        owner=user.id,
        workspace_id=checked.workspace.id,
        project_id=checked.project.id,
        name=str(checked.config["name"]),
        description=str(checked.config.get("description") or ""),
        labels=tuple(checked.config.get("labels") or ()),
        configuration=written(checked.config),
        original_config=request.config,
        context_hash="",
        state=ExperimentState.PAUSED,
        started_at=now,
        parent_id=checked.parent.id if checked.parent else None,
    )
    around = Surroundings(
        owner=user,
        workspace=checked.workspace,
        project=checked.project,
        project_owner=None,
        secret_names=call.api.config.security.secrets.names,
        now=now,
    )
    shown = render_experiment(draft, around)
    return CreateExperimentResponse(experiment=shown, config=shown.config, warnings=checked.warnings)
