"""Every pointer has a target, every order is in the outbox, what is derived equals what it is derived from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KIND_OF, Change, Stored, key_of
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import RegisterAgent, ReportContainer
from resolute_master.domain.effects import KillContainer, RemoveCheckpoint, StartContainer
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.domain.usage import Usage, usage_id
from resolute_master.engine.journal import decode_commands
from resolute_master.engine.memory import Memory
from resolute_master.lifecycle import budget
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.scheduler.snapshot import PoolSnapshot


def pointers_have_targets(state: ClusterState) -> Iterator[str]:
    yield from _allocations(state)
    yield from _trials(state)
    for experiment in state.all(Experiment):
        if state.get(Job, experiment.job_id) is None:
            yield f"experiment {experiment.id} has no job"


def _allocations(state: ClusterState) -> Iterator[str]:
    open_of: dict[str, str] = {}
    for allocation in state.all(Allocation):
        if allocation.ended:
            yield f"{allocation.id} is over and still in memory"
            continue
        trial = None if allocation.trial_id is None else state.get(Trial, allocation.trial_id)
        if trial is None:
            yield f"{allocation.id} is of trial {allocation.trial_id}, which is not there"
        elif trial.state.gone or trial.run_id != allocation.run_id:
            yield f"{allocation.id} is open, and trial {trial.id} is {trial.state} in run {trial.run_id}"
        if state.get(Job, allocation.job_id) is None:
            yield f"{allocation.id} is of job {allocation.job_id}, which is not there"
        if allocation.task_id in open_of:
            yield f"{allocation.id} and {open_of[allocation.task_id]} are open for one task"
        open_of[allocation.task_id] = allocation.id
        for container in allocation.containers:
            if not container.ended and state.get(Agent, container.agent) is None:
                yield f"{allocation.id} has a container on {container.agent}, which is not there"


def _trials(state: ClusterState) -> Iterator[str]:
    for trial in state.all(Trial):
        experiment = state.get(Experiment, trial.experiment_id)
        if experiment is None:
            yield f"trial {trial.id} is of experiment {trial.experiment_id}, which is not there"
        reference = trial.latest_checkpoint
        if reference is not None and (experiment is None or experiment.state is not ExperimentState.DELETING):
            found = state.get(Checkpoint, reference.uuid)
            if found is None or found.steps_completed != reference.steps_completed:
                yield f"trial {trial.id} would resume from {reference.uuid}, which is not there"
            elif found.state is not CheckpointState.COMPLETED and not trial.state.gone:
                yield f"trial {trial.id} would resume from {reference.uuid}, which is {found.state}"
        row = state.get(SearchTrial, trial.task_id)
        if trial.state is ExperimentState.ACTIVE and not trial.searcher_done and not (row is not None and row.idle):
            mine = state.find(Allocation, "allocations_of_task", trial.task_id)
            if all(a.ended for a in mine):
                yield f"trial {trial.id} is to run and has no pending or running allocation"


def searches_know_their_trials(state: ClusterState) -> Iterator[str]:
    """Counts equal the rows, every row has its trial, and a trial that has ended is known to have."""
    for search in state.all(Search):
        rows = state.find(SearchTrial, "trials_of_search", search.id)
        open_ = [row for row in rows if row.open]
        if (search.requested, search.open) != (len(rows), len(open_)):
            yield f"search {search.id} counts {search.requested} trials, {search.open} open; it has {len(rows)}, {len(open_)}"
        if search.progress != sum(row.progress for row in open_):
            yield f"search {search.id} has the progress {search.progress}, and its trials together have another"
        experiment = state.get(Experiment, search.id)
        if experiment is None or experiment.state.stopping or experiment.state.gone:
            continue
        trials = {trial.task_id: trial for trial in state.find(Trial, "trials_of_experiment", search.id)}
        for row in rows:
            trial = trials.get(row.id)
            if trial is None:
                yield f"search {search.id} has asked for {row.request_id}, which is not there"
            elif row.open == trial.state.gone or (row.stopped and not trial.searcher_done):
                yield f"trial {trial.id} is {trial.state}, and its search has {row}"


def agents_have_instances(state: ClusterState) -> Iterator[str]:
    """Every agent of an elastic pool is a machine that we pay for."""
    for agent in state.all(Agent):
        if agent.instance_id is None:
            continue
        instance = state.get(Instance, agent.instance_id)
        if instance is None:
            yield f"agent {agent.id} is on instance {agent.instance_id}, which is over"
        elif instance.agent_id != agent.id:
            yield f"agent {agent.id} is on instance {instance.id}, which knows the agent {instance.agent_id}"
    for instance in state.all(Instance):
        agents = state.find(Agent, "agent_of_instance", instance.id)
        busy = any(
            not c.ended
            for agent in agents
            for a in state.find(Allocation, "allocations_on_agent", agent.id)
            for c in a.containers
            if c.agent == agent.id
        )
        if instance.joined_at is not None and busy == (instance.idle_since is not None):
            yield f"instance {instance.id} is {'busy' if busy else 'idle'}, and idle since {instance.idle_since}"


def orders_are_in_the_outbox(state: ClusterState) -> Iterator[str]:
    """Each pending order has its row, and each row has a recipient."""
    for allocation in state.all(Allocation):
        if allocation.ended:
            continue
        for container in allocation.containers:
            if container.ended:
                continue
            if allocation.killed_at is not None and f"kill:{container.id}" not in state.outbox:
                yield f"container {container.id} of {allocation.id} is to be killed, and there is no order to kill it"
    for key, effect in sorted(state.outbox.items()):
        if isinstance(effect, StartContainer | KillContainer):
            target = state.get(Allocation, effect.allocation)
            members = () if target is None else target.containers
            if all(c.id != effect.container or c.ended for c in members):
                yield f"the outbox holds {key}, for a container that is over"
        elif isinstance(effect, RemoveCheckpoint):
            checkpoint = state.get(Checkpoint, effect.uuid)
            if checkpoint is not None and checkpoint.state is CheckpointState.DELETED:
                yield f"the outbox holds {key}, for a checkpoint that is gone"


def starts_are_ordered(change: Change) -> Iterator[str]:
    """Every placed container has its order, and the order stays until the agent has reported the container."""
    added = {effect.key for effect in change.outbox_added}
    removed = {key.removeprefix("start:") for key in change.outbox_removed if key.startswith("start:")}
    told = _reported(change) if removed else set()
    for entity in change.upserts:
        if not isinstance(entity, Allocation):
            continue
        for container in entity.containers:
            if entity.assigned_at == change.journal.at and not container.ended and f"start:{container.id}" not in added:
                yield f"container {container.id} of {entity.id} waits for its start, and there is no order to start it"
            if container.id in removed and not container.ended and container.id not in told:
                yield f"the start of container {container.id} was removed before its agent reported it"


def _reported(change: Change) -> set[str]:
    found: set[str] = set()
    for command in decode_commands(change.journal.commands):
        if isinstance(command, ReportContainer):
            found.add(command.report.container_id)
        elif isinstance(command, RegisterAgent):
            found |= {report.container_id for report in command.reports}
    return found


def snapshots_equal_scratch(memory: Memory) -> Iterator[str]:
    """The incrementally kept snapshot of each pool equals one that is built again."""
    state = memory.state
    for name, policy in sorted(memory.pools.items()):
        kept = memory.snapshots[name]
        scratch = PoolSnapshot.build(
            policy,
            [a for a in state.all(Agent) if a.pool == name],
            [j.as_scheduled for j in state.all(Job) if j.pool == name and not j.ended],
            [a for a in state.all(Allocation) if a.pool == name],
            supply=kept.supply,
            usage=state.find(Usage, "usage_of_pool", name),
            now=kept.now,
        ).with_hold(budget.hold_of_pool(state, name))
        if kept != scratch:
            wrong = [part for part in PoolSnapshot.__struct_fields__ if getattr(kept, part) != getattr(scratch, part)]
            yield f"the snapshot of pool {name} differs from one built anew in {', '.join(wrong)}"


def usage_is_what_is_held(memory: Memory) -> Iterator[str]:
    """In pools with a usage half-life, the ledger of each user equals the slots of the user's allocations."""
    held: Counter[str] = Counter()
    for allocation in memory.state.all(Allocation):
        job = memory.state.get(Job, allocation.job_id)
        if job is not None and memory.pools[allocation.pool].usage_half_life_s is not None:
            held[usage_id(allocation.pool, job.workspace_id, job.owner)] += len(allocation.held_slots)
    booked = {usage.id: usage.held for usage in memory.state.all(Usage)}
    for id_ in sorted(held.keys() | booked.keys()):
        if held[id_] != booked.get(id_, 0):
            yield f"{id_} holds {held[id_]} slot(s), and {booked.get(id_, 0)} are booked"


def memory_equals_store(state: ClusterState, stored: Stored) -> Iterator[str]:
    """What a restart would wake up with is what the engine has now."""
    woken = ClusterState(stored.entities, stored.outbox)
    ours = {(KIND_OF[type(e)], key_of(e)): e for e in state.entities()}
    theirs = {(KIND_OF[type(e)], key_of(e)): e for e in woken.entities()}
    for kind, key in sorted(ours.keys() | theirs.keys(), key=str):
        mine, stored_ = ours.get((kind, key)), theirs.get((kind, key))
        if mine != stored_:
            yield f"{kind} {key} is in memory {mine}, in the store {stored_}"
    if state.outbox != woken.outbox:
        yield f"the outbox is in memory {sorted(state.outbox)}, in the store {sorted(woken.outbox)}"
