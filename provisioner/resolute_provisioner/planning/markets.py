"""Which markets pending work may use now, and which running work moves to another one. Pure.

Work with a deadline follows uniform progress (`deadline`), other work the policy of its pool (`SpotFallback`). If spot is not known
to be cheaper, no work waits for it or moves back to it.

A move costs one restart: the new machine is requested under a separate name (`MOVE_PREFIX`) while the work continues. The old
machine is drained only when the new one has joined; then the work saves and restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from resolute_provisioner import risk
from resolute_provisioner.model import (
    Cause,
    Demand,
    Gang,
    InstanceView,
    Intent,
    Market,
    Offer,
    OfferBelief,
    PoolScaling,
    Termination,
)
from resolute_provisioner.offers import priced
from resolute_provisioner.planning import deadline, disruption, probing
from resolute_provisioner.planning.deadline import ANY, ON_DEMAND, SPOT, MarketChoice, Work
from resolute_provisioner.planning.disruption import Leave
from resolute_provisioner.planning.gangs import machines_of
from resolute_provisioner.risk import Block

MOVE_PREFIX = "move-of-"
"""Prefix of the token of moving work in the demand, until the work itself is pending."""

REPLACEMENT_PREFIX = "replacement-of-"
"""Prefix of the token of a working machine with a notice in the demand, until its work itself is pending."""

SETTLE_S = 600.0
"""Minimum time on demand before a return to spot: work that was moved and is placed on demand again, because a
machine was free there, does not move back and forth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A waiting gang, by its token. `work` None: it has no deadline."""

    token: str
    since: datetime
    """When this start was requested."""
    work: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running gang that has its machines for itself."""

    gang: Gang
    machines: tuple[str, ...]
    market: Market
    """Spot when any of its machines is."""
    since: datetime
    """When it was placed there."""
    leaving: bool = False
    """Whether it was preempted."""
    saved: bool = True
    """Whether it has committed a checkpoint since its placement."""
    work: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPlan:
    """The demand and the machines with their markets, the machines to drain, and when time alone changes any of it."""

    demand: Demand
    instances: tuple[InstanceView, ...]
    drains: tuple[Termination, ...] = ()
    revisit_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the pool offers: `markets` at all, and whether the cheapest spot offer is known to be cheaper.

    `sizes` are the slots of the machines of each market, and `most` how many machines there may be.
    """

    markets: frozenset[Market]
    spot_saves: bool
    sizes: Mapping[Market, frozenset[int]]
    most: int

    def holding(self, gang: Gang) -> Choices:
        """The choices for a gang. A market whose machines could never hold it is no choice, because it would wait for ever."""
        able = frozenset(market for market in self.markets if self.hold(gang, market, self.most))
        return self if able in (frozenset(), self.markets) else replace(self, markets=able)

    def hold(self, gang: Gang, market: Market, most: int) -> bool:
        """Whether this number of machines of the market holds the gang."""
        needs = (machines_of(gang, size) for size in self.sizes[market])
        return any(machines is not None and machines <= most for machines in needs)


def choices(pool: PoolScaling, beliefs: Mapping[str, OfferBelief]) -> Choices:
    cheapest: dict[Market, float] = {}
    for offer in pool.offers:
        price = priced(offer, beliefs.get(offer.offer_id)).per_hour
        if price is not None:
            # By the slot, so that a large machine on spot is compared with what it replaces.
            by_slot = price / max(offer.slots, 1)
            cheapest[offer.market] = min(by_slot, cheapest.get(offer.market, by_slot))
    saves = Market.SPOT in cheapest and cheapest[Market.SPOT] < cheapest.get(Market.ON_DEMAND, float("inf"))
    markets = frozenset(offer.market for offer in pool.offers)
    return Choices(
        markets=markets,
        spot_saves=saves,
        sizes={market: frozenset(offer.slots for offer in pool.offers if offer.market is market) for market in markets},
        most=pool.max_instances,
    )


def choice_of_waiting(pool: PoolScaling, among: Choices, waiting: Waiting, now: datetime) -> MarketChoice:
    """The markets on which a pending gang may start."""
    if among.markets != ANY:
        only = ", ".join(sorted(market.value for market in among.markets))
        return MarketChoice(markets=ANY, reason=f"the pool has it on one market only: {only}")
    if waiting.work is not None:
        choice = deadline.while_waiting(waiting.work, now)
        if not among.spot_saves and choice.markets != ON_DEMAND:
            return MarketChoice(markets=ANY, reason=_NOT_CHEAPER, ahead_s=choice.ahead_s, revisit_at=choice.revisit_at)
        return choice
    until = waiting.since + timedelta(seconds=pool.spot_fallback.after_s)
    if now < until and among.spot_saves:
        reason = f"the pool waits for spot until {until:%H:%M:%S} UTC (spot_fallback.after)"
        return MarketChoice(markets=SPOT, reason=reason, revisit_at=until)
    return MarketChoice(markets=ANY, reason="the cheapest available")


def there(pool: PoolScaling, instances: Sequence[InstanceView]) -> Counter[Market | None]:
    """Number of machines that stay on each market. None stands for the market of an offer that was removed from the
    configuration, and of machines that accept no work, which count in the pool all the same."""
    market_of = {offer.offer_id: offer.market for offer in pool.offers}
    closed = (each.disabled or each.slots == 0 for each in instances)
    return Counter(
        None if shut else market_of.get(each.offer_id)
        for each, shut in zip(instances, closed, strict=True)
        if _stays(each)
    )


def where_there_is_room(
    choice: MarketChoice, among: Choices, gang: Gang, there: Counter[Market | None]
) -> MarketChoice:
    """The same choice, or any market where the machines of the others leave too little room for those that it asks for: they may
    stay for what waits behind this gang, and that waits for this gang."""
    if choice.markets >= among.markets:
        return choice
    most = among.most - there.total() + sum(there[market] for market in choice.markets)
    if any(among.hold(gang, market, most) for market in choice.markets & among.markets):
        return choice
    return replace(
        choice, markets=ANY, reason=f"{choice.reason}; but the pool has no room for that beside its other machines"
    )


class ToBeHad:
    """The offers that may be requested now, and the machines that come for a gang; looked at only when it matters."""

    def __init__(
        self,
        pool: PoolScaling,
        instances: Sequence[InstanceView],
        beliefs: Mapping[str, OfferBelief],
        now: datetime,
    ) -> None:
        self._pool, self._instances, self._beliefs, self._now = pool, instances, beliefs, now
        self._of_gangs: dict[int, Mapping[str, Block]] = {}
        """Blocks by the number of machines that a gang needs."""

    @cached_property
    def _blocks(self) -> Mapping[str, Block]:
        asked = probing.asked(self._instances, self._beliefs)
        return probing.blocks(self._pool, asked, self._beliefs, self._now)

    def _gang_blocks(self, machines: int) -> Mapping[str, Block]:
        if machines not in self._of_gangs:
            self._of_gangs[machines] = risk.gang_blocks(self._pool, self._beliefs, self._now, machines=machines)
        return self._of_gangs[machines]

    @cached_property
    def _coming(self) -> Mapping[tuple[str, Market | None], Sequence[InstanceView]]:
        """Starting machines, by the work for which they were requested and by market."""
        market_of = {offer.offer_id: offer.market for offer in self._pool.offers}
        found: dict[tuple[str, Market | None], list[InstanceView]] = {}
        for each in self._instances:
            if _stays(each) and not each.disabled:
                for token in each.reserved_for:
                    found.setdefault((token, market_of.get(each.offer_id)), []).append(each)
        return found

    def comes(self, token: str, market: Market, slots: int, *, one_machine: bool) -> bool:
        """Whether machines of the market with this number of free slots were requested under this token."""
        free = [each.free_slots for each in self._coming.get((token, market), ())]
        return any(each >= slots for each in free) or (not one_machine and sum(free) >= slots)

    def holds(self, gang: Gang, market: Market) -> bool:
        return any(not self._obstacles(offer.offer_id, count) for offer, count in self._ways(gang, market))

    def asked_again_at(self, gang: Gang, market: Market) -> datetime | None:
        """When the first of the market's offers may be requested again; None when no time is known."""
        moments = []
        for offer, count in self._ways(gang, market):
            until = [each.until for each in self._obstacles(offer.offer_id, count)]
            if None not in until:
                moments.append(max((each for each in until if each is not None), default=self._now))
        return min(moments, default=None)

    def _ways(self, gang: Gang, market: Market) -> Iterator[tuple[Offer, int]]:
        for offer in self._pool.offers:
            count = machines_of(gang, offer.slots)
            if offer.market is market and count is not None:
                yield offer, count

    def _obstacles(self, offer_id: str, count: int) -> list[Block]:
        found = [self._blocks.get(offer_id), self._gang_blocks(count).get(offer_id) if count > 1 else None]
        return [each for each in found if each is not None]


