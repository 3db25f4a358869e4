"""Which slots are expected to become free before a machine that is bought now would join. Pure.

Run times are heavy-tailed, so that what has run for long is expected to run for long. Of work that has run for `a` seconds the part

    boot / (a + boot + SCALE_S)

is expected to end within a boot (the survival function of a Lomax distribution with shape 1). In a pool with much short work these
are many slots, and each machine that is bought for work which they will serve is bought for nothing. So waiting work of one slot
counts on them, but for half a boot at most: then a machine is bought for it all the same. Only a pool that learns its idle
periods does so, and only while its machines are short-lived (`keep_warm.IdlePeriods.boots_are_cheap`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from resolute_provisioner.model import Gang, InstanceView, Market, PoolScaling
from resolute_provisioner.planning.offers_by_size import Machine
from resolute_provisioner.planning.standing import by_id, seconds_between

SCALE_S = 300.0
"""Scale of run times: work that has just begun is as likely to be shorter than this as longer. Half of the work of a cluster ends
within minutes."""
LONGEST_WAIT = 0.5
"""Share of a boot time for which a gang may wait for slots that other work will free."""
AFTER_BOUGHT = 3
"""Preference of expected slots: present and starting machines are filled before (`Machine.preference`)."""
PREFIX = "soon-free-"


def soon_free(pool: PoolScaling, machines: Iterable[InstanceView], boot_s: float, now: datetime) -> list[Machine]:
    """As many machines of one slot as slots are expected to become free, whole ones only, by market. `machines`: those on which
    work may be planned."""
    markets = {offer.offer_id: offer.market for offer in pool.offers}
    expected: dict[Market, float] = {}
    # By id, because sums of fractions depend on the order.
    for each in sorted(machines, key=by_id):
        market = markets.get(each.offer_id)
        if market is None:
            continue
        for resident in each.residents:
            ran_s = seconds_between(resident.since, now)
            share = boot_s / (ran_s + boot_s + SCALE_S)
            expected[market] = expected.get(market, 0.0) + resident.slots * share
    return [
        Machine(
            name=f"{PREFIX}{market}-{number}",
            size=1,
            free_slots=1,
            free_aux=0,
            untouched=False,
            preference=AFTER_BOUGHT,
            market=market,
        )
        for market, slots in sorted(expected.items())
        for number in range(int(slots))
    ]


def patient_until(gang: Gang, boot_s: float) -> datetime:
    """Time until which a gang waits for slots that other work will free."""
    return gang.submitted_at + timedelta(seconds=LONGEST_WAIT * boot_s)


def counting_on(
    gangs: Sequence[Gang], soon: Sequence[Machine], boot_s: float, now: datetime
) -> tuple[list[Gang], datetime | None]:
    """The gangs, of which those that have waited for too long may not use slots that other work will free; and when the next one
    will have."""
    if not soon:
        return list(gangs), None
    names = frozenset(machine.name for machine in soon)
    found: list[Gang] = []
    next_at: datetime | None = None
    for gang in gangs:
        until = patient_until(gang, boot_s)
        if gang.slots == 1 and now >= until:
            gang = replace(gang, excluded_instances=gang.excluded_instances | names)
        elif gang.slots == 1:
            next_at = until if next_at is None else min(next_at, until)
        found.append(gang)
    return found, next_at
