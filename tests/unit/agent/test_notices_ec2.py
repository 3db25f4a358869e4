"""What a machine of EC2 reads in its metadata, against an emulated IMDSv2."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from resolute.clock import FixedClock
from resolute.wire.agent_link import Notice
from resolute.wire.states import NoticeKind
from resolute_provisioner.clouds.aws.notices import ACTION_PATH, EVENTS_PATH, REBALANCE_PATH, Ec2Notices, meaning
from support.imds import Imds, imds

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ACTION = '{"action": "terminate", "time": "2026-03-01T12:02:00Z"}'
REBALANCE = '{"noticeTime": "2026-03-01T11:59:00Z"}'
EVENT = """[{"NotBefore": "3 Mar 2026 09:00:43 GMT", "Code": "system-reboot", "Description": "scheduled reboot",
 "EventId": "instance-event-0", "NotAfter": "3 Mar 2026 09:17:23 GMT", "State": "active"}]"""


def a_source(service: Imds) -> Ec2Notices:
    return Ec2Notices(clock=FixedClock(NOW), url=service.url, poll_s=0.01)


async def soon(source: Ec2Notices) -> Notice:
    async with asyncio.timeout(10):
        return await source.next()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the service answers in a thread of its own
        await asyncio.sleep(0.01)


async def nothing_more(source: Ec2Notices, service: Imds) -> None:
    """The source asks on, and nothing comes of it."""
    asked = service.asked(ACTION_PATH)
    waiting = asyncio.create_task(source.next())
    await until(lambda: service.asked(ACTION_PATH) >= asked + 3)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_each_notice_is_told_once_the_most_urgent_first() -> None:
    with imds() as service:
        source = a_source(service)
        await nothing_more(source, service)
        service.values |= {ACTION_PATH: ACTION, REBALANCE_PATH: REBALANCE}
        told = await soon(source)
        assert (told.kind, told.deadline) == (NoticeKind.INTERRUPTION, datetime(2026, 3, 1, 12, 2, tzinfo=UTC))
        told = await soon(source)
        assert (told.kind, told.deadline) == (NoticeKind.REBALANCE, None)
        await nothing_more(source, service)
        service.values[ACTION_PATH] = ACTION.replace("12:02", "12:01")
        assert (await soon(source)).deadline == datetime(2026, 3, 1, 12, 1, tzinfo=UTC)


async def test_a_token_that_has_ended_is_renewed() -> None:
    with imds() as service:
        source = a_source(service)
        await nothing_more(source, service)
        service.revoke_tokens()
        service.values[ACTION_PATH] = ACTION
        assert (await soon(source)).kind is NoticeKind.INTERRUPTION
        assert service.tokens == 2


@pytest.mark.parametrize("bad", ["<html>", "{}", '{"action": "terminate"}', '{"action": 1, "time": "soon"}'])
async def test_what_is_no_notice_is_passed_over(bad: str) -> None:
    with imds() as service:
        source = a_source(service)
        service.values |= {ACTION_PATH: bad, REBALANCE_PATH: REBALANCE}
        assert (await soon(source)).kind is NoticeKind.REBALANCE
        service.values[ACTION_PATH] = ACTION
        assert (await soon(source)).kind is NoticeKind.INTERRUPTION


async def test_a_service_that_does_not_answer_is_asked_on() -> None:
    with imds() as service:
        service.failing = True
        source = a_source(service)
        waiting = asyncio.create_task(source.next())
        await until(lambda: service.tokens_asked >= 3)
        assert not waiting.done()
        service.values[ACTION_PATH] = ACTION
        service.failing = False
        async with asyncio.timeout(10):
            assert (await waiting).kind is NoticeKind.INTERRUPTION


def test_scheduled_events_that_are_over_are_none() -> None:
    (event,) = meaning(EVENTS_PATH, EVENT.encode(), NOW)
    assert (event.kind, event.deadline) == (NoticeKind.MAINTENANCE, datetime(2026, 3, 3, 9, 0, 43, tzinfo=UTC))
    assert "system-reboot" in event.reason
    for state in ("completed", "canceled"):
        assert meaning(EVENTS_PATH, EVENT.replace("active", state).encode(), NOW) == []
    assert meaning(EVENTS_PATH, b"[]", NOW) == []
