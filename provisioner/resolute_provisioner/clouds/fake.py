"""A cloud in memory, under the loop's time: programmable delays, refusals, losses, lost replies and stale lists.

For the simulator and for tests of everything that uses the cloud port. It starts no thread and no process; a `MachineHost`
defines what runs on a machine. Its bill is separate from the answers of the port, so that a test can count payments by mistake.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from resolute.clock import Clock
from resolute_provisioner.clouds.base import (
    CLOUD_ERRORS,
    BadRequest,
    CloudCapabilities,
    CloudInstance,
    Launched,
    LaunchRequest,
    NoCapacity,
    Throttled,
    Transient,
)
from resolute_provisioner.model import Observed, Offer, RefusalKind
from resolute_provisioner.prices import LivePrice

GONE_LISTED_S = 3600.0
"""Time for which an ended machine stays in the list."""

Range = tuple[float, float]
"""The least and the most of a duration, drawn evenly."""


class LostReply(StrEnum):
    """Scripted beside `RefusalKind`: whether the machine of a launch without an answer exists."""

    LAUNCHED = "launched"
    NOT_LAUNCHED = "not_launched"


ScriptedLaunch = RefusalKind | LostReply | None
"""Result of the next launch; None is a launch as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeBehaviour:
    """Behaviour of the cloud. Rates are probabilities of one call or, for losses, per machine and hour."""

    launch_latency_s: Range = (0.2, 2.0)
    pending_s: Range = (5.0, 20.0)
    """Time from the launch to RUNNING, when the bill starts."""
    boot_s: Range = (20.0, 60.0)
    """Time from RUNNING to the start of the machine's agent."""
    ending_s: Range = (1.0, 10.0)
    capacity: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of running machines of an offer; unnamed offers are unlimited."""
    no_capacity_rate: float = 0.0
    transient_rate: float = 0.0
    """Probability of no answer and no machine."""
    lost_reply_rate: float = 0.0
    """Probability of no answer, but a machine."""
    repeat_rate: float = 0.0
    """Probability that a launch arrives once more, whatever the result of the first, as from a client that repeats a request."""
    repeat_s: Range = (2.0, 120.0)
    """Delay of the repeated launch."""
    throttle_rate: float = 0.0
    """Probability that a launch or a list is refused because there were too many."""
    late_refusal_rate: float = 0.0
    """Probability that a granted machine ends for lack of capacity before it runs."""
    capacity_of_each: int | None = None
    """Maximum number of running machines of any offer that `capacity` does not name."""
    dead_boot_rate: float = 0.0
    """Probability that a machine runs, is paid for, and never starts its agent."""
    losses_per_hour: float = 0.0
    noticed_share: float = 1.0
    """Share of the losses that are announced."""
    notice_s: float = 120.0
    list_failure_rate: float = 0.0
    listing_lag_s: float = 0.0
    """Maximum age of the state that a list may show."""
    omission_rate: float = 0.0
    """The probability that a running machine is missing in a list: an error that the contract does not allow."""
    honours_tokens: bool = True
    """Whether tokens are honoured. False violates the contract: every call gives another machine."""


@dataclass(slots=True, kw_only=True)
class FakeMachine:
    """One machine, for hosts and tests."""

    provider_id: str
    request: LaunchRequest
    requested_at: datetime
    history: list[tuple[datetime, Observed]]
    paid_from: datetime | None = None
    paid_until: datetime | None = None
    notice_deadline: datetime | None = None
    message: str = ""
    refusal: RefusalKind | None = None

    @property
    def observed(self) -> Observed:
        return self.history[-1][1]

    def observed_at(self, moment: datetime) -> Observed | None:
        """Its state at that time; None before it was requested."""
        states = [state for at, state in self.history if at <= moment]
        return states[-1] if states else None


class MachineHost(Protocol):
    """The programs on the machines. Called inside the loop; must not block."""

    def booted(self, machine: FakeMachine) -> None:
        """The machine's agent may start now."""
        ...

    def noticed(self, machine: FakeMachine, deadline: datetime) -> None:
        """The machine will be reclaimed at the deadline, with a notice."""
        ...

    def ended(self, machine: FakeMachine) -> None:
        """All programs on the machine have ended."""
        ...


