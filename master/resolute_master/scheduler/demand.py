"""The gangs that need machines, for the scaling of the pool.

The demand lists allocations that do not fit on the present agents, including those that starting machines will serve, because the
scaling counts these machines too. It does not list allocations that wait for vacating slots, of which the scaling knows only the
held machines, and allocations over the cap of their job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile

from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.outcome import PlacementResult
from resolute_master.scheduler.plan import Hold, HoldKind
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Demand, Gang

_PROMISED = (PlacementResult.COMING, PlacementResult.LAUNCHABLE, PlacementResult.RESERVED)
_WANTS_MACHINES = (*_PROMISED, PlacementResult.WAITING)
_OTHERS_LEAVE = (HoldKind.VACATING, HoldKind.PREEMPTING)


def demand_of(
    snapshot: PoolSnapshot,
    results: Mapping[AllocationId, PlacementResult],
    failed: Mapping[Shape, tuple[QueueKey, PlacementResult]],
    held_by: Callable[[JobId], int],
    holds: Iterable[Hold],
    kept_back: bool,
) -> Demand:
    """`results` and `failed` as in `Outcome`; `held_by` is what a job with a cap holds, including this pass; `holds` are those of
    the pass; `kept_back`: machines are kept for an allocation that cannot use them yet, and allocations without a machine are not
    listed. Empty for a pool that never grows. The most important comes first.

    Of each shape at most as many are listed as the largest pool could run: more would change no decision.
    """
    if snapshot.policy.scaling is None:
        return Demand()
    listed: list[tuple[tuple[int, QueueKey], Shape]] = []
    # Fair share has its own order; allocations that the pass did not reach follow.
    turns = {id_: turn for turn, id_ in enumerate(results)} if snapshot.shares is not None else None
    for shape in snapshot.queue:
        keys = _waiting(snapshot, shape, results, failed.get(shape), promised_only=kept_back)
        limit = _limit(snapshot, shape, results, held_by)
        waiting = ((_order(turns, shape, key), shape) for key in keys)
        limit = min(limit, len(snapshot.queue[shape]))  # islice knows no larger numbers than the machine's
        listed.extend(islice(waiting if turns is None else sorted(waiting), limit))
    listed.sort()
    # Only their places in the order: for jobs that were moved by hand, priority and submission do not determine it.
    return Demand(
        gangs=tuple(_gang(snapshot, shape, key, place) for place, ((_, key), shape) in enumerate(listed)),
        kept=_kept(snapshot, holds),
    )


def _kept(snapshot: PoolSnapshot, holds: Iterable[Hold]) -> tuple[str, ...]:
    """A reservation keeps no machine: its duration is unknown, and buying a machine again may cost less than keeping it."""
    held = {agent for hold in holds if hold.kind in _OTHERS_LEAVE for agent, _ in hold.agents}
    instances = (agent.instance_id for agent in map(snapshot.agents.get, held) if agent is not None)
    return tuple(sorted(instance for instance in instances if instance is not None))


def _order(turns: Mapping[AllocationId, int] | None, shape: Shape, key: QueueKey) -> tuple[int, QueueKey]:
    return (shape.priority if turns is None else turns.get(key.allocation, len(turns)), key)


def _waiting(
    snapshot: PoolSnapshot,
    shape: Shape,
    results: Mapping[AllocationId, PlacementResult],
    failed: tuple[QueueKey, PlacementResult] | None,
    *,
    promised_only: bool,
) -> Iterator[QueueKey]:
    wanting = _PROMISED if promised_only else _WANTS_MACHINES
    unread = not promised_only and (failed is None or failed[1] is not PlacementResult.CAPPED)
    for key in snapshot.queue[shape]:
        result = results.get(key.allocation)
        if result in wanting or (result is None and unread):
            yield key


def _limit(
    snapshot: PoolSnapshot,
    shape: Shape,
    results: Mapping[AllocationId, PlacementResult],
    held_by: Callable[[JobId], int],
) -> int:
    limit = _largest_run(snapshot.policy, shape.slots)
    cap = snapshot.jobs[shape.capped_job].max_slots if shape.capped_job and shape.slots else None
    if cap is None:
        return limit
    # Allocations with a machine are within the cap already, and part of what the job holds in this pass.
    looked_at = takewhile(lambda result: result is not None, (results.get(k.allocation) for k in snapshot.queue[shape]))
    promised = sum(result in _PROMISED for result in looked_at)
    return min(limit, promised + max(cap - held_by(shape.capped_job), 0) // shape.slots)


def _largest_run(policy: PoolPolicy, slots: int) -> int:
    """How many gangs of this size the pool could run at its largest, plus one, which shows that there are more."""
    scaling = policy.scaling
    if scaling is None:
        return 0
    if slots == 0:
        return scaling.max_instances * policy.max_aux_containers_per_agent + 1
    return scaling.max_instances * max((offer.slots for offer in scaling.offers), default=0) // slots + 1


def _gang(snapshot: PoolSnapshot, shape: Shape, key: QueueKey, place: int) -> Gang:
    blocked = (snapshot.agents.get(agent) for agent in shape.blocked)
    return Gang(
        token=key.allocation,
        slots=shape.slots,
        submitted_at=key.submitted_at,
        single_machine=shape.single_node or shape.slots <= 1,
        priority=place,
        excluded_instances=frozenset(agent.instance_id for agent in blocked if agent is not None and agent.instance_id),
    )
