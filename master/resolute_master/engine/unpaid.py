"""Jobs that are held back because who pays for their work cannot: while a pool is decided about, and in no record."""

from __future__ import annotations

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, JobId
from resolute_master.domain.job import Job
from resolute_master.lifecycle.payers import Payers
from resolute_master.scheduler.order import Shape
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Gang


def hold_back(payers: Payers, snapshot: PoolSnapshot) -> tuple[PoolSnapshot, dict[JobId, str]]:
    """The snapshot with a hold on the jobs of which not even the smallest work that waits can be paid for; and why on which. So
    nothing that they would not get is kept for them, and nobody leaves for them."""
    most = max((shape.slots for shape in snapshot.queue), default=0)
    if not payers.any_short(most):
        return snapshot, {}
    reasons: dict[JobId, str] = {}
    for id_, (shape, token) in _smallest(snapshot).items():
        job, allocation = snapshot.jobs[id_], snapshot.allocations[token]
        reason = "" if job.hold else payers.why_not(allocation, _gang(shape, token, job))
        if reason:
            reasons[id_] = reason
    for id_, reason in reasons.items():
        snapshot = snapshot.with_job(replace(snapshot.jobs[id_], hold=reason).as_scheduled)
    return snapshot, reasons


def _smallest(snapshot: PoolSnapshot) -> dict[JobId, tuple[Shape, AllocationId]]:
    """Of each job that waits for slots, the shape with the fewest and one allocation of it."""
    found: dict[JobId, tuple[Shape, AllocationId]] = {}
    for shape in sorted(snapshot.queue, key=lambda shape: shape.slots):
        for key in snapshot.queue[shape] if shape.slots else ():
            found.setdefault(snapshot.allocations[key.allocation].job_id, (shape, key.allocation))
    return found


def _gang(shape: Shape, token: str, job: Job) -> Gang:
    return Gang(
        token=token,
        slots=shape.slots,
        submitted_at=job.submitted_at,
        single_machine=shape.single_node or shape.slots <= 1,
    )
