"""Machines of Google Compute Engine.

One `instances.insert` for each machine. `launch` follows the operation to its end, because only the operation reports that a zone
has no capacity or that a quota is exhausted: an answer of `launch` is never revoked later. The request's id is derived from the
token, and the machine's name from its instance id and cluster: as long as Compute Engine remembers the one, a repeated launch is
answered with the first operation, and afterwards the name is taken by the machine itself.

A machine that was deleted is in no list any more. What is known of it when it goes missing is kept here for a while,
together with the reason and the end that the zone's operations tell; the next process can do without it, as the reconciler
takes a missing machine for gone a little later and without a reason. A machine that is only stopped is reported as gone
and its remainder, a disk that costs money, is deleted.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from google.auth.credentials import Credentials

from resolute.clock import Clock
from resolute.errors import InvalidInput
from resolute_provisioner.clouds.base import (
    BadRequest,
    CloudCapabilities,
    CloudError,
    CloudInstance,
    Launched,
    LaunchRequest,
    Throttled,
    Transient,
)
from resolute_provisioner.clouds.gcp.calls import (
    AlreadyThere,
    ComputeEngine,
    Instance,
    NotThere,
    Operation,
    Zones,
    failure_of,
    last_element,
    parsed,
)
from resolute_provisioner.clouds.gcp.request import (
    CLUSTER_LABEL,
    INSTANCE_LABEL,
    POOL_LABEL,
    TOKEN_LABEL,
    GcpSettings,
    label_value,
    render_launch_request,
    request_id,
    zone_of,
)
from resolute_provisioner.model import Observed

log = logging.getLogger(__name__)

GONE_LISTED_S = 3600.0
"""Time for which an ended machine stays in the list."""
LISTING_LAG_S = 10.0
"""A list over all zones may be a little older than the answer to a launch."""
ATTEMPTS = 4
"""Number of request ids of a launch. Compute Engine answers a repeated request with the stored operation, also a failed one, so a
launch that is retried after a refusal uses its next request id."""
CONCURRENT_LAUNCHES = 64
"""Number of concurrent launches. A launch mostly waits for its operation, for half a minute; a gang of this size launches at
once."""
SLOWEST_POLL = 5.0
"""Longest period of queries of an operation, as a multiple of the first one. An operation that takes long is queried more and
more rarely."""

OBSERVED: Mapping[str, Observed] = {
    "PENDING": Observed.PENDING,
    "PROVISIONING": Observed.PENDING,
    "STAGING": Observed.PENDING,
    "RUNNING": Observed.RUNNING,
    "REPAIRING": Observed.RUNNING,
    "PENDING_STOP": Observed.STOPPING,
    "STOPPING": Observed.STOPPING,
    "SUSPENDING": Observed.STOPPING,
    "DEPROVISIONING": Observed.STOPPING,
    "STOPPED": Observed.GONE,
    "SUSPENDED": Observed.GONE,
    "TERMINATED": Observed.GONE,
}
"""Observed state by the machine's status in Compute Engine. GONE here means that only the machine's disk is left."""

ENDS: Mapping[str, str] = {
    "compute.instances.preempted": "interrupted: Compute Engine took the spot machine back",
    "compute.instances.hostError": "interrupted: its host failed",
    "compute.instances.terminateOnHostMaintenance": "interrupted: its host is in maintenance",
    "compute.instances.guestTerminate": "it powered itself off",
    "stop": "it was stopped",
    "suspend": "it was suspended",
    "delete": "it was deleted",
}
"""The reason of a machine's end by the type of an operation; the first present one applies."""

PROVIDER_ID = re.compile(r"(?P<zone>[a-z][-a-z0-9]*)/(?P<name>[a-z][-a-z0-9]*)")


@dataclass(slots=True)
class _Known:
    """The latest known machines of one cluster. Missing ones are looked up, and ended ones are still listed."""

    living: dict[str, CloudInstance] = field(default_factory=dict)
    gone: dict[str, tuple[CloudInstance, datetime]] = field(default_factory=dict)
    """Ended machines, each with the time at which its end was found."""
    answered: set[str] = field(default_factory=set)
    """Zones that have answered a list."""

    def has_ended(self, machine: CloudInstance) -> bool:
        """Whether it is the machine that is known to have ended, in a list that is older than its end: after a refusal the name
        may be reused."""
        gone = self.gone.get(machine.provider_id)
        return gone is not None and gone[0].requested_at == machine.requested_at

    def forget(self, before: datetime) -> None:
        self.gone = {key: (machine, found) for key, (machine, found) in self.gone.items() if found >= before}