def choice_of_start(
    pool: PoolScaling,
    among: Choices,
    gang: Gang,
    waiting: Waiting,
    to_be_had: ToBeHad,
    now: datetime,
    *,
    part: int | None = None,
) -> MarketChoice:
    """Where a gang may be started, with what is to be had now and what comes for it already under the token of `waiting`.
    `part`: the number of its slots to request, on one machine; None requests all."""
    choice = choice_of_waiting(pool, among, waiting, now)
    slots, one_machine = (gang.slots, gang.single_machine) if part is None else (part, True)
    if choice.markets == SPOT and to_be_had.comes(waiting.token, Market.ON_DEMAND, slots, one_machine=one_machine):
        return replace(choice, markets=ANY, reason=f"{choice.reason}; but a machine on demand is on its way for it")
    if choice.markets != ON_DEMAND or Market.SPOT not in among.markets:
        return choice
    if waiting.work is not None and to_be_had.comes(waiting.token, Market.SPOT, slots, one_machine=one_machine):
        with_it = deadline.while_coming(waiting.work, now)
        if Market.SPOT in with_it.markets:
            reason = f"{choice.reason}; but a machine on spot is on its way for it"
            return replace(choice, markets=ANY, reason=reason, revisit_at=with_it.revisit_at)
    return _rather_than_wait(choice, gang, to_be_had)


