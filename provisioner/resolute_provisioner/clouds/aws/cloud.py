"""Amazon EC2. A machine is one RunInstances call with a client token, found again by its tags.

A call a machine and not a fleet: see docs/adr on launches. The state of a machine is that of DescribeInstances.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from resolute.errors import InvalidInput
from resolute_provisioner.clouds.aws.calls import SDK_ERRORS, STATE_REASONS, Ec2, cloud_error, error_code
from resolute_provisioner.clouds.aws.request import (
    CLUSTER_TAG,
    INSTANCE_TAG,
    POOL_TAG,
    TOKEN_TAG,
    AwsSettings,
    render_launch_request,
)
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
from resolute_provisioner.model import Observed

log = logging.getLogger(__name__)

LISTING_LAG_S = 30.0
"""Time for which a new machine may be missing from the list; EC2 promises no bound, this is an observed value."""

POLL_S = 5.0
PAGE = 500
TERMINATED_AT_ONCE = 100

OBSERVED: Mapping[str, Observed] = {
    "pending": Observed.PENDING,
    "running": Observed.RUNNING,
    "shutting-down": Observed.STOPPING,
    "stopping": Observed.STOPPING,
    "stopped": Observed.STOPPING,
    "terminated": Observed.GONE,
}

INTERRUPTED = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
UNKNOWN_MACHINE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")

_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


class AwsCloud:
    """Implements the `Cloud` contract. It has no state that cannot be queried again."""

    def __init__(self, settings: AwsSettings, ec2: Ec2, *, page: int = PAGE) -> None:
        """`page`: machines that are listed at once."""
        self._settings = settings
        self._ec2 = ec2
        self._page = page
        self._root_device = ""

    @property
    def capabilities(self) -> CloudCapabilities:
        return CloudCapabilities(name="aws", gives_notice=True, listing_lag_s=LISTING_LAG_S, poll_s=POLL_S)

    async def launch(self, request: LaunchRequest) -> Launched:
        root_device = await self._find_root_device()
        try:
            parameters = render_launch_request(request, self._settings, root_device=root_device)
        except InvalidInput as error:
            raise BadRequest(str(error)) from error
        try:
            answer = await self._ec2.call("run_instances", **parameters)
        except SDK_ERRORS as error:
            if error_code(error) != "IdempotentParameterMismatch":
                raise cloud_error(error) from error
            # The machine was requested before, when configuration or version of the master were others.
            return await self._launched_before(request)
        machine = answer["Instances"][0]
        if _tags(machine).get(TOKEN_TAG) != request.token:
            raise BadRequest(f"instance {request.instance_id} was already launched with another token")
        return _launched(machine)

    async def terminate(self, provider_ids: Collection[str]) -> None:
        ids = sorted(provider_ids)
        for start in range(0, len(ids), TERMINATED_AT_ONCE):
            await self._terminate(ids[start : start + TERMINATED_AT_ONCE])

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        found = await self._describe({CLUSTER_TAG: cluster})
        await self._end_stopped([each["InstanceId"] for each in found if each["State"]["Name"] == "stopped"])
        machines = [_as_listed(each) for each in found if _tags(each).get(CLUSTER_TAG) == cluster]
        return tuple(sorted(machines, key=lambda each: each.provider_id))

    async def _end_stopped(self, ids: Sequence[str]) -> None:
        """Ends stopped machines. Only an operator can have stopped them: such a machine never returns to work, and its disk is
        paid."""
        try:
            await self.terminate(ids)
        except CloudError as error:
            log.warning("machines that were stopped are not terminated yet: %s", error)  # the next list tries again

    async def _terminate(self, ids: Sequence[str]) -> None:
        """Ends machines. EC2 accepts all ids of a call or none, so an unknown id is found by single calls."""
        try:
            await self._ec2.call("terminate_instances", InstanceIds=list(ids))
        except SDK_ERRORS as error:
            if error_code(error) not in UNKNOWN_MACHINE:
                raise _later(error) from error
            if len(ids) > 1:
                for each in ids:
                    await self._terminate([each])

    async def _describe(self, tags: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """The machines with these tags. Raises `Transient` or `Throttled`."""
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        try:
            reservations = await self._ec2.pages("describe_instances", "Reservations", page=self._page, Filters=filters)
        except SDK_ERRORS as error:
            raise _later(error) from error
        return [machine for reservation in reservations for machine in reservation["Instances"]]

    async def _launched_before(self, request: LaunchRequest) -> Launched:
        found = await self._describe({CLUSTER_TAG: request.cluster, INSTANCE_TAG: request.instance_id})
        if not found:
            raise Transient(f"{request.instance_id} was requested before with other parameters, and is not listed yet")
        for machine in found:
            if _tags(machine).get(TOKEN_TAG) == request.token:
                return _launched(machine)
        raise BadRequest(f"instance {request.instance_id} was already launched with another token")

    async def _find_root_device(self) -> str:
        """The image's name of its root disk, queried once. Raises a `CloudError`."""
        image = self._settings.image_id
        if self._root_device or image.startswith("resolve:"):
            return self._root_device or "/dev/sda1"
        try:
            answer = await self._ec2.call("describe_images", ImageIds=[image])
        except SDK_ERRORS as error:
            if error_code(error) == "UnauthorizedOperation":
                log.warning("ec2:DescribeImages is not allowed: the root disk of %s is taken to be /dev/sda1", image)
                self._root_device = "/dev/sda1"
                return self._root_device
            raise cloud_error(error) from error
        images = answer.get("Images") or [{}]
        self._root_device = images[0].get("RootDeviceName") or "/dev/sda1"
        return self._root_device


