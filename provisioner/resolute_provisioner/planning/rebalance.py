"""The consequences of a mere risk of an end (a rebalance recommendation): work moves once its replacement has joined. Pure.

`plan_scale` requests a replacement for every machine with a notice, certain or likely. A certain end preempts the work at once; a
likely one only when there is a replacement, because a machine that may survive is better than none.
"""

from __future__ import annotations

from collections.abc import Sequence

from resolute.wire.states import NoticeKind
from resolute_provisioner.model import Cause, InstanceView, Intent, Termination
from resolute_provisioner.planning.markets import REPLACEMENT_PREFIX
from resolute_provisioner.planning.standing import by_id


def drains(instances: Sequence[InstanceView]) -> tuple[Termination, ...]:
    """The machines at risk whose replacements have joined; each replacement counts for one machine."""
    noticed = [each for each in instances if each.notice is not None]  # none, at most times
    at_risk = sorted((each for each in noticed if _at_risk(each)), key=by_id)
    if not at_risk:
        return ()
    ready = sorted((each for each in instances if _ready(each)), key=lambda each: (each.slots, each.instance_id))
    found: list[Termination] = []
    for each in at_risk:
        asked_for = REPLACEMENT_PREFIX + each.instance_id
        suited = [one for one in ready if one.slots >= each.slots_in_use]
        # The one that was requested on its behalf first, then the one that leaves the least over.
        replacement = min(suited, key=lambda one: asked_for not in one.reserved_for, default=None)
        if replacement is not None:
            ready.remove(replacement)
            reason = f"the cloud may reclaim it soon, and {replacement.instance_id} replaces it"
            found.append(Termination(instance_id=each.instance_id, cause=Cause.NOTICE, reason=reason, drain=True))
    return tuple(found)


def _at_risk(each: InstanceView) -> bool:
    if each.notice is None or each.notice.kind is not NoticeKind.REBALANCE or not each.occupied:
        return False
    return not (each.intent is Intent.STOP or each.draining_since is not None or each.observed.final)


def _ready(each: InstanceView) -> bool:
    leaving = each.intent is Intent.STOP or each.notice is not None or each.draining_since is not None
    return each.agent_connected and not (each.occupied or leaving or each.disabled or each.observed.final)
