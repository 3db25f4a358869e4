"""The machines that the scheduler may use besides present agents, in the scheduler's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from resolute_master.domain.ids import InstanceId
from resolute_master.scheduler.supply import AvailableOffer, ComingMachine, Supply, UnusedMachine
from resolute_provisioner import launch_errors, risk
from resolute_provisioner.model import InstanceView, Intent, Observed, OfferBelief, PoolScaling
from resolute_provisioner.planning import notes
from resolute_provisioner.planning.standing import by_id
from resolute_provisioner.ranking import DEFAULT_JOIN_TIME_S, forecasts


def of(
    scaling: PoolScaling, instances: Sequence[InstanceView], beliefs: Mapping[str, OfferBelief], now: datetime
) -> Supply:
    """Starting machines and available offers of one elastic pool. `scaling` is `budgets.payable`: machines beyond the pool's
    budget are no supply, and no work waits for them."""
    wanted = [i for i in instances if i.intent is Intent.RUN and i.observed is not Observed.GONE]
    # Most machines work and have no notice, and are only counted.
    others = [i for i in wanted if i.joined_at is None or i.idle_since is not None or i.notice is not None]
    coming = tuple(
        ComingMachine(
            instance=InstanceId(i.instance_id),
            slots=i.slots,
            expected_at=i.requested_at + timedelta(seconds=_join_time_s(beliefs.get(i.offer_id))),
            gangs=i.reserved_for,
        )
        for i in sorted(others, key=by_id)
        if i.joined_at is None and i.notice is None
    )
    unused = tuple(
        UnusedMachine(instance=InstanceId(i.instance_id), gangs=i.reserved_for)
        for i in sorted(others, key=by_id)
        if i.joined_at is not None and i.idle_since == i.joined_at and i.reserved_for
    )
    blocked = launch_errors.blocks(scaling, beliefs, now)
    partial, payable = risk.partial_offers(beliefs, now), risk.payable(scaling, now)
    obstacles = [notes.why_blocked(blocked)] if blocked else []
    offers = [
        AvailableOffer(
            offer_id=each.offer.offer_id,
            slots=each.offer.slots,
            price_per_hour=each.expected_price,
            expected_s=each.join_time_s,
            room=payable.get(each.offer.offer_id),
            one_only=each.offer.offer_id in partial,
        )
        for each in forecasts(scaling, beliefs, now)
        if each.offer.offer_id not in blocked
    ]
    # A machine with a notice gives its place to its replacement.
    room = max(0, scaling.max_instances - len(wanted) + sum(i.notice is not None for i in others))
    if not room:
        obstacles.append(f"the pool has its {scaling.max_instances} machine(s)")
    # All offers are paid for from one sum, and of none more can be had for it than of the one that costs the least.
    room = min(room, max((room if each.room is None else each.room for each in offers), default=room))
    return Supply(machines=coming, unused=unused, offers=tuple(offers), room=room, reason="; ".join(obstacles))


def _join_time_s(belief: OfferBelief | None) -> float:
    return DEFAULT_JOIN_TIME_S if belief is None or belief.join_time_s is None else belief.join_time_s
