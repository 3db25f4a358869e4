"""From the keys of a provider to what the planner is given."""

from __future__ import annotations

from typing import Any

from resolute.config.pools import ResourcePool
from resolute_master.pools.policies import scaling_of
from resolute_provisioner.model import Disruption, Window


def disruption(**given: Any) -> Disruption:
    provider = {"type": "local", "disruption": given}
    scaling = scaling_of(ResourcePool.model_validate({"pool_name": "default", "provider": provider}))
    assert scaling is not None
    return scaling.disruption


def test_without_the_key_work_may_be_moved_at_any_time() -> None:
    assert disruption() == Disruption()


def test_windows_are_days_and_seconds_after_midnight() -> None:
    found = disruption(
        max_per_hour=3,
        windows=[{"days": ["sat", "sun"], "start": "22:30", "end": "06:00"}, {"start": "12:00", "end": "13:00"}],
    )
    assert found == Disruption(
        max_per_hour=3,
        windows=(
            Window(weekdays=frozenset({5, 6}), start_s=81_000.0, end_s=21_600.0),
            Window(weekdays=frozenset(range(7)), start_s=43_200.0, end_s=46_800.0),
        ),
    )
