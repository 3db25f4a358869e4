"""What a machine hears of its end from a metadata server of Google Cloud."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest

from resolute.clock import SystemClock
from resolute.wire.agent_link import Notice
from resolute.wire.states import NoticeKind
from resolute_provisioner.clouds.gcp.notices import GceNotices
from support.gce_metadata import FakeMetadata
from support.provisioner_worlds import until


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    server = FakeMetadata({})
    yield server
    server.close()


def source_of(metadata: FakeMetadata) -> GceNotices:
    return GceNotices(clock=SystemClock(), url=metadata.url, error_period_s=0.05)


async def until_held_back(metadata: FakeMetadata, name: str, times: int = 1) -> None:
    """Until the value was asked for so often with an answer only at its change."""

    async def asked() -> bool:
        return len([each for each in metadata.asked if name in each and "wait_for_change" in each]) >= times

    await until(asked, what=f"{name} is watched")


async def noticed(source: GceNotices) -> Notice:
    return await asyncio.wait_for(source.next(), 30)


async def test_a_preemption_is_heard_of_without_a_poll_and_told_once(metadata: FakeMetadata) -> None:
    source = source_of(metadata)
    waiting = asyncio.create_task(noticed(source))
    await until_held_back(metadata, "preempted")
    await until_held_back(metadata, "maintenance")
    metadata.set("instance/preempted", "TRUE")
    notice = await waiting
    assert notice.kind is NoticeKind.INTERRUPTION and "spot" in notice.reason
    assert notice.deadline == notice.at + timedelta(seconds=30)
    # One question for each value as it stood, one held back for each: the change was the answer to one of these.
    assert len(metadata.asked) == 4

    again = asyncio.create_task(noticed(source))
    await until_held_back(metadata, "preempted", 2)
    assert not again.done()
    metadata.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    assert (await again).kind is NoticeKind.MAINTENANCE


async def test_what_was_announced_before_the_first_question_is_told(metadata: FakeMetadata) -> None:
    metadata.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    metadata.set("instance/preempted", "TRUE")
    source = source_of(metadata)
    assert {(await noticed(source)).kind for _ in range(2)} == {NoticeKind.INTERRUPTION, NoticeKind.MAINTENANCE}


async def test_an_event_that_was_called_off_is_told_when_it_comes_again(metadata: FakeMetadata) -> None:
    source = source_of(metadata)
    metadata.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    assert (await noticed(source)).kind is NoticeKind.MAINTENANCE
    again = asyncio.create_task(noticed(source))
    await until_held_back(metadata, "maintenance", 1)
    metadata.set("instance/maintenance-event", "NONE")
    await until_held_back(metadata, "maintenance", 2)
    metadata.set("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE")
    assert (await again).kind is NoticeKind.MAINTENANCE


async def test_a_move_to_another_host_is_no_end(metadata: FakeMetadata) -> None:
    source = source_of(metadata)
    metadata.set("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    waiting = asyncio.create_task(noticed(source))
    await until_held_back(metadata, "maintenance")
    metadata.set("instance/preempted", "TRUE")
    assert (await waiting).kind is NoticeKind.INTERRUPTION


async def test_a_server_that_is_away_is_complained_about_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    gone = FakeMetadata({})
    gone.close()
    source = GceNotices(clock=SystemClock(), url=gone.url, error_period_s=0.01)
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError):
        await asyncio.wait_for(source.next(), 0.5)
    assert len([each for each in caplog.records if "instance/preempted" in each.message]) == 1
    back = FakeMetadata(
        {"instance/preempted": "TRUE"}, address=("127.0.0.1", int(gone.url.split(":")[2].split("/")[0]))
    )
    try:
        assert (await noticed(source)).kind is NoticeKind.INTERRUPTION
    finally:
        back.close()
