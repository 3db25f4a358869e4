"""Everything settles: experiments end, pools shrink to their minimum, every order is carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.cluster import ClusterState


def unsettled(state: ClusterState, pools: Mapping[PoolName, PoolPolicy]) -> Iterator[str]:
    """What is still in progress; empty when the cluster is at rest."""
    for experiment in state.all(Experiment):
        waiting = [
            f"{a.id} {a.state}{' preempted' if a.preempt else ''}{' killed' if a.killed_at else ''}"
            for a in state.find(Allocation, "allocations_of_job", experiment.job_id)
        ]
        yield f"experiment {experiment.id} is {experiment.state} ({', '.join(waiting) or 'nothing runs or waits'})"
    for name, policy in sorted(pools.items()):
        rows = [i for i in state.find(Instance, "instances_of_pool", name) if not i.over]
        least = policy.scaling.min_instances if policy.scaling is not None else 0
        if len(rows) != least:
            names = ", ".join(f"{i.id} ({i.intent}, {i.observed})" for i in rows) or "none"
            yield f"pool {name} is to have {least} machine(s) and has {names}"
        elif any(i.joined_at is None for i in rows):
            yield f"a machine of pool {name} is still starting"
    for key in sorted(state.outbox):
        yield f"the outbox still holds {key}"