def _rather_than_wait(choice: MarketChoice, gang: Gang, to_be_had: ToBeHad) -> MarketChoice:
    """The same choice, or any market where it asks for machines on demand and none may be requested now: work on spot is
    progress. From there it moves to a machine on demand when an interruption would cost the deadline (`deadline.while_running`);
    while its length is not known it stays."""
    if to_be_had.holds(gang, Market.ON_DEMAND) or not to_be_had.holds(gang, Market.SPOT):
        return choice
    moments = [at for at in (choice.revisit_at, to_be_had.asked_again_at(gang, Market.ON_DEMAND)) if at is not None]
    reason = f"{choice.reason}; but none on demand may be requested now, and spot is available"
    return replace(choice, markets=ANY, reason=reason, revisit_at=min(moments, default=None))


def choice_of_running(pool: PoolScaling, among: Choices, running: Running, now: datetime) -> MarketChoice:
    """The markets for a running gang; another market than its own means a move."""
    stays = frozenset((running.market,))
    if among.markets != ANY:
        return MarketChoice(markets=stays, reason="the pool has it on one market only")
    if running.work is not None:
        choice = deadline.while_running(running.work, running.market, now)
        if running.market is Market.SPOT or running.market in choice.markets:
            return choice
        settled = running.since + timedelta(seconds=SETTLE_S)
        if now < settled:
            reason = f"on demand until {settled:%H:%M:%S} UTC at least: it was placed there just now"
            return replace(choice, markets=stays, reason=reason, revisit_at=settled)
        return choice if among.spot_saves else replace(choice, markets=stays, reason=_NOT_CHEAPER)
    after_s = pool.spot_fallback.return_after_s
    if running.market is Market.SPOT or after_s is None or not among.spot_saves:
        return MarketChoice(markets=stays, reason="it stays where it is")
    at = running.since + timedelta(seconds=after_s)
    if now < at:
        reason = f"on demand until {at:%H:%M:%S} UTC, then back to spot (spot_fallback.return_after)"
        return MarketChoice(markets=stays, reason=reason, revisit_at=at)
    return MarketChoice(markets=SPOT, reason="back to spot when it is available (spot_fallback.return_after)")


def held_back(choice: MarketChoice, running: Running, leave: Leave) -> MarketChoice:
    """The same choice, or to stay: a return to spot saves money only, so that it waits for a checkpoint, and has to keep to the
    pool's `disruption`. What has begun to leave continues, and so does what leaves spot, for that is never done without need."""
    if not _only_saves(choice, running):
        return choice
    if not running.saved:
        reason = "on demand until it has committed a checkpoint in this run: to move it now would lose what it has done"
        return MarketChoice(markets=frozenset((running.market,)), reason=reason)
    if leave.allows(len(running.machines)):
        return choice
    moments = [at for at in (choice.revisit_at, leave.revisit_at) if at is not None]
    return replace(
        choice,
        markets=frozenset((running.market,)),
        reason=f"{choice.reason}; until then it stays, for no more work may be disturbed now (disruption)",
        revisit_at=min(moments, default=None),
    )


def _only_saves(choice: MarketChoice, running: Running) -> bool:
    return running.market is Market.ON_DEMAND and running.market not in choice.markets and not running.leaving