class EmptyHost:
    """Machines on which nothing runs."""

    def booted(self, machine: FakeMachine) -> None:
        return

    def noticed(self, machine: FakeMachine, deadline: datetime) -> None:
        return

    def ended(self, machine: FakeMachine) -> None:
        return


@dataclass(slots=True, kw_only=True)
class BillLine:
    provider_id: str
    token: str
    instance_id: str
    offer_id: str
    paid_from: datetime
    prices: list[tuple[datetime, float]]
    """The hourly prices with their start times; the first since `paid_from`."""
    paid_until: datetime | None = None

    @property
    def price_per_hour(self) -> float:
        """The last price."""
        return self.prices[-1][1]

    def cost(self, now: datetime) -> float:
        ends = [*(since for since, _ in self.prices[1:]), self.paid_until or now]
        stretches = zip(self.prices, ends, strict=True)
        return sum(price * (end - since).total_seconds() / 3600.0 for (since, price), end in stretches)


class Bill:
    """The bill of the account, machine by machine. It depends only on the starts and ends of machines and on the market's
    prices."""

    def __init__(self) -> None:
        self.lines: list[BillLine] = []

    def start(self, machine: FakeMachine, at: datetime, price_per_hour: float) -> None:
        request = machine.request
        line = BillLine(
            provider_id=machine.provider_id,
            token=request.token,
            instance_id=request.instance_id,
            offer_id=request.offer.offer_id,
            paid_from=at,
            prices=[(at, price_per_hour)],
        )
        self.lines.append(line)

    def reprice(self, offer_id: str, at: datetime, price_per_hour: float) -> None:
        for line in self.running():
            if line.offer_id == offer_id:
                line.prices.append((at, price_per_hour))

    def stop(self, provider_id: str, at: datetime) -> None:
        for line in self.lines:
            if line.provider_id == provider_id and line.paid_until is None:
                line.paid_until = at

    def running(self) -> list[BillLine]:
        """Lines that are still paid for: leaks, if nothing should be running."""
        return [line for line in self.lines if line.paid_until is None]

    def seconds(self, now: datetime) -> float:
        return sum(((line.paid_until or now) - line.paid_from).total_seconds() for line in self.lines)

    def cost(self, now: datetime) -> float:
        return sum(line.cost(now) for line in self.lines)

    def launched_twice(self) -> list[str]:
        """Instance ids for which more than one machine was ever paid."""
        return sorted(name for name, count in Counter(line.instance_id for line in self.lines).items() if count > 1)


