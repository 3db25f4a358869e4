"""What pools and workspaces spend, beside their budgets: the accounts at the time of a scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from resolute.clock import Clock
from resolute_master.domain.account import Account, Owner
from resolute_master.engine.engine import Engine

OWNER = ("owner", "id")


class SpendingMetrics(Collector):
    """Metrics of every account except those of experiments, whose number is unbounded: `GET /api/v1/cost` returns them."""

    def __init__(self, registry: CollectorRegistry, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when the collector is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        spent = CounterMetricFamily("resolute_spent", "What was spent, in the currency of the prices", labels=OWNER)
        rate = GaugeMetricFamily("resolute_spending_per_hour", "What is spent an hour now", labels=OWNER)
        period = GaugeMetricFamily(
            "resolute_spent_in_period", "What was spent in this day and month of UTC", labels=(*OWNER, "period")
        )
        limit = GaugeMetricFamily(
            "resolute_budget",
            "What may be spent in a day and in a month, where that is limited",
            labels=(*OWNER, "period"),
        )
        stopped = GaugeMetricFamily("resolute_budget_used_up", "1 while work is stopped for a budget", labels=OWNER)
        now = self._clock.now()
        for account in sorted(self._engine.state.listed(Account), key=lambda each: each.id):
            if account.owner is Owner.EXPERIMENT:
                continue
            current, key = account.until(now), (account.owner.value, account.name)
            spent.add_metric(key, current.in_all)
            rate.add_metric(key, current.rate_per_hour)
            stopped.add_metric(key, float(account.wind_down is not None))
            for name, amount, most in (
                ("day", current.in_day, account.limits.per_day),
                ("month", current.in_month, account.limits.per_month),
            ):
                period.add_metric((*key, name), amount)
                if most is not None:
                    limit.add_metric((*key, name), most)
        yield from (spent, rate, period, limit, stopped)
