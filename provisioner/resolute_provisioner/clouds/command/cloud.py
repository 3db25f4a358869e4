"""The operator's own machines behind the cloud port.

A launch gives one of the named machines to the request, writes that down, and then runs the operator's program, which may be run
again for the same machine. `list_command` reports the running machines; a running machine without a request is in other use and
is not touched.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from resolute.clock import Clock
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import (
    BadRequest,
    CloudCapabilities,
    CloudError,
    CloudInstance,
    Launched,
    LaunchRequest,
    NoCapacity,
    QuotaExceeded,
    Transient,
)
from resolute_provisioner.clouds.command.machines import Request, Requests, free
from resolute_provisioner.clouds.command.programs import run
from resolute_provisioner.clouds.records import locked
from resolute_provisioner.model import Observed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
POLL_S = 5.0
"""Period of listings, whose program may query every machine's controller."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """The settings of one pool."""

    root: Path
    """Directory of the pool's records."""
    launch: tuple[str, ...]
    end: tuple[str, ...]
    list: tuple[str, ...]
    limit_s: float
    """Time limit of each program, in seconds."""
    machines: Mapping[tuple[str, str], tuple[str, ...]]
    """Names by (instance type, zone), in the order in which they are given out."""
    boot_script: Callable[[MachineBoot], str]
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment of the master; a few variables of it are passed on."""


class CommandCloud:
    """Implements the `Cloud` contract. Its state is in its root: several processes may use one at once."""

    def __init__(self, settings: CommandSettings, *, clock: Clock) -> None:
        self._settings = settings
        self._requests = Requests(settings.root)
        self._clock = clock

    @property
    def capabilities(self) -> CloudCapabilities:
        return CloudCapabilities(name="command", gives_notice=False, listing_lag_s=0.0, poll_s=POLL_S)

    async def launch(self, request: LaunchRequest) -> Launched:
        return await _in_thread(lambda: self._launch(request))

    async def terminate(self, provider_ids: Collection[str]) -> None:
        await _in_thread(lambda: self._terminate(sorted(provider_ids)))

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        return await _in_thread(lambda: self._list(cluster))

    # ------------------------------------------------------------------------------------------------------ launch

    def _launch(self, request: LaunchRequest) -> Launched:
        if NAME.fullmatch(request.instance_id) is None:
            raise BadRequest(f"instance id {request.instance_id!r}: use letters, digits, '.', '_' and '-'")
        given = self._given(request)
        with locked(self._machine_directory(given.machine)):
            given = self._requests.get(given.instance_id) or given
            if given.launched_at is None and given.gone_at is None and given.ending_at is None:
                given = self._turn_on(given, request)
        observed = Observed.GONE if given.gone_at else Observed.STOPPING if given.ending_at else Observed.PENDING
        return Launched(provider_id=given.provider_id, observed=observed, paid_from=given.seen_at)

    def _given(self, request: LaunchRequest) -> Request:
        """The machine of this token: the previous one, or a free one. It is recorded on return."""
        names = self._settings.machines.get((request.offer.instance_type, request.offer.zone))
        with locked(self._settings.root):
            known = self._requests.all()
            for each in known:
                if each.token == request.token:
                    return each
                if each.instance_id == request.instance_id:
                    raise BadRequest(f"instance {request.instance_id} was already launched with another token")
            if not names:
                raise BadRequest(f"offer {request.offer.offer_id}: the configuration names no such machines")
            on = self._on()
            machine, why = free(names, self._requests.look(on, self._clock.now()), on)
            if machine is None:
                raise NoCapacity(f"no machine of {request.offer.offer_id} is free: {why}")
            return self._requests.write(
                Request(
                    instance_id=request.instance_id,
                    token=request.token,
                    cluster=request.cluster,
                    pool=request.pool,
                    machine=machine,
                    requested_at=self._clock.now(),
                )
            )

    def _turn_on(self, given: Request, request: LaunchRequest) -> Request:
        told = {
            **_about(given),
            "RESOLUTE_INSTANCE_TYPE": request.offer.instance_type,
            "RESOLUTE_ZONE": request.offer.zone,
        }
        try:
            self._run((*self._settings.launch, given.machine), told, self._settings.boot_script(request.boot))
        except (NoCapacity, QuotaExceeded, BadRequest):
            with locked(self._settings.root):
                self._requests.remove(given)
            raise
        return self._changed(given, lambda now: replace(now, launched_at=self._clock.now()))

    def _changed(self, given: Request, change: Callable[[Request], Request]) -> Request:
        """Changes a request, which a listing may have changed meanwhile."""
        with locked(self._settings.root):
            return self._requests.write(change(self._requests.get(given.instance_id) or given))

    # --------------------------------------------------------------------------------------------------- terminate

    def _terminate(self, provider_ids: Sequence[str]) -> None:
        failures = []
        for provider_id in provider_ids:
            machine, _, instance_id = provider_id.partition("/")
            if NAME.fullmatch(instance_id) is None:
                continue
            with locked(self._settings.root):
                given = self._requests.get(instance_id)
            if given is None or given.machine != machine or given.gone_at is not None:
                continue
            try:
                self._turn_off(given)
            except CloudError as error:
                failures.append(f"{given.machine}: {error}")
        if failures:
            raise Transient("; ".join(failures))

    def _turn_off(self, given: Request) -> None:
        with locked(self._machine_directory(given.machine)):
            with locked(self._settings.root):
                now = self._requests.get(given.instance_id)
                if now is None or now.gone_at is not None:
                    return
                self._requests.write(replace(now, ending_at=now.ending_at or self._clock.now()))
            self._run((*self._settings.end, given.machine), _about(given))

    # -------------------------------------------------------------------------------------------------------- list

    def _list(self, cluster: str) -> tuple[CloudInstance, ...]:
        with locked(self._settings.root):  # no list is older than another that was written down
            try:
                on = self._on()
            except (NoCapacity, QuotaExceeded, BadRequest) as error:
                raise Transient(str(error)) from error
            known = self._requests.look(on, self._clock.now())
        listed = (_as_listed(each) for each in known if each.cluster == cluster and _came_to_be(each))
        return tuple(sorted(listed, key=lambda each: each.provider_id))

    def _on(self) -> frozenset[str]:
        return frozenset(line.strip() for line in self._run(self._settings.list, {}).splitlines() if line.strip())

    def _run(self, command: tuple[str, ...], told: Mapping[str, str], text: str = "") -> str:
        environ, limit_s = self._settings.environ, self._settings.limit_s
        return run(command, environ=environ, told=told, text=text, limit_s=limit_s)

    def _machine_directory(self, machine: str) -> Path:
        return self._settings.root / "machines" / machine


def _about(given: Request) -> dict[str, str]:
    return {
        "RESOLUTE_MACHINE": given.machine,
        "RESOLUTE_INSTANCE": given.instance_id,
        "RESOLUTE_POOL": given.pool,
        "RESOLUTE_CLUSTER": given.cluster,
    }


def _came_to_be(given: Request) -> bool:
    """Whether a machine was launched, listed or ordered to end. One that was only assigned counts as absent."""
    return given.launched_at is not None or given.seen_at is not None or given.ending_at is not None


def _as_listed(given: Request) -> CloudInstance:
    if given.gone_at is not None:
        observed = Observed.GONE
    elif given.ending_at is not None:
        observed = Observed.STOPPING
    else:
        observed = Observed.RUNNING if given.seen_at is not None else Observed.PENDING
    return CloudInstance(
        provider_id=given.provider_id,
        token=given.token,
        instance_id=given.instance_id,
        pool=given.pool,
        observed=observed,
        requested_at=given.requested_at,
        paid_from=given.seen_at,
        paid_until=given.gone_at if given.seen_at is not None else None,
        message=given.message,
    )


async def _in_thread(work: Callable[[], Result]) -> Result:
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise Transient(f"the pool's folder could not be used: {error}") from error
