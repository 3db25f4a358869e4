"""The calls to Compute Engine: Google's synchronous client in threads of its own, its errors turned into ours.

Nothing here repeats a call: the caller decides whether to retry.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import requests.exceptions
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.cloud import compute_v1
from google.protobuf.json_format import ParseError

from resolute.errors import InvalidInput
from resolute_provisioner.clouds.base import BadRequest, CloudError, NoCapacity, QuotaExceeded, Throttled, Transient

Instance = compute_v1.Instance
Operation = compute_v1.Operation
Result = TypeVar("Result")

CALL_TIMEOUT_S = 30.0
CONCURRENT_CALLS = 10
"""Number of concurrent calls. A hundred machines are deleted in a few seconds; Google's client keeps at most this many
connections."""
PAGE = 500
"""Largest size of a page."""

NO_CAPACITY_CODES = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "REGION_RESOURCE_POOL_EXHAUSTED",
    "RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT",
)
"""Beginnings of codes: there are variants with details."""
NO_CAPACITY_WORDS = (
    "does not have enough resources",
    "does not have available resources",
    "is currently unavailable in the",
)
QUOTA_CODES = ("QUOTA_EXCEEDED", "QUOTAEXCEEDED", "LIMITEXCEEDED", "LIMIT_EXCEEDED")
THROTTLED_CODES = (
    "RATELIMITEXCEEDED",
    "RATE_LIMIT_EXCEEDED",
    "USERRATELIMITEXCEEDED",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "OPERATIONRATEEXCEEDED",
)
LATER_CODES = ("RESOURCENOTREADY", "RESOURCE_NOT_READY", "INTERNAL_ERROR", "BACKENDERROR", "SERVICE_UNAVAILABLE")
LATER_STATUS = (408, 425)


class NotThere(BadRequest):
    """The error for HTTP 404."""


class AlreadyThere(BadRequest):
    """The error for HTTP 409."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zones:
    """The machines found, by zone, and the zones for which the list is complete."""

    machines: Mapping[str, tuple[Instance, ...]]
    silent: frozenset[str] = frozenset()
    """Zones that did not answer."""
    asked: frozenset[str] | None = None
    """The only queried zones; None: all of the project."""

    def covers(self, zone: str) -> bool:
        """Whether a machine that is not found in the zone does not exist."""
        return zone not in self.silent and (self.asked is None or zone in self.asked)


def error_of(status: int, codes: Iterable[str], text: str) -> CloudError:
    """The class of an answer by its codes (HTTP reasons, or those of an operation's errors), then by its HTTP status.
    An unknown code without a status is undecided: `Transient`."""
    known = [code.upper() for code in codes]
    if any(code.startswith(NO_CAPACITY_CODES) for code in known) or any(word in text for word in NO_CAPACITY_WORDS):
        return NoCapacity(text)
    if status == 429 or any(code in THROTTLED_CODES for code in known):
        return Throttled(text)
    if any(code in LATER_CODES for code in known):
        return Transient(text)
    if any(code.startswith(QUOTA_CODES) for code in known):
        return QuotaExceeded(text)
    if status == 404:
        return NotThere(text)
    if status == 409:
        return AlreadyThere(text)
    if 400 <= status < 500 and status not in LATER_STATUS:
        return BadRequest(text)
    return Transient(text)


def failure_of(operation: Operation) -> CloudError | None:
    """The error of a finished operation; None if it succeeded. Warnings are not errors."""
    errors = list(operation.error.errors)
    if not errors and operation.http_error_status_code < 400:
        return None
    text = "; ".join(f"{each.code}: {each.message}" if each.message else each.code for each in errors)
    status = operation.http_error_status_code
    return error_of(status, [each.code for each in errors], text or operation.http_error_message or f"HTTP {status}")


def _translated(error: GoogleAPICallError) -> CloudError:
    reasons = [str(each.get("reason", "")) for each in error.errors if isinstance(each, Mapping)]
    return error_of(int(error.code or 0), reasons, error.message or str(error))


def parsed(body: Mapping[str, Any], *, what: str) -> Instance:
    """Raises `InvalidInput` for a property that the API does not have."""
    try:
        machine: Instance = Instance.from_json(json.dumps(body))
    except (ParseError, TypeError, ValueError) as error:
        raise InvalidInput(f"{what}: {str(error).splitlines()[0]}") from error
    return machine