class GcpCloud:
    """Implements the `Cloud` contract for one pool in one project."""

    def __init__(
        self,
        settings: GcpSettings,
        *,
        clock: Clock,
        zones: Iterable[str] = (),
        endpoint: str = "",
        credentials: Credentials | None = None,
    ) -> None:
        """`zones` are those of the pool's offers: nothing is known of the pool while one of them has never answered.
        `endpoint` and `credentials` are Google's own and those of the environment when left out.

        Raises `InvalidInput` when there are no credentials, or for a key of `base_config` that the API does not have.
        """
        parsed(settings.base_config, what="provider.base_config")
        self._settings = settings
        self._clock = clock
        self._zones = frozenset(zones)
        self._engine = ComputeEngine(settings.project, endpoint=endpoint, credentials=credentials)
        self._known: dict[str, _Known] = {}

    @property
    def capabilities(self) -> CloudCapabilities:
        return CloudCapabilities(
            name="gcp",
            gives_notice=True,
            listing_lag_s=LISTING_LAG_S,
            poll_s=5.0,
            concurrent_launches=CONCURRENT_LAUNCHES,
        )

    def close(self) -> None:
        self._engine.close()

    # ------------------------------------------------------------------------------------------------------ launch

    async def launch(self, request: LaunchRequest) -> Launched:
        zone = zone_of(request.offer, self._settings)
        try:
            body = parsed(render_launch_request(request, self._settings), what=f"offer {request.offer.offer_id}")
        except InvalidInput as error:
            raise BadRequest(str(error)) from error
        name = await self._placed(zone, body, request)
        return await self._launched(zone, name, request)

    async def _placed(self, zone: str, body: Instance, request: LaunchRequest) -> str:
        """The name of the request's machine, launched now or before."""
        attempt = 0
        while True:
            try:
                asked = await self._engine.insert(zone, body, request_id(request.token, attempt))
            except AlreadyThere:
                await self._check_token(zone, body.name, request)
                return body.name
            name = last_element(asked.target_link)
            ended = await self._followed(zone, asked)
            failure = failure_of(ended) if ended is not None else await self._still_starting(zone, name, asked)
            if failure is None:
                return name
            attempt += 1
            if asked.status != Operation.Status.DONE or attempt == ATTEMPTS:
                raise failure

    async def _followed(self, zone: str, operation: Operation) -> Operation | None:
        """Waits for an operation; None if it has not ended within the configured time."""
        period_s, slowest_s = self._settings.operation_poll_s, self._settings.operation_poll_s * SLOWEST_POLL
        give_up_at = self._clock.monotonic() + self._settings.operation_timeout_s
        while operation.status != Operation.Status.DONE:
            if self._clock.monotonic() >= give_up_at:
                return None
            await asyncio.sleep(period_s)
            period_s = min(period_s * 1.5, slowest_s)
            try:
                operation = await self._engine.operation(zone, operation.name)
            except (Transient, Throttled) as error:
                log.info("operation %s is queried again: %s", operation.name, error)
        return operation

    async def _still_starting(self, zone: str, name: str, operation: Operation) -> CloudError | None:
        """The error of an operation that takes too long. None if the machine has its capacity already: then it counts as
        launched."""
        machine = await self._engine.get(zone, name)
        if machine is not None and machine.status not in ("PROVISIONING", "PENDING"):
            return None
        return Transient(f"operation {operation.name} has not ended after {self._settings.operation_timeout_s:g} s")

    async def _check_token(self, zone: str, name: str, request: LaunchRequest) -> None:
        machine = await self._engine.get(zone, name)
        if machine is None:
            raise Transient(f"machine {zone}/{name} was there and is not any more")
        if machine.labels.get(TOKEN_LABEL) != request.token:
            raise BadRequest(f"instance {request.instance_id}: there is a machine {zone}/{name} with another token")

    async def _launched(self, zone: str, name: str, request: LaunchRequest) -> Launched:
        machine = await self._engine.get(zone, name)
        provider_id = f"{zone}/{name}"
        if machine is None:
            return Launched(provider_id=provider_id, observed=Observed.GONE, paid_from=None)
        listed = _as_listed(zone, machine)
        known = self._of(request.cluster)
        known.living[provider_id] = listed
        known.gone.pop(provider_id, None)
        return Launched(provider_id=provider_id, observed=listed.observed, paid_from=listed.paid_from)

    # --------------------------------------------------------------------------------------------------- terminate

    async def terminate(self, provider_ids: Collection[str]) -> None:
        found = [match for each in sorted(provider_ids) if (match := PROVIDER_ID.fullmatch(each)) is not None]
        answers = await asyncio.gather(
            *(self._delete(match["zone"], match["name"]) for match in found), return_exceptions=True
        )
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        for failure in failures:
            if not isinstance(failure, CloudError):
                raise failure
        if failures:
            raise Transient(f"{len(failures)} of {len(found)} machines were not deleted: {failures[0]}")

    async def _delete(self, zone: str, name: str) -> None:
        try:
            await self._engine.delete(zone, name)
        except NotThere:
            return

    # -------------------------------------------------------------------------------------------------------- list

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        found = await self._engine.labelled(CLUSTER_LABEL, label_value(cluster), self._zones)
        known = self._of(cluster)
        self._check_silence(found, known)
        machines = [_as_listed(zone, each) for zone, listed in found.machines.items() for each in listed]
        here = {each.provider_id: each for each in machines if not known.has_ended(each)}
        for provider_id in sorted(known.living.keys() - here.keys()):
            machine = known.living[provider_id]
            if found.covers(zone_of_id(provider_id)):
                machine = await self._looked_for(provider_id) or replace(machine, observed=Observed.GONE)
            here[provider_id] = machine
        known.living = {key: each for key, each in here.items() if each.observed is not Observed.GONE}
        ended = {key: each for key, each in here.items() if each.observed is Observed.GONE}
        for machine in await self._explained(ended):
            known.gone[machine.provider_id] = (machine, self._clock.now())
        known.forget(self._clock.now() - timedelta(seconds=GONE_LISTED_S))
        await self._delete_remainders(each for each in machines if each.observed is Observed.GONE)
        gone = {key: machine for key, (machine, _) in known.gone.items()}
        return tuple(machine for _, machine in sorted({**gone, **known.living}.items()))

    def _of(self, cluster: str) -> _Known:
        return self._known.setdefault(cluster, _Known())

    def _check_silence(self, found: Zones, known: _Known) -> None:
        """Raises an error if zones that do not answer may hide machines. Known machines of a silent zone are kept; of a zone that
        has never answered, no machine is known, so the list fails."""
        heard = {zone for zone in self._zones if found.covers(zone)}
        unknown = sorted(self._zones - heard - known.answered)
        if unknown:
            raise Transient(f"no list of the machines in {', '.join(unknown)}: Compute Engine cannot reach the zone")
        known.answered |= heard

    async def _looked_for(self, provider_id: str) -> CloudInstance | None:
        """Looks up a machine that a list omits: the list may be older than the machine."""
        zone, name = provider_id.split("/")
        machine = await self._engine.get(zone, name)
        return None if machine is None else _as_listed(zone, machine)

    async def _explained(self, ended: Mapping[str, CloudInstance]) -> Sequence[CloudInstance]:
        """The ended machines with the time and the reason of the end, if the zones report them."""
        now = self._clock.now()
        explained: Sequence[CloudInstance] = ()
        for zone in sorted({zone_of_id(each) for each in ended}):
            try:
                operations = await self._engine.newest_operations(zone)
            except CloudError as error:
                log.warning("zone %s does not report why machines have ended: %s", zone, error)
                operations = ()
            here = (machine for provider_id, machine in ended.items() if zone_of_id(provider_id) == zone)
            explained = [*explained, *(_with_end(machine, operations, now) for machine in here)]
        return explained

    async def _delete_remainders(self, stopped: Iterable[CloudInstance]) -> None:
        try:
            await self.terminate([each.provider_id for each in stopped])
        except Transient as error:
            log.warning("what is left of stopped machines is deleted at the next list: %s", error)


