"""The cluster: one master with production code, and a simulated cloud with its machines."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any

from resolute.clock import Clock, LoopClock
from resolute.config import MasterConfig
from resolute.errors import Unavailable
from resolute.ids import IdSource, SeededIds
from resolute.wire.states import NoticeKind
from resolute_agent.link import LinkClosed
from resolute_agent.runtimes.scripted import ScriptedTask
from resolute_master.domain.change import Change
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine.cycle import RuleFault
from resolute_master.pools.policies import pool_policies
from resolute_master.store.base import Store
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import CloudCapabilities, CloudInstance
from resolute_provisioner.clouds.fake import GONE_LISTED_S, FakeBehaviour, FakeCloud, FakeMachine
from resolute_provisioner.model import Market, Observed, Offer
from resolute_sim.fault_plan import NO_FAULTS
from resolute_sim.link import Link
from resolute_sim.machine import SimulatedMachine, notice_of
from resolute_sim.master import JOIN_TOKEN, SimulatedMaster, UnansweredCloud
from showcase.setting import FIXED_MACHINES, SPOT_PRICES
from showcase.training import Storage, Training

log = logging.getLogger(__name__)

HEARTBEAT_S = 900.0
JUMPING_POLL_S, POLL_S = 600.0, 10.0
"""Interval of polls. Polls every few seconds would be most of the work of three simulated months."""

SAFETY_PASS_S = 6 * 3600.0
"""Interval of the engine's periodic pass, on which nothing here depends."""

PRICES_ASKED_EVERY_S = 1800.0
PRICE_GAP_S = 5 * 3600.0
"""Mean time between two changes of one spot price."""

LOSSES_PER_HOUR = 0.035
"""Interruptions of one spot machine per hour; large machines are interrupted twice as often."""

NOTICED_SHARE, NOTICE_S = 0.85, 120.0

BEHAVIOUR = FakeBehaviour(
    launch_latency_s=(0.8, 4.0),
    pending_s=(15.0, 45.0),
    boot_s=(70.0, 190.0),
    ending_s=(20.0, 60.0),
    no_capacity_rate=0.06,
    dead_boot_rate=0.004,
)


class PatientCloud(FakeCloud):
    """A cloud with a longer poll interval that forgets machines some time after their end."""

    @property
    def capabilities(self) -> CloudCapabilities:
        jumping = getattr(asyncio.get_running_loop(), "jumping", False)
        poll_s = JUMPING_POLL_S if jumping else POLL_S
        return CloudCapabilities(name="aws", gives_notice=True, listing_lag_s=0.0, poll_s=poll_s)

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        before = self._clock.now() - timedelta(seconds=2 * GONE_LISTED_S)
        gone = [
            key
            for key, each in self.machines.items()
            if each.observed is Observed.GONE and each.history[-1][0] < before
        ]
        for key in gone:
            del self.machines[key]
        return await super().list(cluster)


class PatientMaster(SimulatedMaster):
    """A master whose machines wait for it for several of its rare heartbeats."""

    def _boot(self, instance: Instance) -> MachineBoot:
        return replace(super()._boot(instance), master_timeout_s=8 * HEARTBEAT_S)


