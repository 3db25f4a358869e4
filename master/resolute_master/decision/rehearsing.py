"""`plan_pool` on changed snapshots, for what-ifs (`scheduler.explain`, `det job schedule`)."""

from __future__ import annotations

from collections.abc import Iterable

from resolute_master.decision.plan_pool import plan_pool
from resolute_master.decision.view import PoolView
from resolute_master.domain.copies import replace
from resolute_master.scheduler.outcome import Outcome
from resolute_master.scheduler.rehearsal import Decides
from resolute_master.scheduler.snapshot import PoolSnapshot


def deciding(views: Iterable[PoolView]) -> Decides:
    """A decision about a changed snapshot of any of these pools: with the budgets of its pool, with the machines of the
    snapshot's supply, and about all pending work."""
    known = {view.policy.name: view for view in views}

    def decide(snapshot: PoolSnapshot) -> Outcome:
        view = replace(known[snapshot.policy.name], snapshot=snapshot, machines=None, starts=None)
        return plan_pool(view).outcome

    return decide
