"""Traces of capacity and price: what is read, what a wrong file is told, and what the market makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_master.domain.ids import InstanceId
from resolute_master.forecast.market import Given, Refused
from resolute_provisioner.model import Market, Offer
from resolute_sim.twin.capacity import TracedMarket, read_capacity

SPOT = Offer(
    offer_id="spot",
    instance_type="p3.2xlarge",
    zone="us-east-1a",
    market=Market.SPOT,
    slots=1,
    price_per_hour=1.0,
    accelerator="V100",
)
DEMAND = Offer(
    offer_id="demand",
    instance_type="p3.2xlarge",
    zone="us-east-1a",
    market=Market.ON_DEMAND,
    slots=1,
    price_per_hour=3.0,
)
GOOD = {"kind": "availability", "gap_seconds": 10, "rle": [[1, 3], [0, 2]]}


def _write(directory: Path, name: str, data: Any) -> Path:
    path = directory / name
    path.write_text(json.dumps(data))
    return path


def test_the_name_of_a_file_says_whose_capacity_it_holds(tmp_path: Path) -> None:
    path = _write(tmp_path, "avail_1-node_aws__us-east-1a_v100_1.json", GOOD)
    _write(tmp_path, "avail_1-node_aws__us-east-1b_v100_1.json", GOOD)
    (trace,) = read_capacity([tmp_path], [SPOT, DEMAND])
    assert trace.name == path.stem and trace.length_s == 50.0
    assert [trace.at(second) for second in (0, 29, 30, 49, 50, 79.9, 80)] == [1, 1, 0, 0, 1, 1, 0]
    assert [trace.next_change(second) for second in (0, 30, 50)] == [30.0, 50.0, 80.0]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "is not a JSON object"),
        ({**GOOD, "kind": "capacity"}, "key kind: must be one of availability, price, and is 'capacity'"),
        ({**GOOD, "gap_seconds": 0}, "key gap_seconds: must be seconds, 1 to 315360000, and is 0"),
        ({**GOOD, "gap_seconds": 1e300}, "key gap_seconds: must be seconds, 1 to 315360000, and is 1e+300"),
        ({**GOOD, "rle": [[1, float("inf")]]}, "key rle[0]: must be [value, repeat]"),
        ({**GOOD, "rle": [[1, 1e300]]}, "key rle[0]: must be a value of at most 1,000,000, for ten years at most"),
        ({**GOOD, "kind": "price", "rle": [[1e300, 1]]}, "key rle[0]: must be a value of at most 1,000,000"),
        ({**GOOD, "slots": "two"}, "key slots: must be a whole number, and is 'two'"),
        ({**GOOD, "rle": []}, "key rle: must be a list"),
        ({**GOOD, "rle": [[1, 3], [1]]}, "key rle[1]: must be [value, repeat]"),
        ({**GOOD, "rle": [[-1, 3]]}, "key rle[0]"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key_and_value(tmp_path: Path, data: Any, said: str) -> None:
    path = _write(tmp_path, "us-east-1a_v100_1.json", data)
    with pytest.raises(InvalidInput) as refused:
        read_capacity([path], [SPOT])
    assert said in str(refused.value) and str(path) in str(refused.value)


def test_a_file_that_concerns_no_offer_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, "us-west-2a_v100_1.json", GOOD)
    with pytest.raises(
        InvalidInput, match="concerns no offer of the pool; its spot offers are: us-east-1a V100 with 1"
    ):
        read_capacity([path], [SPOT, DEMAND])


def test_the_market_refuses_and_takes_back_when_there_is_nothing(tmp_path: Path) -> None:
    traces = read_capacity([_write(tmp_path, "us-east-1a_v100_1.json", GOOD)], [SPOT])
    market = TracedMarket([SPOT, DEMAND], traces, boot_s=5.0, seed=1)
    assert isinstance(market.ask("spot", 0.0), Given) and isinstance(market.ask("spot", 1.0), Given)
    assert isinstance(market.ask("spot", 31.0), Refused) and isinstance(market.ask("demand", 31.0), Given)
    alive = {"spot": [InstanceId("a"), InstanceId("b")], "demand": [InstanceId("c")]}
    assert market.next_move(0.0) == 30.0
    assert market.move(30.0, alive).taken == ("a", "b") and market.move(50.0, alive).taken == ()
    assert market.cheapest_slot_hour == 1.0


def test_a_fleet_is_cut_to_what_the_trace_leaves(tmp_path: Path) -> None:
    data = {**GOOD, "rle": [[3, 1], [1, 1]]}
    market = TracedMarket(
        [SPOT], read_capacity([_write(tmp_path, "us-east-1a_v100_1.json", data)], [SPOT]), boot_s=5.0, seed=1
    )
    answers = [market.ask("spot", 0.0) for _ in range(4)]
    assert [isinstance(answer, Given) for answer in answers] == [True, True, True, False]
    alive = {"spot": [InstanceId(name) for name in "abc"]}
    assert len(market.move(10.0, alive).taken) == 2
    market.ended("spot")
    assert isinstance(market.ask("spot", 0.0), Given)
