"""Machines as the page of the cluster shows them: one word, and what was paid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from resolute_master.domain.ids import InstanceId, PoolName
from resolute_master.domain.instance import EarlierPrice, Instance
from resolute_provisioner.model import Intent, Observed
from resolute_web.machines import machine_row, state_of_machine

T = datetime(2026, 5, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_machine(**known: Any) -> Instance:
    usual = {"price_per_hour": 2.0, "requested_at": T, **known}
    return Instance(id=InstanceId("i-1"), pool=PoolName("default"), token="t", offer_id="o", slots=1, **usual)


@pytest.mark.parametrize(
    ("known", "word"),
    [
        ({}, "requested"),
        ({"refused": "no capacity", "observed": Observed.GONE}, "refused"),
        ({"launched_at": T}, "starting"),
        ({"launched_at": T, "joined_at": T}, "busy"),
        ({"launched_at": T, "joined_at": T, "idle_since": T}, "idle"),
        ({"joined_at": T, "draining_since": T}, "draining"),
        ({"joined_at": T, "intent": Intent.STOP}, "stopping"),
        ({"joined_at": T, "intent": Intent.STOP, "observed": Observed.GONE}, "gone"),
    ],
)
def test_a_machine_has_one_word(known: dict[str, Any], word: str) -> None:
    assert state_of_machine(a_machine(**known)) == word


def test_a_machine_costs_its_paid_time_at_the_prices_that_were_in_force() -> None:
    row = machine_row(a_machine(paid_from=T), T + 3 * HOUR)
    assert (row.seconds, row.cost) == (3 * 3600, 6.0)
    ended = machine_row(a_machine(paid_from=T, paid_until=T + HOUR), T + 3 * HOUR)
    assert (ended.seconds, ended.cost) == (3600, 2.0)
    moved = a_machine(paid_from=T, earlier_prices=(EarlierPrice(per_hour=1.0, until=T + HOUR),))
    assert machine_row(moved, T + 3 * HOUR).cost == 5.0


def test_a_price_that_nobody_knows_is_no_cost_and_not_nothing() -> None:
    assert machine_row(a_machine(paid_from=T, price_per_hour=None), T + HOUR).cost is None
    assert machine_row(a_machine(), T + HOUR) == machine_row(a_machine(), T)
