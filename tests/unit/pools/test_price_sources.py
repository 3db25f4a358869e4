"""The pools whose prices are queried from the cloud, and how often."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.clock import SystemClock
from resolute.config import parse_master_config
from resolute.ids import SeededIds
from resolute_master.pools.policies import pool_policies
from resolute_master.pools.price_sources import price_source_of, price_watches
from resolute_master.store.memory import MemoryStore
from support.engines import an_engine

AWS: dict[str, Any] = {"type": "aws", "ssh_key_name": "k", "region": "us-east-1", "spot": True}


def periods_s(**provider: Any) -> list[float]:
    """Periods of the watches of one such pool."""
    config = parse_master_config({"resource_pools": [{"pool_name": "default", "provider": provider}]})
    engine = an_engine(MemoryStore(), pools=pool_policies(config))
    watches = price_watches(config, engine, price_source_of, SystemClock(), SeededIds(1))
    return [watch.status.period_s for watch in watches]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [300.0]),
        ({"price_refresh": True}, [300.0]),
        ({"price_refresh": "90s"}, [90.0]),
        ({"price_refresh": False}, []),
    ],
)
def test_prices_are_asked_for_as_often_as_is_configured(given: dict[str, Any], expected: list[float]) -> None:
    assert periods_s(**AWS, **given) == expected


def test_a_cloud_that_tells_no_prices_is_not_asked() -> None:
    assert periods_s(type="local", max_instances=1) == []
