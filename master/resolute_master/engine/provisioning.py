"""The engine's side of the provisioner: it sends recorded intents and receives the cloud's reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from resolute_master.domain.agent import Agent
from resolute_master.domain.change import Change
from resolute_master.domain.commands import Command, RecordLaunch, RecordObservation, RecordRefusal
from resolute_master.domain.ids import InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import RecordStray
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import LaunchRequest
from resolute_provisioner.model import Offer
from resolute_provisioner.reconcile import (
    CloudCallFailed,
    CloudReport,
    InstanceIntent,
    InstanceLaunched,
    InstanceObserved,
    LaunchRefused,
    StrayFound,
)

log = logging.getLogger(__name__)


class PoolLedger:
    """An `InstanceLedger` over one pool's instances in the engine."""

    def __init__(
        self, engine: Engine, pool: PoolPolicy, *, cluster: str, boot: Callable[[Instance], MachineBoot]
    ) -> None:
        assert pool.scaling is not None
        self._engine = engine
        self._pool = pool
        self._offers = {offer.offer_id: offer for offer in pool.scaling.offers}
        self._cluster = cluster
        self._boot = boot

    async def intents(self) -> Sequence[InstanceIntent]:
        found = self._engine.state.find(Instance, "instances_of_pool", self._pool.name)
        return [self._intent(instance) for instance in found if not instance.over]

    def _intent(self, instance: Instance) -> InstanceIntent:
        return InstanceIntent(
            request=LaunchRequest(
                token=instance.token,
                instance_id=instance.id,
                cluster=self._cluster,
                pool=self._pool.name,
                offer=self._offer(instance),
                boot=self._boot(instance),
            ),
            intent=instance.intent,
            observed=instance.observed,
            provider_id=instance.provider_id,
            launched_at=instance.launched_at,
            paid_from=instance.paid_from,
        )

    def _offer(self, instance: Instance) -> Offer:
        """The offer of a machine: as launched, or that of the configuration for a machine without a stored offer."""
        return instance.offer or self._offers[instance.offer_id]

    async def report(self, report: CloudReport) -> None:
        command = self._command(report)
        if command is not None:
            await self._engine.submit(command)

    def _command(self, report: CloudReport) -> Command | None:
        match report:
            case InstanceLaunched():
                return RecordLaunch(
                    instance=InstanceId(report.instance_id),
                    provider_id=report.provider_id,
                    observed=report.observed,
                    paid_from=report.paid_from,
                )
            case LaunchRefused():
                return RecordRefusal(instance=InstanceId(report.instance_id), kind=report.kind, message=report.message)
            case InstanceObserved():
                return RecordObservation(
                    instance=InstanceId(report.instance_id),
                    provider_id=report.provider_id,
                    observed=report.observed,
                    paid_from=report.paid_from,
                    paid_until=report.paid_until,
                    message=report.message,
                    refusal=report.refusal,
                )
            case StrayFound():
                return RecordStray(
                    pool=PoolName(self._pool.name),
                    provider_id=report.provider_id,
                    token=report.token,
                    instance_id=InstanceId(report.instance_id) if report.instance_id else None,
                    observed=report.observed,
                    paid_from=report.paid_from,
                )
            case CloudCallFailed():
                log.warning(
                    "cloud of pool %s: %s %s: %s", self._pool.name, report.call, report.instance_id, report.message
                )
                return None
            case _:
                assert_never(report)


def about_machines(change: Change) -> bool:
    """Whether a change concerns the reconciler: a machine's row has changed, or the link of an agent went down, perhaps with its
    machine."""
    return any(
        isinstance(entity, Instance) or (isinstance(entity, Agent) and not entity.connected)
        for entity in change.upserts
    )