def _later(error: Exception) -> CloudError:
    """The error of a listing or an end, which can only be repeated."""
    known = cloud_error(error)
    return known if isinstance(known, Throttled) else Transient(str(known))


def _tags(machine: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in machine.get("Tags", ())}


def _observed(machine: Mapping[str, Any]) -> Observed:
    return OBSERVED.get(machine["State"]["Name"], Observed.UNKNOWN)


def _launched(machine: Mapping[str, Any]) -> Launched:
    return Launched(
        provider_id=machine["InstanceId"],
        observed=_observed(machine),
        paid_from=_paid_from(machine, _observed(machine)),
    )


def _paid_from(machine: Mapping[str, Any], observed: Observed) -> datetime | None:
    """Start of the bill. It is the state running, a few seconds after the launch, whose time is the only one that EC2 reports:
    the booked amount is never less than the paid one."""
    return None if observed is Observed.PENDING else _launch_time(machine)


def _launch_time(machine: Mapping[str, Any]) -> datetime | None:
    at = machine.get("LaunchTime")
    return at.astimezone(UTC) if isinstance(at, datetime) else None


def _as_listed(machine: Mapping[str, Any]) -> CloudInstance:
    tags = _tags(machine)
    observed = _observed(machine)
    reason = machine.get("StateReason") or {}
    code = reason.get("Code", "")
    paid_until = _ended_at(machine) if observed is Observed.GONE else None
    refusal = STATE_REASONS.get(code) if observed is Observed.GONE else None
    return CloudInstance(
        provider_id=machine["InstanceId"],
        token=tags.get(TOKEN_TAG, ""),
        instance_id=tags.get(INSTANCE_TAG, ""),
        pool=tags.get(POOL_TAG, ""),
        observed=observed,
        requested_at=_launch_time(machine),
        # A launch that failed after it was granted has cost nothing.
        paid_from=None if refusal is not None else _paid_from(machine, observed),
        paid_until=None if refusal is not None else paid_until,
        message=_message(machine, code, reason.get("Message", "")),
        refusal=refusal,
    )


def _message(machine: Mapping[str, Any], code: str, text: str) -> str:
    if code in INTERRUPTED:
        return f"interrupted by EC2: {text or code}"
    if code == "Client.InstanceInitiatedShutdown":
        return f"the machine powered itself off ({text or code})"
    if machine["State"]["Name"] == "stopped":
        return f"the machine was stopped from outside, and is terminated ({text or code})"
    return text or code


def _ended_at(machine: Mapping[str, Any]) -> datetime | None:
    found = _ENDED_AT.search(machine.get("StateTransitionReason", ""))
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if found else None
