"""Cycles of the engine, and what was decided in them."""

from __future__ import annotations

from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from resolute.wire.states import CheckpointState, NoticeKind
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, Decision
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.instance import Instance
from resolute_master.engine.engine import BATCH_LIMIT, INBOX_LIMIT, CycleTimes, Engine
from resolute_provisioner.model import RefusalKind

SHORT = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Bounds for what takes milliseconds."""

LONG = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
"""Bounds for times that users wait."""

BATCHES = (1, 2, 5, 10, 20, 50, 100, BATCH_LIMIT)

_REFUSALS = {kind.value for kind in RefusalKind}


class CycleMetrics:
    """How long the parts of a cycle take, and what waits for the next one."""

    def __init__(self, registry: CollectorRegistry, engine: Engine) -> None:
        parts = Histogram(
            "resolute_engine_cycle_part_seconds",
            "Parts of a cycle: decide (rules, scheduler, planner), commit (the store), publish (answers and listeners)",
            ["part"],
            buckets=SHORT,
            registry=registry,
        )
        self._decide, self._commit, self._publish = map(parts.labels, ("decide", "commit", "publish"))
        self._whole = Histogram(
            "resolute_engine_cycle_seconds", "A whole cycle of the engine", buckets=SHORT, registry=registry
        )
        self._batch = Histogram(
            "resolute_engine_batch_commands", "Commands in one cycle", buckets=BATCHES, registry=registry
        )
        self._passes = Histogram(
            "resolute_scheduler_pass_seconds",
            "One look of the scheduler and the planner at a pool",
            ["pool"],
            buckets=SHORT,
            registry=registry,
        )
        inbox = Gauge(
            "resolute_engine_inbox_commands",
            f"Commands that wait for a cycle; refused past {INBOX_LIMIT}",
            registry=registry,
        )
        inbox.set_function(lambda: engine.waiting_commands)
        engine.on_cycle(self._cycle)

    def _cycle(self, times: CycleTimes) -> None:
        self._whole.observe(times.total_s)
        self._decide.observe(times.decide_s)
        if times.stored:
            self._commit.observe(times.commit_s)
        self._publish.observe(times.publish_s)
        self._batch.observe(times.commands)
        for pool, seconds in times.passes_s:
            self._passes.labels(pool).observe(seconds)


class WorkMetrics:
    """What happens to experiments, allocations, machines and checkpoints, counted as it is committed."""

    def __init__(self, registry: CollectorRegistry, engine: Engine) -> None:
        self._decisions = Counter(
            "resolute_decisions", "Decisions by kind, as in `det decisions`", ["pool", "kind"], registry=registry
        )
        self._experiments = Counter(
            "resolute_experiments_ended", "Experiments that ended, by state", ["state"], registry=registry
        )
        self._started = Counter(
            "resolute_allocations_started", "Allocations whose first container ran", ["pool"], registry=registry
        )
        self._ended = Counter(
            "resolute_allocations_ended", "Allocations that ended, by why", ["pool", "reason"], registry=registry
        )
        self._waited = Histogram(
            "resolute_allocation_wait_seconds",
            "From the request for slots until they were assigned",
            ["pool"],
            buckets=LONG,
            registry=registry,
        )
        self._starting = Histogram(
            "resolute_allocation_start_seconds",
            "From the request for slots until the task ran",
            ["pool"],
            buckets=LONG,
            registry=registry,
        )
        self._refusals = Counter(
            "resolute_machine_launch_failures",
            "Machines that the cloud refused, by class",
            ["pool", "error"],
            registry=registry,
        )
        self._joining = Histogram(
            "resolute_machine_join_seconds",
            "From the request for a machine until its agent joined",
            ["pool"],
            buckets=LONG,
            registry=registry,
        )
        self._interruptions = Counter(
            "resolute_machine_interruptions",
            "Machines that their cloud reclaimed; noticed: whether with a notice",
            ["pool", "noticed"],
            registry=registry,
        )
        self._checkpoints = Counter(
            "resolute_checkpoints", "Checkpoints that were reported, by state", ["state"], registry=registry
        )
        self._checkpoint_bytes = Counter(
            "resolute_checkpoint_bytes", "Bytes of completed checkpoints", registry=registry
        )
        for pool in engine.pools:  # from 0, so that the first of them is an increase
            for kind in RefusalKind:
                self._refusals.labels(pool, kind.value)
            for noticed in ("true", "false"):
                self._interruptions.labels(pool, noticed)
        engine.on_commit(self._committed)

    def _committed(self, change: Change) -> None:
        at = change.journal.at
        for decision in change.decisions:
            self._decided(decision)
        for entity in change.upserts:
            match entity:
                case Allocation():
                    self._allocation(entity, at)
                case Instance():
                    self._instance(entity, at)
                case Checkpoint(reported_at=moment) if moment == at:
                    self._checkpoint(entity)
                case Experiment(ended_at=moment) if moment == at:
                    self._experiments.labels(entity.state.value).inc()
                case _:
                    pass

    def _decided(self, decision: Decision) -> None:
        self._decisions.labels(decision.pool, decision.kind).inc()
        if decision.kind == "refused":
            kind = decision.reason.partition(":")[0]
            self._refusals.labels(decision.pool, kind if kind in _REFUSALS else "other").inc()

    def _allocation(self, allocation: Allocation, at: datetime) -> None:
        """What carries the moment of the cycle happened in it."""
        asked = allocation.requested_at
        if allocation.assigned_at == at:
            self._waited.labels(allocation.pool).observe((at - asked).total_seconds())
        if allocation.started_at == at:
            self._started.labels(allocation.pool).inc()
            self._starting.labels(allocation.pool).observe((at - asked).total_seconds())
        if allocation.ended_at == at:
            self._ended.labels(allocation.pool, why_ended(allocation)).inc()

    def _instance(self, instance: Instance, at: datetime) -> None:
        if instance.joined_at == at:
            self._joining.labels(instance.pool).observe((at - instance.requested_at).total_seconds())
        notice = instance.notice
        if notice is not None and notice.received_at == at and notice.kind is NoticeKind.INTERRUPTION:
            self._interruptions.labels(instance.pool, "true").inc()
        if instance.stopped_at == at and instance.over and notice is None and instance.joined_at is not None:
            # It was not ordered to stop before the cloud reported that it is gone.
            self._interruptions.labels(instance.pool, "false").inc()

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        self._checkpoints.labels(checkpoint.state.value).inc()
        if checkpoint.state is CheckpointState.COMPLETED:
            self._checkpoint_bytes.inc(checkpoint.size)


def why_ended(allocation: Allocation) -> str:
    """One of few words: finished, preempted, killed, ended, or the kind of the failure."""
    end = allocation.exit
    if end is not None and end.failure is not None:
        return end.failure.name.lower()
    if end is not None and end.finished:
        return "finished"
    if allocation.preempt is not None:
        return "preempted"
    return "killed" if allocation.killed_at is not None else "ended"