def plan_markets(
    pool: PoolScaling,
    instances: Sequence[InstanceView],
    demand: Demand,
    waiting: Mapping[str, Waiting],
    running: Sequence[Running],
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> MarketPlan:
    """Determine the markets of each gang of the demand, and the market of each ending machine's replacement; move work on the
    wrong market. `waiting` is keyed by token; work without an entry may use any market. Moved work must be in the demand of the
    next `plan_scale`: the gangs added here come last in it.
    """
    among, staying = choices(pool, beliefs), there(pool, instances)
    to_be_had = ToBeHad(pool, instances, beliefs, now)
    gangs: list[Gang] = []
    moments: list[datetime | None] = []
    for gang in demand.gangs:
        known = waiting.get(gang.token)
        if known is not None:
            able = among.holding(gang)
            choice = choice_of_start(pool, able, gang, known, to_be_had, now)
            choice = where_there_is_room(choice, able, gang, staying)
            gang = replace(gang, markets=choice.markets)
            moments.append(choice.revisit_at)
        gangs.append(gang)
    drains: list[Termination] = []
    last = max((gang.priority for gang in gangs), default=0) + 1
    free = _Free(pool, instances)
    leave = disruption.leave(pool.disruption, beliefs, now)
    begun = {token for view in instances for token in view.reserved_for}
    for each in sorted(running, key=lambda one: (MOVE_PREFIX + one.gang.token not in begun, one.gang.token)):
        choice = held_back(choice_of_running(pool, among.holding(each.gang), each, now), each, leave)
        moments.append(choice.revisit_at)
        if each.market in choice.markets:
            continue
        if _only_saves(choice, each):
            # Also while its new machine is on the way: no more are asked for than may be used at once.
            leave = leave.after(len(each.machines))
        token = MOVE_PREFIX + each.gang.token
        # It stays in the demand while the work saves, so that the new machines are kept for it.
        gangs.append(replace(each.gang, token=token, priority=last, markets=choice.markets))
        if free.take(each.gang, token, choice.markets) and not each.leaving:
            drains += [_drain(machine, choice.reason) for machine in each.machines]
    return MarketPlan(
        demand=replace(demand, gangs=tuple(gangs)),
        instances=_with_successors(pool, among, instances, running, to_be_had, now),
        drains=tuple(sorted(drains, key=lambda drain: drain.instance_id)),
        revisit_at=min((moment for moment in moments if moment is not None and moment > now), default=None),
    )


def _with_successors(
    pool: PoolScaling,
    among: Choices,
    instances: Sequence[InstanceView],
    running: Sequence[Running],
    to_be_had: ToBeHad,
    now: datetime,
) -> tuple[InstanceView, ...]:
    """The machines with the markets of their replacements. Work that loses its machine will be pending soon, and its replacement
    is requested before."""
    occupant = {machine: each for each in running for machine in each.machines}
    found = []
    for view in instances:
        each = occupant.get(view.instance_id)
        if view.notice is not None and each is not None:
            # Under the name that its replacement is asked for by.
            soon = Waiting(token=REPLACEMENT_PREFIX + view.instance_id, since=now, work=each.work)
            able = among.holding(each.gang)
            choice = choice_of_start(pool, able, each.gang, soon, to_be_had, now, part=view.slots_in_use)
            view = replace(view, successor_markets=choice.markets)
        found.append(view)
    return tuple(found)


class _Free:
    """Machines that have joined and that nothing runs on; each is counted for one gang."""

    def __init__(self, pool: PoolScaling, instances: Sequence[InstanceView]) -> None:
        self._market_of = {offer.offer_id: offer.market for offer in pool.offers}
        self._machines = sorted((each for each in instances if _ready(each)), key=lambda each: each.instance_id)

    def take(self, gang: Gang, token: str, markets: frozenset[Market]) -> bool:
        """Whether the whole gang has a place on machines of these markets."""
        suited = [each for each in self._machines if self._market_of.get(each.offer_id) in markets]
        # What was requested on its behalf first, then what leaves the least over.
        suited.sort(key=lambda each: (token not in each.reserved_for, each.slots, each.instance_id))
        alone = next((each for each in suited if each.slots >= gang.slots), None)
        mine = [each for each in suited if token in each.reserved_for]
        if alone is not None:
            found = [alone]
        elif not gang.single_machine and sum(each.slots for each in mine) >= gang.slots:
            found = mine
        else:
            return False
        self._machines = [each for each in self._machines if each not in found]
        return True


def _stays(each: InstanceView) -> bool:
    leaving = each.intent is Intent.STOP or each.notice is not None or each.draining_since is not None
    return not (leaving or each.observed.final)


def _ready(each: InstanceView) -> bool:
    return _stays(each) and each.agent_connected and not (each.occupied or each.disabled)


def _drain(machine: str, reason: str) -> Termination:
    return Termination(instance_id=machine, cause=Cause.OTHER_MARKET, reason=reason, drain=True)


_NOT_CHEAPER = "spot is not known to be cheaper than on demand: the cheapest available"