class ComputeEngine:
    """One project. Every method raises a `CloudError`; without an answer it is `Transient`."""

    def __init__(self, project: str, *, endpoint: str = "", credentials: Credentials | None = None) -> None:
        """`endpoint` and `credentials` are Google's own and those of the environment when left out."""
        self.project = project
        self._threads = ThreadPoolExecutor(max_workers=CONCURRENT_CALLS, thread_name_prefix="compute-engine")
        options = ClientOptions(api_endpoint=endpoint or None)
        try:
            self._instances = compute_v1.InstancesClient(credentials=credentials, client_options=options)
            self._operations = compute_v1.ZoneOperationsClient(credentials=credentials, client_options=options)
        except GoogleAuthError as error:
            raise InvalidInput(f"no credentials for Google Cloud: {error}") from error

    def close(self) -> None:
        """Let the threads end, without waiting for a call in progress."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._instances.transport.close()  # type: ignore[no-untyped-call]
        self._operations.transport.close()  # type: ignore[no-untyped-call]

    async def insert(self, zone: str, machine: Instance, request_id: str) -> Operation:
        request = compute_v1.InsertInstanceRequest(
            project=self.project, zone=zone, instance_resource=machine, request_id=request_id
        )
        return await self._call(
            lambda: self._instances.insert_unary(request=request, retry=None, timeout=CALL_TIMEOUT_S)
        )

    async def delete(self, zone: str, name: str) -> Operation:
        request = compute_v1.DeleteInstanceRequest(project=self.project, zone=zone, instance=name)
        return await self._call(
            lambda: self._instances.delete_unary(request=request, retry=None, timeout=CALL_TIMEOUT_S)
        )

    async def get(self, zone: str, name: str) -> Instance | None:
        """A machine; None if it does not exist."""
        request = compute_v1.GetInstanceRequest(project=self.project, zone=zone, instance=name)
        try:
            return await self._call(lambda: self._instances.get(request=request, retry=None, timeout=CALL_TIMEOUT_S))
        except NotThere:
            return None

    async def operation(self, zone: str, name: str) -> Operation:
        request = compute_v1.GetZoneOperationRequest(project=self.project, zone=zone, operation=name)
        return await self._call(lambda: self._operations.get(request=request, retry=None, timeout=CALL_TIMEOUT_S))

    async def newest_operations(self, zone: str) -> tuple[Operation, ...]:
        """The newest operations of a zone (one page), newest first."""
        request = compute_v1.ListZoneOperationsRequest(
            project=self.project, zone=zone, max_results=PAGE, order_by="creationTimestamp desc"
        )

        def first_page() -> tuple[Operation, ...]:
            pages = self._operations.list(request=request, retry=None, timeout=CALL_TIMEOUT_S).pages
            return tuple(next(iter(pages)).items)

        return await self._call(first_page)

    async def labelled(self, key: str, value: str, zones: Collection[str]) -> Zones:
        """The machines with a label, in all zones of the project. When one zone spoils the answer of all, those in `zones`
        are asked one by one; raises the error of the whole when none of them answers either."""
        wanted = f'labels.{key} = "{value}"'
        try:
            return await self._call(lambda: self._everywhere(wanted))
        except Transient:
            asked = sorted(zones)
            answers = await asyncio.gather(*(self._in_zone(zone, wanted) for zone in asked))
            found = {zone: answer for zone, answer in zip(asked, answers, strict=True) if answer is not None}
            if not found:
                raise
            return Zones(machines=found, silent=frozenset(asked) - found.keys(), asked=frozenset(asked))

    def _everywhere(self, wanted: str) -> Zones:
        request = compute_v1.AggregatedListInstancesRequest(project=self.project, filter=wanted, max_results=PAGE)
        found: dict[str, tuple[Instance, ...]] = {}
        silent: set[str] = set()
        for page in self._instances.aggregated_list(request=request, retry=None, timeout=CALL_TIMEOUT_S).pages:
            silent.update(last_element(scope) for scope in page.unreachables)
            for scope, listed in page.items.items():
                zone = last_element(scope)
                found[zone] = (*found.get(zone, ()), *listed.instances)
                if listed.warning.code == "UNREACHABLE":  # type: ignore[attr-defined] # taken for the built-in
                    silent.add(zone)
        return Zones(machines=found, silent=frozenset(silent))

    async def _in_zone(self, zone: str, wanted: str) -> tuple[Instance, ...] | None:
        """The machines of a zone; None if the zone does not answer."""
        request = compute_v1.ListInstancesRequest(project=self.project, zone=zone, filter=wanted, max_results=PAGE)
        try:
            return await self._call(
                lambda: tuple(self._instances.list(request=request, retry=None, timeout=CALL_TIMEOUT_S))
            )
        except Transient:
            return None

    async def _call(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except GoogleAPICallError as error:
            raise _translated(error) from error
        except GoogleAuthError as error:
            # Whether a token is to be had later is Google's to say; a refusal for good is our configuration's fault.
            raise (Transient if error.retryable else BadRequest)(f"no access to Google Cloud: {error}") from error
        except requests.exceptions.RequestException as error:
            raise Transient(f"Compute Engine did not answer: {error}") from error
        except (ParseError, ValueError) as error:
            raise Transient(f"Compute Engine's answer could not be read: {error}") from error


def last_element(path: str) -> str:
    """The name at the end of a resource's path or URL."""
    return path.rsplit("/", 1)[-1]