def zone_of_id(provider_id: str) -> str:
    return provider_id.partition("/")[0]


def _as_listed(zone: str, machine: Instance) -> CloudInstance:
    observed = OBSERVED.get(machine.status, Observed.UNKNOWN)
    started = observed.order >= Observed.RUNNING.order
    return CloudInstance(
        provider_id=f"{zone}/{machine.name}",
        token=machine.labels.get(TOKEN_LABEL, ""),
        instance_id=machine.labels.get(INSTANCE_LABEL, machine.name),
        pool=machine.labels.get(POOL_LABEL, ""),
        observed=observed,
        requested_at=_time(machine.creation_timestamp),
        paid_from=_time(machine.last_start_timestamp) if started else None,
        paid_until=_time(machine.last_stop_timestamp) if observed is Observed.GONE else None,
        message=machine.status_message,
    )


def _with_end(machine: CloudInstance, operations: Iterable[Operation], now: datetime) -> CloudInstance:
    """An ended machine, with the reason from its operations."""
    ours = [
        each for each in operations if each.target_link.endswith(f"/{machine.provider_id.replace('/', '/instances/')}")
    ]
    for each in ours:
        failure = failure_of(each) if each.operation_type == "insert" else None
        if failure is not None:
            return replace(machine, message=str(failure), refusal=failure.kind)
    ends = {each.operation_type: each for each in reversed(ours) if each.operation_type in ENDS}
    reason = next((text for kind, text in ENDS.items() if kind in ends), "it is not there any more")
    times = [_time(each.end_time) or _time(each.insert_time) for each in ends.values()]
    ended_at = machine.paid_until or max((each for each in times if each is not None), default=now)
    paid_until = None if machine.paid_from is None else max(ended_at, machine.paid_from)
    return replace(machine, message=reason, paid_until=paid_until)


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
