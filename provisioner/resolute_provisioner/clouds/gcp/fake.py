"""Google Cloud for the conformance suite: the real client on the fake Compute Engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.auth.credentials import AnonymousCredentials

from resolute.clock import SystemClock
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.gcp.fake_compute_engine import PROJECT, FailedOperation, FakeComputeEngine, HttpError
from resolute_provisioner.clouds.gcp.request import GcpSettings
from resolute_provisioner.model import Offer, RefusalKind

if TYPE_CHECKING:  # its import takes seconds: Google's client has all services
    from resolute_provisioner.clouds.gcp.cloud import GcpCloud

REFUSALS = {
    RefusalKind.NO_CAPACITY: FailedOperation(code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", status=503),
    RefusalKind.QUOTA_EXCEEDED: FailedOperation(code="QUOTA_EXCEEDED", status=403),
    RefusalKind.BAD_REQUEST: HttpError(status=400, reason="invalid", message="Invalid value for field 'resource'"),
    RefusalKind.TRANSIENT: HttpError(status=503, reason="backendError", message="try again"),
    RefusalKind.THROTTLED: HttpError(status=403, reason="rateLimitExceeded", message="rate limit exceeded"),
}
"""The error of each class of refusal."""


def gcp_settings(**changes: Any) -> GcpSettings:
    return GcpSettings(
        **{
            "project": PROJECT,
            "startup_script": lambda boot: f"#!/bin/sh\n# {boot.agent_id}\n",
            "source_image": "projects/images/global/images/family/some",
            "operation_poll_s": 0.02,
            **changes,
        }
    )


def gcp_cloud(engine: FakeComputeEngine, *, zones: tuple[str, ...] = ("zone-a",), **changes: Any) -> GcpCloud:
    from resolute_provisioner.clouds.gcp.cloud import GcpCloud

    return GcpCloud(
        gcp_settings(**changes),
        clock=SystemClock(),
        zones=zones,
        endpoint=engine.url,
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
    )


class GcpWorld:
    """A `World` of the conformance suite."""

    def __init__(self, refusals: tuple[RefusalKind, ...] = ()) -> None:
        self.engine = FakeComputeEngine()
        self.engine.scripts.inserts.extend(REFUSALS[kind] for kind in refusals)
        self._clouds: list[GcpCloud] = []
        self.cloud: Cloud = self.reopened()

    def reopened(self) -> Cloud:
        self._clouds.append(gcp_cloud(self.engine))
        return self._clouds[-1]

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None:
        name = provider_id.split("/")[1]
        if notice_s is None:
            self.engine.fail_host(name)
        else:
            self.engine.preempt(name, notice_s=notice_s)

    def machine_is_there(self, provider_id: str) -> bool:
        return provider_id in self.engine.there()

    def close(self) -> None:
        for cloud in self._clouds:
            cloud.close()
        self.engine.close()
        assert self.engine.violations == []


@contextmanager
def open_world(directory: Path, offer: Offer, refusals: tuple[RefusalKind, ...]) -> Iterator[GcpWorld]:
    """A world for the conformance suite."""
    world = GcpWorld(refusals)
    try:
        yield world
    finally:
        world.close()
