"""One job of a trace that is simulated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One row. Times are seconds; `submit_s` counts from the trace's own beginning."""

    job_id: str
    submit_s: float
    duration_s: float
    """Run time on its slots, queueing not included."""
    slots: int
    group: str
    """The user of the job, and under fair share its group."""
    priority: int | None = None
    """None takes the pool's default."""
    weight: float = 1.0
    max_slots: int | None = None
    single_node: bool | None = None
    """Whether it needs one machine; None: on one machine if one can hold it."""
    preemptible: bool = True
    deadline_s: float | None = None
    """Deadline of its work, from the trace's beginning; None without one."""
    workspace: str = ""
    """Its workspace; "": a workspace of its group."""
    max_cost: float | None = None
    """Limit on the cost of its slots, in the currency of the prices."""