class FakeCloud:
    """Implements the `Cloud` contract, as far as its behaviour permits."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        behaviour: FakeBehaviour | None = None,
        host: MachineHost | None = None,
    ) -> None:
        self.behaviour = behaviour or FakeBehaviour()
        self.bill = Bill()
        self.launch_calls: Counter[str] = Counter()
        """Calls of `launch` by token."""
        self.machines: dict[str, FakeMachine] = {}
        self.market: dict[str, list[LivePrice]] = {}
        """Prices of each offer, in order. An offer without an entry has the price of its requests."""
        self._host = host or EmptyHost()
        self._clock = clock
        self._rng = rng
        self._script: deque[ScriptedLaunch] = deque()
        self._launched = 0

    # ------------------------------------------------------------------------------------------------ the port

    @property
    def capabilities(self) -> CloudCapabilities:
        return CloudCapabilities(name="fake", gives_notice=True, listing_lag_s=self.behaviour.listing_lag_s, poll_s=5.0)

    async def launch(self, request: LaunchRequest) -> Launched:
        self.launch_calls[request.token] += 1
        await self._delay(self.behaviour.launch_latency_s)
        if self.behaviour.repeat_rate and self._rng.random() < self.behaviour.repeat_rate:
            asyncio.get_running_loop().call_later(self._draw(self.behaviour.repeat_s), self._arrive_again, request)
        known = self._known(request)
        if known is None:
            scripted = self._script.popleft() if self._script else self._chance()
            if isinstance(scripted, RefusalKind):
                raise CLOUD_ERRORS[scripted](f"{scripted.value} (offer {request.offer.offer_id})")
            if scripted is LostReply.NOT_LAUNCHED:
                raise Transient("the connection was lost")
            known = self._create(request)
            if scripted is LostReply.LAUNCHED:
                raise Transient("the connection was lost")
        return Launched(provider_id=known.provider_id, observed=known.observed, paid_from=known.paid_from)

    async def terminate(self, provider_ids: Collection[str]) -> None:
        await self._delay(self.behaviour.launch_latency_s)
        for provider_id in sorted(provider_ids):
            machine = self.machines.get(provider_id)
            if machine is not None and machine.observed.order < Observed.STOPPING.order:
                self._move(machine, Observed.STOPPING)
                self._later(self._draw(self.behaviour.ending_s), machine, "terminated")

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        await self._delay(self.behaviour.launch_latency_s)
        if self._rng.random() < self.behaviour.list_failure_rate:
            raise Transient("the list could not be read")
        if self._rng.random() < self.behaviour.throttle_rate:
            raise Throttled("too many requests")
        now = self._clock.now()
        moment = now - timedelta(seconds=self._rng.uniform(0.0, self.behaviour.listing_lag_s))
        listed = []
        for machine in sorted(self.machines.values(), key=lambda each: each.provider_id):
            observed = machine.observed_at(moment)
            if machine.request.cluster != cluster or observed is None:
                continue
            if observed is Observed.GONE:
                if (now - machine.history[-1][0]).total_seconds() > GONE_LISTED_S:
                    continue
            elif self._rng.random() < self.behaviour.omission_rate:
                continue
            listed.append(_as_listed(machine, observed, moment))
        return tuple(listed)

    # ----------------------------------------------------------------------------------------- the port of prices

    @property
    def name(self) -> str:
        return "the fake cloud"

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        """Prices that have moved."""
        await self._delay(self.behaviour.launch_latency_s)
        return tuple(self.market[offer.offer_id][-1] for offer in offers if offer.offer_id in self.market)

    # ------------------------------------------------------------------------------------- the hand on the fake

    def script(self, *launches: ScriptedLaunch) -> None:
        """Sets the results of the next launches of new tokens, in order; after them the rates apply again."""
        self._script.extend(launches)

    def move_price(self, offer_id: str, per_hour: float) -> None:
        """Set the price of present and future machines of the offer from now on."""
        now = self._clock.now()
        self.market.setdefault(offer_id, []).append(LivePrice(offer_id=offer_id, per_hour=per_hour, as_of=now))
        self.bill.reprice(offer_id, now, per_hour)

    def interrupt(self, provider_id: str, *, notice_s: float | None) -> None:
        """Reclaim a machine: `notice_s` after a notice, or at once without one."""
        machine = self.machines[provider_id]
        if machine.observed is Observed.GONE or machine.notice_deadline is not None:
            return
        if notice_s is None:
            self._end(machine, "interrupted without notice")
            return
        deadline = self._clock.now() + timedelta(seconds=notice_s)
        machine.notice_deadline = deadline
        self._host.noticed(machine, deadline)
        self._later(notice_s, machine, "interrupted with notice")

    def power_off(self, provider_id: str) -> None:
        """The machine powers itself off, as one does that has lost its master."""
        self._end(self.machines[provider_id], "powered itself off")

    def living(self) -> tuple[FakeMachine, ...]:
        machines = (machine for _, machine in sorted(self.machines.items()))
        return tuple(machine for machine in machines if machine.observed is not Observed.GONE)

    # --------------------------------------------------------------------------------------------- the machinery

    def _known(self, request: LaunchRequest) -> FakeMachine | None:
        for machine in self.machines.values():
            if machine.request.token == request.token:
                return machine if self.behaviour.honours_tokens else None
            if machine.request.instance_id == request.instance_id and self.behaviour.honours_tokens:
                raise BadRequest(f"instance {request.instance_id} was already launched with another token")
        return None

    def _chance(self) -> ScriptedLaunch:
        draw = self._rng.random()
        for rate, outcome in (
            (self.behaviour.no_capacity_rate, RefusalKind.NO_CAPACITY),
            (self.behaviour.transient_rate, LostReply.NOT_LAUNCHED),
            (self.behaviour.lost_reply_rate, LostReply.LAUNCHED),
            (self.behaviour.throttle_rate, RefusalKind.THROTTLED),
        ):
            if draw < rate:
                return outcome
            draw -= rate
        return None

    def _arrive_again(self, request: LaunchRequest) -> None:
        """No caller waits for the answer."""
        with suppress(BadRequest, NoCapacity):
            if self._known(request) is None:
                self._create(request)

    def _create(self, request: LaunchRequest) -> FakeMachine:
        offer_id = request.offer.offer_id
        limit = self.behaviour.capacity.get(offer_id, self.behaviour.capacity_of_each)
        if limit is not None and sum(each.request.offer.offer_id == offer_id for each in self.living()) >= limit:
            raise NoCapacity(f"all {limit} machines of offer {offer_id} are taken")
        now = self._clock.now()
        self._launched += 1
        provider_id = f"fake-{self._launched:06d}"
        machine = FakeMachine(
            provider_id=provider_id, request=request, requested_at=now, history=[(now, Observed.PENDING)]
        )
        self.machines[provider_id] = machine
        comes_to = self._start
        if self._rng.random() < self.behaviour.late_refusal_rate:
            comes_to = self._refuse_late
        asyncio.get_running_loop().call_later(self._draw(self.behaviour.pending_s), comes_to, machine)
        return machine

    def _refuse_late(self, machine: FakeMachine) -> None:
        if machine.observed is Observed.PENDING:
            machine.refusal = RefusalKind.NO_CAPACITY
            self._end(machine, "no capacity after all")

    def _start(self, machine: FakeMachine) -> None:
        if machine.observed is not Observed.PENDING:
            return
        self._move(machine, Observed.RUNNING)
        machine.paid_from = self._clock.now()
        offer = machine.request.offer
        moved = self.market.get(offer.offer_id)
        self.bill.start(machine, machine.paid_from, moved[-1].per_hour if moved else offer.price_per_hour or 0.0)
        loop = asyncio.get_running_loop()
        if self._rng.random() >= self.behaviour.dead_boot_rate:
            loop.call_later(self._draw(self.behaviour.boot_s), self._boot, machine)
        if self.behaviour.losses_per_hour > 0:
            life_s = self._rng.expovariate(self.behaviour.losses_per_hour / 3600.0)
            announced = self._rng.random() < self.behaviour.noticed_share
            notice_s = self.behaviour.notice_s if announced else None
            loop.call_later(life_s, lambda: self.interrupt(machine.provider_id, notice_s=notice_s))

    def _boot(self, machine: FakeMachine) -> None:
        if machine.observed is Observed.RUNNING:
            self._host.booted(machine)

    def _later(self, delay_s: float, machine: FakeMachine, message: str) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._end, machine, message)

    def _end(self, machine: FakeMachine, message: str) -> None:
        if machine.observed is Observed.GONE:
            return
        self._move(machine, Observed.GONE)
        machine.message = message
        if machine.paid_from is not None:
            machine.paid_until = self._clock.now()
            self.bill.stop(machine.provider_id, machine.paid_until)
        self._host.ended(machine)

    def _move(self, machine: FakeMachine, observed: Observed) -> None:
        machine.history.append((self._clock.now(), observed))

    def _draw(self, bounds: Range) -> float:
        return self._rng.uniform(*bounds)

    async def _delay(self, bounds: Range) -> None:
        await asyncio.sleep(self._draw(bounds))


def _as_listed(machine: FakeMachine, observed: Observed, moment: datetime) -> CloudInstance:
    """The machine as it was at `moment`: nothing that happened later shows."""
    paid_until = machine.paid_until if observed is Observed.GONE else None
    return CloudInstance(
        provider_id=machine.provider_id,
        token=machine.request.token,
        instance_id=machine.request.instance_id,
        pool=machine.request.pool,
        observed=observed,
        requested_at=machine.requested_at,
        paid_from=machine.paid_from if machine.paid_from is not None and machine.paid_from <= moment else None,
        paid_until=paid_until,
        message=machine.message if observed is Observed.GONE else "",
        refusal=machine.refusal if observed is Observed.GONE else None,
    )