class Cluster:
    """`await start()` inside of the loop. `restless()` creates market events until it is cancelled."""

    def __init__(self, *, config: MasterConfig, store: Store, seed: int, begin: datetime) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.rng = random.Random(seed)
        self.fault_plan = NO_FAULTS
        self.ids: IdSource = SeededIds(self.rng.getrandbits(64))
        self.clock: Clock = LoopClock(begin, loop)
        self.storage = Storage()
        self.pools = pool_policies(config)
        self.machines: dict[str, SimulatedMachine] = {}
        self.cloud = PatientCloud(
            clock=self.clock, rng=random.Random(self.rng.getrandbits(64)), behaviour=BEHAVIOUR, host=self
        )
        self.master = PatientMaster(
            store=store,
            clock=self.clock,
            seed=self.rng.getrandbits(64),
            pools=self.pools,
            cloud=UnansweredCloud(self.cloud),
            heartbeat_s=HEARTBEAT_S,
            observer=self,
            prices=self.cloud,
            prices_asked_every_s=PRICES_ASKED_EVERY_S,
            retain_snapshots=2,
            safety_pass_s=SAFETY_PASS_S,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for offer in self._spot_offers():
            self.cloud.move_price(offer.offer_id, SPOT_PRICES[offer.instance_type])
        await self.master.start()
        for number, (pool, slots) in enumerate(FIXED_MACHINES):
            boot = MachineBoot(
                master_url="http://showcase",
                agent_id=f"desk-{number + 1}",
                resource_pool=pool,
                instance_id="",
                join_token=JOIN_TOKEN,
                artificial_slots=slots,
            )
            self._boot(boot.agent_id, boot, provider_id="")

    def _spot_offers(self) -> list[Offer]:
        policies: Mapping[PoolName, Any] = self.pools
        offers = (offer for each in policies.values() if each.scaling is not None for offer in each.scaling.offers)
        return [offer for offer in offers if offer.market is Market.SPOT]

    async def close(self) -> None:
        await self.master.kill()
        for machine in tuple(self.machines.values()):
            await machine.end()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ----------------------------------------------------------------------------------------------- interruptions

    async def restless(self) -> None:
        """The spot market: price changes and interruptions."""
        await asyncio.gather(self._move_prices(), self._take_back())

    async def _move_prices(self) -> None:
        offers = self._spot_offers()
        while True:
            await asyncio.sleep(self.rng.expovariate(len(offers) / PRICE_GAP_S))
            offer = self.rng.choice(offers)
            price = SPOT_PRICES[offer.instance_type] * self.rng.uniform(0.8, 1.35)
            self.cloud.move_price(offer.offer_id, round(price, 4))

    async def _take_back(self) -> None:
        step_s = 600.0
        while True:
            await asyncio.sleep(step_s)
            for machine in self.cloud.living():
                offer = machine.request.offer
                rate = LOSSES_PER_HOUR * (2 if offer.slots == 8 else 1) if offer.market is Market.SPOT else 0.0
                if machine.observed is Observed.RUNNING and self.rng.random() < rate * step_s / 3600.0:
                    self.interrupt(machine)

    def interrupt(self, machine: FakeMachine) -> None:
        noticed = self.rng.random() < NOTICED_SHARE
        self.cloud.interrupt(machine.provider_id, notice_s=NOTICE_S if noticed else None)

    # ------------------------------------------------------------------------------------------------------ machines

    def booted(self, machine: FakeMachine) -> None:
        self._boot(machine.provider_id, machine.request.boot, provider_id=machine.provider_id)

    def _boot(self, name: str, boot: MachineBoot, *, provider_id: str) -> None:
        async def program(task: ScriptedTask) -> int:
            return await Training(self, simulated, task)()

        simulated = SimulatedMachine(
            boot=boot,
            clock=self.clock,
            seed=self.rng.getrandbits(64),
            program=program,
            network=self,
            provider_id=provider_id,
        )
        self.machines[name] = simulated
        simulated.boot()

    def noticed(self, machine: FakeMachine, deadline: datetime) -> None:
        simulated = self.machines.get(machine.provider_id)
        if simulated is not None:
            simulated.notify(notice_of(NoticeKind.INTERRUPTION, deadline, self.clock.now()))

    def ended(self, machine: FakeMachine) -> None:
        simulated = self.machines.pop(machine.provider_id, None)
        if simulated is not None:
            simulated.dead = True
            if simulated.link is not None:
                simulated.link.cut(agent_sees=False)
            self.spawn(simulated.end())

    def powered_off(self, machine: SimulatedMachine, reason: str) -> None:
        self.cloud.power_off(machine.provider_id)

    def connect(self, machine: SimulatedMachine) -> Link:
        if self.master.dead.is_set():
            raise LinkClosed("the master has ended")
        link = Link(self.rng)
        self.master.serve(self.master.hub.serve(link.master_end))
        return link

    def master_for(self, machine: SimulatedMachine) -> SimulatedMaster:
        if self.master.dead.is_set():
            raise Unavailable("the master has ended")
        return self.master

    # --------------------------------------------------------------------------------------------- as parts report it

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def violate(self, rule: str, text: str) -> None:
        log.error("%s: %s", rule, text)

    def committed(self, master: SimulatedMaster, change: Change) -> None:
        return

    def failed(self, fault: RuleFault) -> None:
        log.error("a rule has failed: %s", fault)

    def failure(self) -> BaseException | None:
        """The error of a failed part, without which the cluster cannot run."""
        found: Collection[BaseException | None] = [
            self.master.failure(),
            *(m.failure() for m in self.machines.values()),
        ]
        return next((each for each in found if each is not None), None)
