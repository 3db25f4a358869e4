"""The team's activity: submissions by day, occasional changes, and live work at the present."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

from resolute.clock import SystemClock
from resolute.errors import ResoluteError
from resolute_master.domain.commands import (
    ArchiveExperiment,
    CancelExperiment,
    KillExperiment,
    PatchExperiment,
    PauseExperiment,
)
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import ExperimentId
from resolute_provisioner.model import Observed
from showcase.cluster import Cluster
from showcase.serving import Served
from showcase.team import NOTES, draw, shown_at_last, waits_s

LOOK_S = 6 * 3600.0
"""Interval of progress messages, in the cluster's time."""

ONE_MORE_S = 240.0
"""Mean interval of short submissions in real time."""

PREPARED_S = 8000.0
"""Time before the present at which the last submissions begin."""


class Work:
    """`by_day` runs until it is cancelled; `catch_up` returns when the cluster's clock reaches the present."""

    def __init__(self, cluster: Cluster, served: Served, rng: random.Random) -> None:
        self._cluster = cluster
        self._served = served
        self._rng = rng
        self.submitted: list[ExperimentId] = []

    async def by_day(self) -> None:
        while True:
            await asyncio.sleep(waits_s(self._rng, self._cluster.clock.now()))
            id_ = await self._served.submit(draw(self._rng, len(self.submitted)))
            self.submitted.append(id_)
            self._cluster.spawn(self._change_of_mind(id_))

    async def _change_of_mind(self, id_: ExperimentId) -> None:
        """Changes a quarter of the experiments: notes, a pause, an end, an archive."""
        submit, draw_ = self._cluster.master.engine.submit, self._rng.random()
        await asyncio.sleep(self._rng.uniform(600.0, 6 * 3600.0))
        try:
            if draw_ < 0.08:
                await submit(PatchExperiment(experiment=id_, notes=self._rng.choice(NOTES)))
            elif draw_ < 0.12:
                await submit(CancelExperiment(experiment=id_))
            elif draw_ < 0.14:
                await submit(KillExperiment(experiment=id_))
            elif draw_ < 0.15:
                await submit(PauseExperiment(experiment=id_))
            elif draw_ < 0.24:
                await asyncio.sleep(10 * 86_400.0)
                await submit(ArchiveExperiment(experiment=id_, archived=True))
        except ResoluteError:
            return  # It has ended already, or has not started.

    async def catch_up(self, days: int, tell: Callable[[int, int, int], None]) -> None:
        """Advances virtual time to the present. The last hours create the live experiments."""
        clock, wall = self._cluster.clock, SystemClock()
        begin = clock.now()
        while clock.now() < wall.now() - timedelta(seconds=PREPARED_S):
            left_s = (wall.now() - clock.now()).total_seconds() - PREPARED_S
            await asyncio.sleep(min(LOOK_S, max(1.0, left_s)))
            tell((clock.now() - begin).days, days, len(self.submitted))
            if (failure := self._cluster.failure()) is not None:
                raise failure
        for before_s, submission in shown_at_last(self._rng):
            await self._until(before_s)
            self.submitted.append(await self._served.submit(submission))
            self._interrupt_one(before_s)
        await self._until(0.0)
        tell(days, days, len(self.submitted))

    async def _until(self, before_s: float) -> None:
        """The real clock advances by the duration of the jump only."""
        wall, clock = SystemClock(), self._cluster.clock
        left_s = (wall.now() - clock.now()).total_seconds() - before_s
        await asyncio.sleep(max(0.0, left_s))

    def _interrupt_one(self, before_s: float) -> None:
        """Interrupts a training machine shortly before the present, so that the pages show a resume."""
        living = [each for each in self._cluster.cloud.living() if each.observed is Observed.RUNNING]
        if before_s < 1000.0 and living:
            self._cluster.interrupt(living[0])

    async def while_looked_at(self) -> None:
        """Submits short experiments, so that some always start and end."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / ONE_MORE_S))
            drawn = draw(self._rng, len(self.submitted))
            data = {**drawn.config["data"], "epoch_s": self._rng.uniform(4.0, 12.0), "save_s": 2.0, "load_s": 5.0}
            config = {**drawn.config, "data": data}
            if config["resources"]["slots_per_trial"] <= 4:
                self.submitted.append(await self._served.submit(replace(drawn, config=config)))
