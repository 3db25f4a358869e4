"""How long a machine without work is kept. Pure.

Ending a machine too early costs the next work a boot; keeping it costs its price. So for the same chance of new work, a cheap
machine is worth keeping longer than an expensive one: with `max_idle_cost` each machine may idle until its idle time has cost this
amount, and never for less than the pool's idle period.
"""

from __future__ import annotations

from math import ceil

from resolute_provisioner.model import PoolScaling


def patience_s(pool: PoolScaling, price_per_hour: float | None) -> float:
    """Seconds that a machine of that price may be without work. Of one whose price is not known, or which costs nothing more
    because it is paid for anyway, only the period counts.

    What the price allows is in whole seconds: of a fraction below a microsecond the moment at which it is over would come too early
    to be that moment, and no other would follow.
    """
    if pool.max_idle_cost is None or not price_per_hour:
        return pool.idle_timeout_s
    return max(pool.idle_timeout_s, float(ceil(pool.max_idle_cost / price_per_hour * 3600.0)))
