"""EC2 made of moto, as a world of the conformance suite, and what its tests share. Needs moto, which only tests install."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from resolute_provisioner.bootstrap import AgentWheel, HostSetup
from resolute_provisioner.clouds.aws.boot import METADATA
from resolute_provisioner.clouds.aws.calls import Ec2
from resolute_provisioner.clouds.aws.cloud import AwsCloud
from resolute_provisioner.clouds.aws.fake_ec2 import CREDENTIALS, IMAGE, REGION, Ec2Front, Refuse, ec2_front
from resolute_provisioner.clouds.aws.request import AwsSettings
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.model import Offer, RefusalKind

HOST = HostSetup(metadata=METADATA, wheel=AgentWheel(name="resolute_ml-1.0-py3-none-any.whl", sha256="0f" * 32))

REFUSALS = {
    RefusalKind.NO_CAPACITY: Refuse("InsufficientInstanceCapacity", 500),
    RefusalKind.QUOTA_EXCEEDED: Refuse("VcpuLimitExceeded"),
    RefusalKind.BAD_REQUEST: Refuse("InvalidAMIID.NotFound"),
    RefusalKind.TRANSIENT: Refuse("Unavailable", 503),
    RefusalKind.THROTTLED: Refuse("RequestLimitExceeded", 503),
}


def aws_settings(**changes: Any) -> AwsSettings:
    return AwsSettings(**{"region": REGION, "image_id": IMAGE, "host": HOST, "key_name": "key", **changes})


class AwsWorld:
    def __init__(self, front: Ec2Front, refusals: tuple[RefusalKind, ...] = (), **changes: Any) -> None:
        self.front = front
        self._settings = aws_settings(**changes)
        self.cloud: Cloud = self.reopened()
        front.fail("RunInstances", *(REFUSALS[kind] for kind in refusals))

    def reopened(self) -> Cloud:
        return AwsCloud(self._settings, Ec2(REGION, endpoint_url=self.front.url))

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None:
        await asyncio.sleep(notice_s or 0.0)
        self.front.interrupt(provider_id)

    def machine_is_there(self, provider_id: str) -> bool:
        return self.front.lives(provider_id)


@contextmanager
def open_world(directory: Path, offer: Offer, refusals: tuple[RefusalKind, ...]) -> Iterator[AwsWorld]:
    """A world for the conformance suite."""
    with mock.patch.dict(os.environ, CREDENTIALS), ec2_front() as front:
        yield AwsWorld(front, refusals)
