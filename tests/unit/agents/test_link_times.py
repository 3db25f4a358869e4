"""Times on the agent link: the master takes what has a value in UTC, and closes the link on anything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from resolute.wire.agent_link import ContainerChanged, Heartbeat, Hello, LogBatch, Notice
from resolute_master.agents.session import Closed
from resolute_master.agents.websocket import decode

EXTREME = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


def report(at: str) -> dict[str, Any]:
    return {"container_id": "c", "allocation_id": "a", "state": "RUNNING", "sequence": 1, "at": at}


def frames(at: str) -> dict[str, dict[str, Any]]:
    line = {
        "task_id": "t",
        "allocation_id": "a",
        "container_id": "c",
        "stdtype": "stdout",
        "offset": 0,
        "at": at,
        "log": "x",
    }
    hello = {"protocol": 1, "version": "0", "agent_id": "a", "resource_pool": "p", "incarnation": "i", "address": ""}
    return {
        "Hello": {**hello, "devices": [], "containers": [report(at)]},
        "ContainerChanged": {"report": report(at)},
        "LogBatch": {"batch": 1, "lines": [line]},
        "Heartbeat": {"at": at},
        "Notice": {"kind": "interruption", "deadline": at, "reason": "r", "at": "2024-05-01T12:00:00Z"},
    }


def received(kind: str, at: str) -> Any:
    return decode(json.dumps({"type": kind, "body": frames(at)[kind]}))


@pytest.mark.parametrize("at", EXTREME)
@pytest.mark.parametrize("kind", ["Hello", "ContainerChanged", "LogBatch", "Heartbeat", "Notice"])
def test_an_extreme_time_ends_the_link(kind: str, at: str) -> None:
    with pytest.raises(Closed, match=r"not a message of the agent link: .*(at|deadline): "):
        received(kind, at)


@pytest.mark.parametrize("at", ["2024-05-01T14:00:00+02:00", "2024-05-01T12:00:00Z"])
def test_a_time_with_an_offset_is_taken_as_utc(at: str) -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    hello, changed, batch, heartbeat, notice = (received(kind, at) for kind in frames(at))
    assert isinstance(hello, Hello) and isinstance(changed, ContainerChanged) and isinstance(batch, LogBatch)
    assert isinstance(heartbeat, Heartbeat) and isinstance(notice, Notice)
    for moment in (hello.containers[0].at, changed.report.at, batch.lines[0].at, heartbeat.at, notice.deadline):
        assert moment == noon and moment.tzinfo is UTC
