"""What `det job update-batch` reads."""

from __future__ import annotations

import pytest

from resolute.wire.rest.jobs import QueueControl
from resolute_cli.command import UsageError
from resolute_cli.nouns.job import parse_operation


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("j.priority=3", QueueControl(job_id="j", priority=3)),
        ("j.weight=1.5", QueueControl(job_id="j", weight=1.5)),
        ("j.resource-pool=a.b", QueueControl(job_id="j", resource_pool="a.b")),
        ("j.resource_pool=a", QueueControl(job_id="j", resource_pool="a")),
        ("j.ahead-of=k", QueueControl(job_id="j", ahead_of="k")),
        ("j.behind_of=k", QueueControl(job_id="j", behind_of="k")),
    ],
)
def test_operations(text: str, change: QueueControl) -> None:
    assert parse_operation(text) == change


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("j", "write it as <jobID>.<operation>=<value>, for instance j.priority=7"),
        ("j.priority", "write it as"),
        ("j.priority=", "write it as"),
        (".priority=1", "write it as"),
        ("j.priority=high", "priority takes a number, not 'high'"),
        ("j.colour=red", "unknown operation 'colour'; use priority, weight, resource-pool, ahead-of, behind-of"),
    ],
)
def test_what_cannot_be_read(text: str, advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        parse_operation(text)
