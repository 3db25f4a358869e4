"""Whether more important work waits for a machine or preempts. Pure.

Both cases launch one more machine, because the victim needs one too: so its price is paid either way, and does
not decide. (Machines above a price limit or beyond the pool's budget are not part of the supply, so no work waits for them:
`decision.supply` leaves them out.) The cases differ in which work waits for the machine, and in the work that is repeated:

    waiting   costs  urgency x slots of the claim x (wait - time to preempt)
    evicting  costs  slots of the victims x wait  +  lost work of the victims

in slot-seconds. The lost work of a victim is its work since the last checkpoint, and its start.
"""

from __future__ import annotations

URGENCY = 2.0
"""Weight of a second that more important work waits, relative to the less important."""
LEAVE_S = 30.0
"""Time until victims have saved and ended."""
DAY_S = 86_400.0


def waiting_is_cheaper(*, slots: int, wait_s: float | None, victim_slots: int, lost_slot_s: float) -> bool:
    """Whether waiting for machines costs less than preemption. `slots`: the size of the claim. `wait_s`: seconds until its
    machines join; None when unknown, and then it waits. `victim_slots`: slots that the victims hold. `lost_slot_s`: the waste of
    ending them."""
    if wait_s is None:
        return True
    waiting = URGENCY * slots * (wait_s - LEAVE_S)
    evicting = victim_slots * wait_s + lost_slot_s
    return waiting <= evicting


def never_pays(wait_s: float | None) -> bool:
    """Whether the wait is too short for any preemption, whatever its cost."""
    return waiting_is_cheaper(slots=1, wait_s=wait_s, victim_slots=0, lost_slot_s=0.0)


def expected_wait_s(expected_in_s: float) -> float:
    """Expected wait for a machine that is due in `expected_in_s` seconds. A machine that is late (negative) is expected to take
    as long again as it is late."""
    return abs(expected_in_s)


def decided_again_in_s(wait_s: float) -> float:
    """Seconds until a decision to wait `wait_s` is repeated: when the machine was expected, and then each time that its delay has
    doubled, at least once a day."""
    return min(max(wait_s, LEAVE_S), DAY_S)
