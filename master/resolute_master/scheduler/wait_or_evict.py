"""Whether the more important waits for a machine or makes others leave. Pure.

Both ways one more machine is had, because whoever has to leave needs one, too: so its price is paid either way, and does
not decide. (What is above a price limit or beyond the pool's budget is no supply, and nobody waits for it: `decision.supply`
leaves it out.) What differs is who waits for the machine, and that work is done again:

    waiting   costs  urgency x slots of the claim x (wait - time that leaving takes)
    evicting  costs  slots of the victims x wait  +  what the victims lose

in slot-seconds. What the victims lose is what they did since their last checkpoint, and their start.
"""

from __future__ import annotations

URGENCY = 2.0
"""A second that the more important waits counts as much as so many of the less important."""
LEAVE_S = 30.0
"""Until victims have saved and ended."""
DAY_S = 86_400.0


def waits_rather(*, slots: int, wait_s: float | None, victim_slots: int, lost_slot_s: float) -> bool:
    """`slots` is what the claim needs, `wait_s` when its machines are expected: None when nobody knows, and then it waits.
    `victim_slots` is what the victims hold, `lost_slot_s` what their end would waste."""
    if wait_s is None:
        return True
    waiting = URGENCY * slots * (wait_s - LEAVE_S)
    evicting = victim_slots * wait_s + lost_slot_s
    return waiting <= evicting


def never_pays(wait_s: float | None) -> bool:
    """Nobody is worth evicting for so short a wait, whatever it would cost."""
    return waits_rather(slots=1, wait_s=wait_s, victim_slots=0, lost_slot_s=0.0)


def expected_wait_s(expected_in_s: float) -> float:
    """Of a machine that is expected in so many seconds. One that is overdue is expected to take as long again as it is late."""
    return abs(expected_in_s)


def decided_again_in_s(wait_s: float) -> float:
    """After so long a decision to wait so many seconds is looked at again: when the machine was expected, and after that each
    time that it is twice as late, once a day at least."""
    return min(max(wait_s, LEAVE_S), DAY_S)
