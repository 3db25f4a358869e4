"""Interruptions at given training steps: detected here, carried out by the cloud."""

from __future__ import annotations

import asyncio
import logging

from resolute.errors import NotFound
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store
from resolute_provisioner.clouds.driver import Interrupts, StepInterruption
from resolute_provisioner.model import Intent

log = logging.getLogger(__name__)


class InterruptionsBySteps:
    """Interrupts the pool's n-th launched machine when a trial there has done a given number of steps.

    The machines' numbers, and which interruptions have happened, are read from the instances, so a restart of the master
    counts on and repeats none.
    """

    def __init__(
        self, engine: Engine, store: Store, cloud: Interrupts, pool: PoolName, script: tuple[StepInterruption, ...]
    ) -> None:
        self._engine = engine
        self._store = store
        self._cloud = cloud
        self._pool = pool
        self._script = script
        self._launched: list[str] = []
        self._due: asyncio.Queue[tuple[str, float | None]] = asyncio.Queue()
        self._ordered: set[str] = set()

    def _look(self, change: Change) -> None:
        for entity in change.upserts:
            if isinstance(entity, Instance) and entity.pool == self._pool and entity.launched_at is not None:
                if entity.id not in self._launched:
                    self._launched.append(entity.id)
            elif isinstance(entity, Trial):
                self._check(entity)

    def _check(self, trial: Trial) -> None:
        for allocation in self._engine.state.find(Allocation, "allocations_of_task", trial.task_id):
            agents = {c.agent for c in allocation.containers}
            for entry in self._script:
                if entry.instance > len(self._launched) or trial.steps_completed < entry.after_steps:
                    continue
                id_ = self._launched[entry.instance - 1]
                instance = self._engine.state.get(Instance, id_)
                if instance is not None and instance.agent_id in agents and id_ not in self._ordered:
                    self._ordered.add(id_)
                    self._due.put_nowait((id_, entry.notice_s))

    async def _begin(self) -> None:
        stored = await self._store.instances()
        known = {i.id: i for i in (*stored, *self._engine.state.all(Instance)) if i.pool == self._pool}
        launched = [(i.launched_at, i.id) for i in known.values() if i.launched_at is not None]
        self._launched = [id_ for _, id_ in sorted(launched)]
        self._ordered = {i.id for i in known.values() if i.notice is not None or i.intent is Intent.STOP}
        self._engine.on_commit(self._look)
        for trial in self._engine.state.all(Trial):
            self._check(trial)

    async def run(self) -> None:
        if self._script:
            await self._begin()
        while True:
            instance, notice_s = await self._due.get()
            try:
                await self._cloud.interrupt(instance, notice_s=notice_s, reason="scripted interruption")
            except NotFound:
                # It ended before the order reached it: a master that was killed may not have recorded its notice.
                log.info("scripted interruption of machine %s: it has already ended", instance)
