"""The calls to EC2: the synchronous SDK in threads of its own, its errors turned into ours. Nothing here repeats a call:
the caller decides whether to retry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.parsers import ResponseParserError

from resolute_provisioner.clouds.base import BadRequest, CloudError, NoCapacity, QuotaExceeded, Throttled, Transient
from resolute_provisioner.model import RefusalKind

Result = TypeVar("Result")

CONCURRENT_CALLS = 8
"""Number of concurrent calls: as many as a reconciler has launches in progress."""

CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 30.0
"""Timeouts of a call. EC2 answers a launch in seconds; a slower call is repeated with the same token."""

NO_CAPACITY_CODES = frozenset(
    {
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "Unsupported",  # of a type that a zone does not have: another zone may
    }
)
QUOTA_CODES = frozenset(
    {
        "AddressLimitExceeded",
        "AttachmentLimitExceeded",
        "InstanceLimitExceeded",
        "MaxIOPSLimitExceeded",
        "MaxSpotFleetRequestCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "NetworkInterfaceLimitExceeded",
        "PendingVerification",
        "SecurityGroupLimitExceeded",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    }
)
THROTTLED_CODES = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
LATER_CODES = frozenset(
    {
        "ExpiredToken",  # of a role: the SDK fetches another one
        "IdempotentParameterMismatch",  # the caller looks for the machine; without one nothing is known
        "InternalError",
        "InternalFailure",
        "RequestExpired",
        "ResourceNotReady",
        "ServerInternal",
        "ServiceUnavailable",
        "Unavailable",
    }
)
STATE_REASONS: Mapping[str, RefusalKind] = {
    "Server.InsufficientInstanceCapacity": RefusalKind.NO_CAPACITY,
    "Client.VolumeLimitExceeded": RefusalKind.QUOTA_EXCEEDED,
    "Client.InternalError": RefusalKind.BAD_REQUEST,  # the volume's key may not be used, most of the time
    "Client.InvalidSnapshot.NotFound": RefusalKind.BAD_REQUEST,
    "Server.InternalError": RefusalKind.TRANSIENT,
}
"""Reasons for which a granted machine ends before it runs."""


def error_code(error: BaseException) -> str:
    """EC2's code of an error; empty if it is not an error of EC2."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def cloud_error(error: Exception) -> CloudError:
    """The project's error for a failed call of the SDK."""
    if isinstance(error, ClientError):
        code = error_code(error)
        text = f"{code}: {error.response.get('Error', {}).get('Message', '')}".strip()
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
        return _class_of(code, status)(text)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | NoRegionError | ProfileNotFound):
        return BadRequest(
            f"{error}; give the master's machine a role, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if isinstance(error, ParamValidationError):
        return BadRequest(str(error))
    return Transient(str(error) or type(error).__name__)


def _class_of(code: str, status: int) -> type[CloudError]:
    if code in NO_CAPACITY_CODES:
        return NoCapacity
    if code in QUOTA_CODES:
        return QuotaExceeded
    if code in THROTTLED_CODES:
        return Throttled
    # A code that is not known here, of a request that was understood, is for a person to look at.
    return Transient if code in LATER_CODES or status >= 500 or not code else BadRequest


@cache
def _session() -> Session:
    """The session of the process, which has read the description of EC2 (a third of a second) and the credentials."""
    return Session()


class Ec2:
    """One region of the account. The credentials are those of the SDK's usual chain."""

    def __init__(self, region: str, *, endpoint_url: str = "") -> None:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": 1, "mode": "standard"},
            max_pool_connections=CONCURRENT_CALLS,
            user_agent_appid="resolute",
        )
        self.region = region
        self._client = _session().client("ec2", region_name=region, endpoint_url=endpoint_url or None, config=config)
        self._threads = ThreadPoolExecutor(max_workers=CONCURRENT_CALLS, thread_name_prefix="ec2")

    async def call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """Makes one call by the SDK's name of it (`run_instances`). Raises the errors of the SDK: see `cloud_error`."""
        return await self._in_thread(lambda: getattr(self._client, operation)(**parameters))

    async def pages(
        self, operation: str, key: str, *, page: int, most: int | None = None, **parameters: Any
    ) -> list[Any]:
        """The values of `key` in all pages of a listing, at most the first `most`. Raises the errors of the SDK."""

        def read() -> list[Any]:
            found: list[Any] = []
            paginator = self._client.get_paginator(operation)
            for each in paginator.paginate(**parameters, PaginationConfig={"PageSize": page}):
                found += each.get(key, ())
                if most is not None and len(found) >= most:
                    return found[:most]
            return found

        return await self._in_thread(read)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


SDK_ERRORS = (ClientError, BotoCoreError, ResponseParserError)
"""Errors of its calls."""
