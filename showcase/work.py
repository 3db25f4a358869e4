"""The team at work: it submits by day, changes its mind now and then, and is still at it when someone looks."""

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
"""Between two words of how far it is, in the cluster's time."""

ONE_MORE_S = 240.0
"""Between two short submissions while someone looks, on the average."""

PREPARED_S = 8000.0
"""So long before the end the last submissions begin."""


class Work:
    """`by_day` goes on until it is cancelled; `catch_up` returns when the cluster's clock shows the time of the wall."""

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
        """Of one in four: notes, a pause, an end, an archive."""
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
            return  # over already, or not yet

    async def catch_up(self, days: int, tell: Callable[[int, int, int], None]) -> None:
        """Let time jump until it has caught up; the last hours prepare what is looked at."""
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
        """The wall's clock goes on meanwhile, though only by what the jump takes."""
        wall, clock = SystemClock(), self._cluster.clock
        left_s = (wall.now() - clock.now()).total_seconds() - before_s
        await asyncio.sleep(max(0.0, left_s))

    def _interrupt_one(self, before_s: float) -> None:
        """A machine that trains is taken back shortly before someone looks, so that a resume is to be seen."""
        living = [each for each in self._cluster.cloud.living() if each.observed is Observed.RUNNING]
        if before_s < 1000.0 and living:
            self._cluster.interrupt(living[0])

    async def while_looked_at(self) -> None:
        """Short ones, so that there is always something that begins and ends."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / ONE_MORE_S))
            drawn = draw(self._rng, len(self.submitted))
            data = {**drawn.config["data"], "epoch_s": self._rng.uniform(4.0, 12.0), "save_s": 2.0, "load_s": 5.0}
            config = {**drawn.config, "data": data}
            if config["resources"]["slots_per_trial"] <= 4:
                self.submitted.append(await self._served.submit(replace(drawn, config=config)))
