"""Explanations for users: what the provisioner does for pending work, and why it does nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from resolute_provisioner.model import Gang, InstanceView, Note, PoolScaling
from resolute_provisioner.planning.gangs import machines_of, shape_of
from resolute_provisioner.planning.packing import Packing, Unserved
from resolute_provisioner.planning.standing import Standing, seconds_between
from resolute_provisioner.ranking import Forecast
from resolute_provisioner.risk import Block

_NEVER = datetime.max.replace(tzinfo=UTC)


def why_launch(forecast: Forecast, tokens: Sequence[str]) -> str:
    offer = forecast.offer
    price = "" if forecast.price_per_hour is None else f" at {forecast.price_per_hour:g} an hour"
    work = "1 waiting task" if len(tokens) == 1 else f"{len(tokens)} waiting tasks"
    where = f"{offer.instance_type} ({offer.slots} slots, {offer.market.value}, {offer.zone}){price}"
    return f"{work} cannot use the present or starting machines; {where} is the cheapest available"


NAMED = 3
"""Number of obstacles that are listed; the others are counted."""


def why_blocked(blocks: Mapping[str, Block]) -> str:
    """The reasons why all offers are blocked; those that can be requested first come first."""
    if not blocks:
        return "the pool has no offers"
    soonest = sorted(blocks.items(), key=lambda item: (item[1].until is None, item[1].until or _NEVER, item[0]))
    named = "; ".join(f"offer {offer_id}: {obstacle(each)}" for offer_id, each in soonest[:NAMED])
    return named if len(soonest) <= NAMED else f"{named}; and {len(soonest) - NAMED} more offers"


def for_pool(pool: PoolScaling, standings: Sequence[Standing], blocks: Mapping[str, Block]) -> list[Note]:
    """Notes about the pool as a whole."""
    found: list[Note] = []
    final = [offer_id for offer_id, each in sorted(blocks.items()) if each.misconfigured]
    if final and len(final) == len(pool.offers):
        found.append(
            Note(subject="", text=f"the pool is misconfigured and requests no machines: {why_blocked(blocks)}")
        )
    else:
        found.extend(Note(subject="", text=f"offer {each} is not used: {obstacle(blocks[each])}") for each in final)
    suspects = [each.view.instance_id for each in standings if each.suspect]
    if suspects:
        names = ", ".join(suspects)
        text = f"{names} are out of contact at the same time: none is released, since the master's network may be the cause"
        found.append(Note(subject="", text=text))
    return found


def for_waiting(packing: Packing, machines: Mapping[str, InstanceView], now: datetime) -> list[Note]:
    """Notes for gangs whose machines are starting, or that wait for slots that other work will free."""
    found: list[Note] = []
    for name, tokens in sorted(packing.on_machines.items()):
        view = machines.get(name)
        if view is None:
            text = "counts on slots that other work is expected to free before a new machine would join"
            found.extend(Note(subject=token, text=text) for token in tokens)
        elif view.joined_at is None:
            asked_s = seconds_between(view.requested_at, now)
            text = f"waits for {name}, which was requested {asked_s:.0f} s ago and has not joined yet"
            found.extend(Note(subject=token, text=text) for token in tokens)
    return found


def for_unserved(
    pool: PoolScaling, unserved: Sequence[Unserved], blocks: Mapping[str, Block], alive: int
) -> list[Note]:
    """Notes for gangs without machines. `alive` machines count against the pool's maximum."""
    known: dict[tuple[object, ...], str] = {}
    found: list[Note] = []
    for each in unserved:
        shape = shape_of(each.gang)
        if shape not in known:
            known[shape] = _why_unserved(pool, each, blocks, alive)
        found.append(Note(subject=each.gang.token, text=known[shape]))
    return found


def _why_unserved(pool: PoolScaling, each: Unserved, blocks: Mapping[str, Block], alive: int) -> str:
    gang = each.gang
    if gang.slots == 0 and pool.max_aux_per_instance == 0:
        return "needs no slots, and this pool accepts no such work (max_aux_containers_per_agent is 0)"
    offers = [offer for offer in pool.offers if offer.market in gang.markets]
    if not offers:
        return f"must not run on machines of this pool's market ({_markets(pool)})"
    by_size = {size: machines_of(gang, size) for size in {offer.slots for offer in offers}}
    counts = {size: count for size, count in by_size.items() if count is not None}
    if not counts:
        return _impossible(pool, gang)
    fewest = min(counts.values())
    if fewest > pool.max_instances:
        return f"needs {fewest} machines and the pool may have {pool.max_instances} (max_instances)"
    if each.machines_missing is not None:
        more = "1 more machine" if each.machines_missing == 1 else f"{each.machines_missing} more machines"
        return f"needs {more}; {alive} of at most {pool.max_instances} (max_instances) are in use, starting or ending"
    suited = [offer.offer_id for offer in offers if offer.slots in counts]
    return why_blocked({offer_id: blocks[offer_id] for offer_id in suited if offer_id in blocks})


def _markets(pool: PoolScaling) -> str:
    return ", ".join(sorted({offer.market.value for offer in pool.offers}))


def _impossible(pool: PoolScaling, gang: Gang) -> str:
    sizes = ", ".join(str(size) for size in sorted({offer.slots for offer in pool.offers})) or "none"
    if gang.slots_per_machine is not None and not gang.single_machine:
        need = f"{gang.slots} slots as {gang.slots_per_machine} on each machine"
    elif gang.single_machine:
        need = f"{gang.slots} slots on one machine"
    else:
        need = f"{gang.slots} slots on one machine, or on whole machines of one size"
    return f"needs {need}; no offer of this pool can give that (slots of its machines: {sizes})"


def obstacle(each: Block) -> str:
    """Why an offer is not requested, and when it will be."""
    if each.until is None:
        return f"{each.reason}; no request until the configuration changes" if each.misconfigured else each.reason
    return f"{each.reason}; next request at {each.until:%H:%M:%S} UTC"
