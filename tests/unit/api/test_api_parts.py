"""The small parts of the API: pages, bodies, capacity, barriers, metadata, the log in memory, summaries."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import Conflict, FailedPrecondition, InvalidInput, NotFound, Unavailable
from resolute.wire.rest.enums import LogLevel, WireExperimentState, WireTaskState
from resolute.wire.states import AllocationState, ExperimentState
from resolute_master.api.barriers import Barriers
from resolute_master.api.http.bodies import parse_json
from resolute_master.api.http.errors import INTERNAL, BodyTooLarge, status_of
from resolute_master.api.http.paging import page_of
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.api.render import states
from resolute_master.api.render.logs import message
from resolute_master.api.render.summaries import summaries
from resolute_master.api.resources.extensions import instance_state
from resolute_master.api.resources.runs import check_metadata, storage_number
from resolute_master.domain.ids import AllocationId, InstanceId, PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.capacity import shortage
from resolute_master.store.metric_chunks import by_group, chunks_of
from resolute_provisioner.model import Intent, Market, Observed, Offer, PoolScaling
from support.cluster import an_agent, an_allocation, an_instance, at
from support.stores import a_line, a_report

# ------------------------------------------------------------------------------------------------------------ pages


@given(st.integers(0, 30), st.integers(1, 7))
def test_pages_put_together_are_the_whole_list(count: int, limit: int) -> None:
    rows, offset, found = list(range(count)), 0, []
    while True:
        page, info = page_of(rows, offset=offset, limit=limit)
        found += page
        assert info.end_index == offset + len(page) and info.total == count
        if info.end_index >= info.total:
            break
        assert info.end_index > offset
        offset = info.end_index
    assert found == rows


def test_negative_offsets_count_from_the_end_and_others_are_refused() -> None:
    assert page_of([1, 2, 3], offset=-2, limit=0)[0] == (2, 3)
    assert page_of([1, 2, 3], offset=3, limit=0)[0] == ()
    for offset, limit in ((4, 0), (-4, 0), (0, -1)):
        with pytest.raises(InvalidInput):
            page_of([1, 2, 3], offset=offset, limit=limit)


# ----------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize("raw", [b"", b"  \n"])
def test_no_body_is_an_empty_object(raw: bytes) -> None:
    assert parse_json(raw) == {}


@pytest.mark.parametrize("raw", [b"{", b"nan", b'{"a": NaN}', b"\xff", b'{"a": 1e999}', b"[" * 100_000])
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        parse_json(raw)


def test_integers_that_no_database_holds_are_refused_wherever_they_are() -> None:
    assert parse_json(b'{"a": [9223372036854775807], "b": "99999999999999999999"}')["a"] == [2**63 - 1]
    with pytest.raises(InvalidInput, match="64 bits"):
        parse_json(b'{"a": [{"b": 9223372036854775808}]}')


def test_errors_have_the_codes_of_the_contract() -> None:
    assert (status_of(NotFound("trial", 1)).code, status_of(NotFound("trial", 1)).http) == (5, 404)
    assert (status_of(Conflict("x")).code, status_of(Conflict("x")).http) == (10, 409)
    assert status_of(BodyTooLarge("x")).http == 413
    assert status_of(ValueError("x")) is INTERNAL

    class Special(FailedPrecondition):
        pass

    assert status_of(Special("x")).code == 9


# --------------------------------------------------------------------------------------------------------- capacity


def elastic(slots: int, machines: int) -> PoolPolicy:
    offer = Offer(offer_id="o", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=slots)
    scaling = PoolScaling(pool="default", offers=(offer,), max_instances=machines)
    return PoolPolicy(name=PoolName("default"), scaling=scaling)


STATIC = PoolPolicy(name=PoolName("default"))


@pytest.mark.parametrize(
    ("policy", "sizes", "slots", "single", "fits"),
    [
        (STATIC, (2, 2), 4, False, True),
        (STATIC, (2, 2), 5, False, False),
        (STATIC, (2, 2), 4, True, False),
        (STATIC, (4, 2), 4, True, True),
        (STATIC, (), 0, False, True),
        (STATIC, (), 1, False, False),
        (elastic(4, 2), (), 8, False, True),
        (elastic(4, 2), (), 9, False, False),
        (elastic(4, 2), (), 5, True, False),
        # Started by hand, in a pool that may also launch machines.
        (elastic(4, 2), (8,), 8, True, True),
        (elastic(4, 2), (8,), 16, False, True),
        (elastic(4, 2), (8,), 17, False, False),
    ],
)
def test_what_a_pool_can_ever_hold(
    policy: PoolPolicy, sizes: tuple[int, ...], slots: int, single: bool, fits: bool
) -> None:
    agents = [an_agent(f"agent-{i}", slots=size) for i, size in enumerate(sizes)]
    why = shortage(policy, agents, slots=slots, single_node=single)
    assert (why == "") == fits
    if not fits:
        assert str(slots) in why and "'default'" in why and ";" in why


def test_what_was_launched_is_among_the_machines_that_an_elastic_pool_may_have() -> None:
    launched = [an_agent(f"i-{n}", slots=4, instance_id=InstanceId(f"i-{n}")) for n in range(2)]
    assert shortage(elastic(4, 2), launched, slots=8, single_node=False) == ""
    assert "have 8)" in shortage(elastic(4, 2), launched, slots=9, single_node=False)


def test_an_agent_that_is_away_for_a_moment_still_counts() -> None:
    away = an_agent(slots=2, disconnected_at=at(1))
    assert shortage(STATIC, [away], slots=2, single_node=False) == ""


# --------------------------------------------------------------------------------------------------------- barriers

GANG = AllocationId("1.r.1")


async def test_a_member_that_comes_again_replaces_itself() -> None:
    barriers = Barriers()
    first = asyncio.ensure_future(barriers.gather(GANG, "a", 2, {"n": 1}))
    await asyncio.sleep(0)
    again = asyncio.ensure_future(barriers.gather(GANG, "a", 2, {"n": 2}))
    with pytest.raises(Conflict):
        await first
    assert await barriers.gather(GANG, "b", 2, {"n": 3}) == ({"n": 2}, {"n": 3})
    assert await again == ({"n": 2}, {"n": 3})


async def test_members_must_agree_on_their_number() -> None:
    barriers = Barriers()
    first = asyncio.ensure_future(barriers.gather(GANG, "a", 2, {}))
    await asyncio.sleep(0)
    with pytest.raises(InvalidInput, match="numPeers"):
        await barriers.gather(GANG, "b", 3, {})
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    # A barrier that nobody waits at any more is forgotten with its number.
    assert await barriers.gather(GANG, "b", 1, {"n": 1}) == ({"n": 1},)


async def test_members_that_never_come_are_counted() -> None:
    with pytest.raises(Unavailable, match="1 of 2 members"):
        await Barriers(limit_s=0.0).gather(GANG, "a", 2, {})


# --------------------------------------------------------------------------------------------------------- metadata


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"a.b": 1}, "'a.b'"),
        ({"": 1}, "''"),
        ({"a": {"x" * 51: 1}}, "metadata.a"),
        ({"a": "x" * 5001}, "5000"),
        ({"a": [0] * 101}, "100"),
        ({str(i): i for i in range(1001)}, "1000"),
        ({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"j": {}}}}}}}}}}}, "10 levels"),
    ],
)
def test_metadata_have_limits_that_are_named(metadata: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named.replace(".", r"\.")):
        check_metadata(metadata)


def test_storages_are_numbered_by_their_content() -> None:
    assert storage_number({"a": 1, "b": 2}) == storage_number({"b": 2, "a": 1}) != storage_number({"a": 1})
    assert 0 < storage_number({}) < 2**31


# ------------------------------------------------------------------------------------------------------------ log ring


async def test_the_ring_keeps_the_last_lines_and_wakes_its_followers() -> None:
    ring = LogRing(kept=3)
    logger = logging.Logger("part")
    logger.addHandler(ring)
    with ring.follow() as news:
        for number in range(5):
            logger.info("%d", number)
        assert [line.message for line in ring.after(0)] == ["part: 2", "part: 3", "part: 4"]
        assert [line.id for line in ring.after(4)] == [5] and ring.last == 5
        await asyncio.wait_for(news.wait(), 10)
    try:
        raise ValueError("the reason")
    except ValueError:
        logger.exception("failed")
    assert "the reason" in ring.after(5)[0].message


# ---------------------------------------------------------------------------------------------------------- rendering


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ((), "QUEUED"),
        ((AllocationState.PENDING,), "QUEUED"),
        ((AllocationState.ASSIGNED, AllocationState.PULLING), "PULLING"),
        ((AllocationState.PULLING, AllocationState.STARTING), "STARTING"),
        ((AllocationState.PENDING, AllocationState.TERMINATING), "RUNNING"),
        ((AllocationState.TERMINATED,), "QUEUED"),
    ],
)
def test_active_is_shown_as_its_furthest_allocation(found: tuple[AllocationState, ...], shown: str) -> None:
    allocations = [an_allocation(state=state) for state in found]
    assert states.experiment_state(ExperimentState.ACTIVE, allocations).name == shown
    assert states.trial_state(ExperimentState.ACTIVE, allocations).name == shown
    assert states.experiment_state(ExperimentState.PAUSED, allocations) is WireExperimentState.PAUSED


def test_every_state_has_a_word_on_the_wire() -> None:
    for state in AllocationState:
        assert states.task_state(state) in WireTaskState
    for state in ExperimentState:
        assert states.experiment_state(state, ()) in WireExperimentState
    assert states.stored_states([WireExperimentState.RUNNING, WireExperimentState.ERROR]) == (
        ExperimentState.ACTIVE,
        ExperimentState.ERROR,
    )


def test_levels_are_read_in_every_spelling() -> None:
    assert states.level_of("INFO") is states.level_of("LOG_LEVEL_INFO") is states.level_of("info") is LogLevel.INFO
    assert states.level_of("") is states.level_of("loud") is LogLevel.UNSPECIFIED


def test_a_line_has_a_place_for_everything() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    full = a_line("k", at=moment, container_id="0123456789", rank=2, level="ERROR", log="no\n")
    assert message(full) == "[2026-01-02T03:04:05.000000Z] 01234567 [rank=2] || ERROR: no\n"
    bare = a_line("k", at=moment, container_id="", rank=None, level="", log="no")
    assert message(bare) == "[2026-01-02T03:04:05.000000Z]          || no\n"


def test_summaries_follow_the_types() -> None:
    reports = [
        a_report(1, {"loss": 4.0, "name": "a", "when": "2026-01-01T00:00:00Z", "odd": 1}, group="training"),
        a_report(2, {"loss": 2.0, "name": "b", "odd": "x"}, group="training"),
        a_report(2, {"loss": "NaN"}, group="validation"),
        a_report(2, {"f": [1], "g": {}, "h": None, "i": True}, group="custom"),
    ]
    found = summaries({group: chunks_of(of_group) for (_, group), of_group in by_group(reports).items()})
    assert found["avg_metrics"]["loss"] == {
        "type": "number", "min": 2.0, "max": 4.0, "sum": 6.0, "count": 2, "mean": 3.0, "last": 2.0
    }  # fmt: skip
    assert found["avg_metrics"]["name"] == {"type": "string", "last": "b"}
    assert found["avg_metrics"]["when"] == {"type": "date", "last": None}
    assert found["avg_metrics"]["odd"] == {"type": "string", "last": "x"}
    assert found["validation_metrics"]["loss"]["last"] == "NaN"
    assert {name: found["custom"][name]["type"] for name in "fghi"} == {
        "f": "array", "g": "object", "h": "null", "i": "boolean"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"observed": Observed.UNKNOWN, "joined_at": None}, "requested"),
        ({"observed": Observed.RUNNING, "joined_at": None}, "starting"),
        ({"observed": Observed.RUNNING, "joined_at": at(1)}, "running"),
        ({"observed": Observed.RUNNING, "joined_at": at(1), "draining_since": at(2)}, "draining"),
        ({"observed": Observed.RUNNING, "intent": Intent.STOP}, "stopping"),
        ({"observed": Observed.GONE, "intent": Intent.STOP}, "gone"),
        ({"observed": Observed.GONE, "refused": "no capacity"}, "refused"),
    ],
)
def test_machines_have_a_word_for_their_state(changes: dict[str, Any], state: str) -> None:
    assert instance_state(an_instance(**changes)) == state
