"""Carries out recorded decisions, and reports the state of the cloud. It decides nothing.

The ledger (the master's instance rows) is the desired state; the cloud's list by cluster tag is the actual state. `Reconciler`
compares them at intervals: it launches a recorded instance that was never launched, with its token; it terminates one that should
stop until the list agrees; and it terminates a machine without a row as a stray. So a lost reply, a lost wake-up or a restart at
any point costs time and never a machine.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from resolute.clock import Clock
from resolute_provisioner.clouds.base import Cloud, CloudError, CloudInstance, LaunchRequest
from resolute_provisioner.model import Intent, Observed, RefusalKind

log = logging.getLogger(__name__)

_ASKED_AGAIN = (RefusalKind.TRANSIENT, RefusalKind.THROTTLED)
"""Errors after which a request counts as not processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceIntent:
    """One recorded instance that is not known to have ended."""

    request: LaunchRequest
    intent: Intent
    observed: Observed
    """The last reported state."""
    provider_id: str = ""
    """Id at the cloud; "" until its launch was confirmed."""
    launched_at: datetime | None = None
    paid_from: datetime | None = None

    @property
    def instance_id(self) -> str:
        return self.request.instance_id


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLaunched:
    """The cloud confirmed the machine, by its answer or by its list. May be reported more than once."""

    instance_id: str
    provider_id: str
    observed: Observed
    paid_from: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """The cloud gave no machine for this instance: its row is finished, a new try is a new row.

    After TRANSIENT a machine may exist all the same. With its row finished it is a stray and is terminated.
    """

    instance_id: str
    offer_id: str
    kind: RefusalKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceObserved:
    """The cloud's state of a launched machine has changed. GONE is final."""

    instance_id: str
    provider_id: str
    observed: Observed
    paid_from: datetime | None
    paid_until: datetime | None
    message: str = ""
    refusal: RefusalKind | None = None
    """As in `CloudInstance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayFound:
    """A machine with the cluster's tag and without a row of a running machine was found and ordered to end. Where the ledger
    knows its token from a row that is finished, it takes that row up again: the machine is paid for."""

    provider_id: str
    token: str
    instance_id: str
    observed: Observed = Observed.RUNNING
    paid_from: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudCallFailed:
    """A call failed and will be repeated. `call` is launch, terminate or list; `instance_id` may be empty."""

    call: str
    instance_id: str
    message: str


CloudReport = InstanceLaunched | LaunchRefused | InstanceObserved | StrayFound | CloudCallFailed


class InstanceLedger(Protocol):
    """The recorded instances, as far as the reconciler needs them. The master's engine implements it."""

    async def intents(self) -> Sequence[InstanceIntent]:
        """Every recorded instance that was not reported GONE or refused, or was found as a stray since; committed state only."""
        ...

    async def report(self, report: CloudReport) -> None:
        """Returns once the report is recorded. Reports may repeat; the newest one applies, and only a stray ends GONE."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSettings:
    """Limits on calls to one cloud."""

    steady_period_s: float = 10.0
    """Time between two listings while nothing starts or ends."""
    error_period_cap_s: float = 60.0
    """Longest time between two listings while the cloud fails to list; the time grows with each failure."""
    launch_attempts: int = 5
    """Attempts of a launch while the cloud does not answer, before its row is final."""
    retry_delay_s: float = 1.0
    retry_delay_cap_s: float = 15.0
    throttled_pause_s: float = 1.0
    """Pause before each launch after the cloud has limited the rate; it doubles with each such answer and halves with each
    answered launch."""
    throttled_pause_cap_s: float = 30.0
    terminate_again_s: float = 15.0
    """Time after which the order to end a machine that is still listed is repeated."""
    vanish_after_s: float = 10.0
    """Time for which a launched machine must be missing from the lists before it counts as ended: its work is then started
    elsewhere, and one wrong list must not make it run twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The actions that follow from a comparison of one listing with the ledger."""

    reports: tuple[CloudReport, ...] = ()
    launch: tuple[InstanceIntent, ...] = ()
    terminate: tuple[str, ...] = ()
    """Provider ids of machines that should have ended and have not."""
    missing: tuple[str, ...] = ()
    """Instance ids that were launched and are not in the list."""
    in_transition: bool = False
    """Whether machines start or end, so that another listing is useful soon."""


def compare(
    listing: Sequence[CloudInstance],
    intents: Sequence[InstanceIntent],
    *,
    listed_at: datetime,
    listing_lag_s: float,
    busy: Collection[str] = (),
    missed: Collection[str] = (),
) -> Comparison:
    """Pure. `listing` must have been taken before `intents` were read: then a listed machine without a row is a stray
    and not one whose row is still to come. `busy` are instance ids whose launch is in progress or has just ended;
    `missed` those that have been missing for long enough to count as ended if they are missing again."""
    machines, strays = _match(listing, intents)
    reports: list[CloudReport] = [
        StrayFound(
            provider_id=stray.provider_id,
            token=stray.token,
            instance_id=stray.instance_id,
            observed=stray.observed,
            paid_from=stray.paid_from,
        )
        for stray in strays
    ]
    terminate = [stray.provider_id for stray in strays]
    launch: list[InstanceIntent] = []
    missing: list[str] = []
    for intent in sorted(intents, key=lambda each: each.instance_id):
        listed = machines.get(intent.request.token)
        if listed is not None:
            reports.extend(_news(intent, listed))
            if intent.intent is Intent.STOP and listed.observed is not Observed.GONE:
                terminate.append(listed.provider_id)
        elif intent.instance_id in busy:
            continue
        elif intent.provider_id:
            lag = timedelta(seconds=listing_lag_s)
            if intent.launched_at is None or intent.launched_at + lag <= listed_at:
                missing.append(intent.instance_id)
                if intent.instance_id in missed:
                    reports.append(_vanished(intent, "the cloud does not list it any more"))
        elif intent.intent is Intent.STOP:
            reports.append(_vanished(intent, "it was never launched"))
        else:
            launch.append(intent)
    moving = any(machine.observed not in (Observed.RUNNING, Observed.GONE) for machine in machines.values())
    return Comparison(
        reports=tuple(reports),
        launch=tuple(launch),
        terminate=tuple(terminate),
        missing=tuple(missing),
        in_transition=bool(moving or launch or terminate or missing or busy),
    )


def _match(
    listing: Sequence[CloudInstance], intents: Sequence[InstanceIntent]
) -> tuple[dict[str, CloudInstance], list[CloudInstance]]:
    """The machine of each recorded token, and the running machines without a row."""
    confirmed = {intent.request.token: intent.provider_id for intent in intents}
    machines: dict[str, CloudInstance] = {}
    # Of several machines with one token (a cloud that broke the contract) the confirmed one stays, else the first.
    for machine in sorted(listing, key=lambda each: (confirmed.get(each.token) != each.provider_id, each.provider_id)):
        if machine.token in confirmed:
            machines.setdefault(machine.token, machine)
    kept = {machine.provider_id for machine in machines.values()}
    strays = [each for each in listing if each.provider_id not in kept and each.observed is not Observed.GONE]
    return machines, sorted(strays, key=lambda each: each.provider_id)


def _news(intent: InstanceIntent, machine: CloudInstance) -> list[CloudReport]:
    news: list[CloudReport] = []
    if intent.provider_id != machine.provider_id:
        confirmed = InstanceLaunched(
            instance_id=intent.instance_id,
            provider_id=machine.provider_id,
            observed=machine.observed,
            paid_from=machine.paid_from,
        )
        news.append(confirmed)
    # A stale list must not take a word back, so only progress is news.
    if machine.observed.order > intent.observed.order or intent.paid_from != (machine.paid_from or intent.paid_from):
        observed = InstanceObserved(
            instance_id=intent.instance_id,
            provider_id=machine.provider_id,
            observed=max(machine.observed, intent.observed, key=lambda state: state.order),
            paid_from=machine.paid_from,
            paid_until=machine.paid_until,
            message=machine.message,
            refusal=machine.refusal,
        )
        news.append(observed)
    return news


def _vanished(intent: InstanceIntent, message: str) -> InstanceObserved:
    return InstanceObserved(
        instance_id=intent.instance_id,
        provider_id=intent.provider_id,
        observed=Observed.GONE,
        paid_from=intent.paid_from,
        paid_until=None,
        message=message,
    )


class Reconciler:
    """One cloud, one cluster tag, one ledger. What carries the tag and is not in the ledger is terminated, so no two
    ledgers may share a tag: name it after the cluster, and after the pool too when each pool has its own.

    All methods may be called at any time and again after a restart.

    `run` is the service; `launch` and `terminate` carry out one order at once, for a caller that has just recorded it
    and must not wait for the next comparison. Calling `wake` instead does the same a moment later.
    """

    def __init__(
        self,
        *,
        cloud: Cloud,
        cluster: str,
        ledger: InstanceLedger,
        clock: Clock,
        rng: random.Random,
        settings: ReconcileSettings | None = None,
    ) -> None:
        self._cloud = cloud
        self._cluster = cluster
        self._ledger = ledger
        self._clock = clock
        self._rng = rng
        self._settings = settings or ReconcileSettings()
        self._wake = asyncio.Event()
        self._stopping = False
        self._permits = asyncio.Semaphore(cloud.capabilities.concurrent_launches)
        self._launching: set[str] = set()
        self._just_launched: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._throttled_s = 0.0
        """Present pause before each launch."""
        self._ordered_to_end: dict[str, float] = {}
        self._reported_strays: set[str] = set()
        self._missing_since: dict[str, datetime] = {}

    def wake(self) -> None:
        """Compare now instead of at the next period."""
        self._wake.set()

    def stop(self) -> None:
        """Let `run` return. Launches under way are given up; the next process finds them by their token."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Compare, act and wait, until `stop`."""
        failures = 0
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    in_transition = await self.observe()
                    failures = 0
                except CloudError as error:
                    failures += 1
                    in_transition = False
                    await self._ledger.report(CloudCallFailed(call="list", instance_id="", message=str(error)))
                if self._failure is not None:
                    raise self._failure
                await self._pause(self._period_s(in_transition, failures))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def observe(self) -> bool:
        """One comparison: report what changed, order what is missing. Launches continue in the background (`settle` waits
        for them). Returns whether machines are starting or ending. Raises `Transient` when the cloud cannot list."""
        self._just_launched.clear()
        listed_at = self._clock.now()
        listing = await self._cloud.list(self._cluster)
        intents = await self._ledger.intents()
        found = compare(
            listing,
            intents,
            listed_at=listed_at,
            listing_lag_s=self._cloud.capabilities.listing_lag_s,
            busy=self._launching | self._just_launched,
            missed=self._missing_for_long(listed_at),
        )
        self._missing_since = {each: self._missing_since.get(each, listed_at) for each in found.missing}
        for report in found.reports:
            if isinstance(report, StrayFound):
                if report.provider_id in self._reported_strays:
                    continue
                self._reported_strays.add(report.provider_id)
                log.warning("machine %s has our tag and no record: terminating it", report.provider_id)
            await self._ledger.report(report)
        for intent in found.launch:
            self._spawn(self.launch(intent))
        await self._order_end(found.terminate)
        self._forget_ended(found.terminate)
        return found.in_transition

    async def settle(self) -> None:
        """Wait for the launches that `observe` started."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def launch(self, intent: InstanceIntent) -> None:
        """Launch a recorded instance and report the outcome. Does nothing while that is in progress."""
        if intent.instance_id in self._launching:
            return
        self._launching.add(intent.instance_id)
        try:
            async with self._permits:
                await self._ledger.report(await self._ask(intent.request))
        finally:
            self._launching.discard(intent.instance_id)
            self._just_launched.add(intent.instance_id)
            self._wake.set()

    async def terminate(self, provider_ids: Collection[str]) -> None:
        """Order machines to end now; the comparison repeats it until they have ended."""
        await self._order_end(tuple(sorted(provider_ids)))
        self._wake.set()

    async def _ask(self, request: LaunchRequest) -> InstanceLaunched | LaunchRefused:
        attempt = 0
        while True:
            attempt += 1
            if self._throttled_s:
                await asyncio.sleep(self._throttled_s * self._rng.uniform(0.5, 1.5))
            try:
                machine = await self._cloud.launch(request)
            except CloudError as error:
                self._pace(error.kind)
                if error.kind not in _ASKED_AGAIN or attempt >= self._settings.launch_attempts:
                    return LaunchRefused(
                        instance_id=request.instance_id,
                        offer_id=request.offer.offer_id,
                        kind=error.kind,
                        message=str(error),
                    )
                log.info("launch of %s is requested again: %s", request.instance_id, error)
            else:
                self._pace(None)
                return InstanceLaunched(
                    instance_id=request.instance_id,
                    provider_id=machine.provider_id,
                    observed=machine.observed,
                    paid_from=machine.paid_from,
                )
            await asyncio.sleep(self._retry_delay_s(attempt))

    def _pace(self, refusal: RefusalKind | None) -> None:
        if refusal is RefusalKind.THROTTLED:
            settings = self._settings
            doubled_s = max(2.0 * self._throttled_s, settings.throttled_pause_s)
            self._throttled_s = min(doubled_s, settings.throttled_pause_cap_s)
        elif refusal is not RefusalKind.TRANSIENT:
            halved_s = self._throttled_s / 2.0
            self._throttled_s = halved_s if halved_s >= self._settings.throttled_pause_s / 8.0 else 0.0

    def _missing_for_long(self, now: datetime) -> frozenset[str]:
        limit = timedelta(seconds=self._settings.vanish_after_s)
        return frozenset(each for each, since in self._missing_since.items() if since + limit <= now)

    async def _order_end(self, provider_ids: tuple[str, ...]) -> None:
        now = self._clock.monotonic()
        again_s = self._settings.terminate_again_s
        due = [each for each in provider_ids if now - self._ordered_to_end.get(each, -again_s) >= again_s]
        if not due:
            return
        try:
            await self._cloud.terminate(due)
        except CloudError as error:
            # Not remembered as ordered: the next comparison orders it again.
            await self._ledger.report(CloudCallFailed(call="terminate", instance_id="", message=str(error)))
        else:
            self._ordered_to_end.update(dict.fromkeys(due, now))

    def _forget_ended(self, still_wanted_gone: Sequence[str]) -> None:
        keep = set(still_wanted_gone)
        self._ordered_to_end = {each: at for each, at in self._ordered_to_end.items() if each in keep}
        self._reported_strays &= keep

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Only the ledger can fail here, and without it nothing may continue: `run` raises it.
            self._failure = task.exception()
            self._wake.set()

    def _retry_delay_s(self, attempt: int) -> float:
        delay_s = min(self._settings.retry_delay_cap_s, self._settings.retry_delay_s * 2.0 ** (attempt - 1))
        return delay_s * self._rng.uniform(0.5, 1.0)

    def _period_s(self, in_transition: bool, failures: int) -> float:
        poll_s = self._cloud.capabilities.poll_s
        if failures:
            return min(self._settings.error_period_cap_s, poll_s * 2.0 ** min(failures, 16))
        return poll_s if in_transition else max(poll_s, self._settings.steady_period_s)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
