"""The cloud port: three verbs, typed refusals, and a contract that survives lost replies and restarts.

CloudError
├── NoCapacity      none of these machines now: back off this offer, try another
├── QuotaExceeded   the account may not have more: stop requests, notify the operator
├── BadRequest      our configuration is wrong: a retry cannot help
├── Transient       no answer, or one that says "later": ask again with the same token
└── Throttled       we ask too often: ask again with the same token, and ask less
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol

from resolute.errors import ResoluteError
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.model import Observed, Offer, RefusalKind


class CloudError(ResoluteError):
    """A call of a cloud failed. The text is the cloud's own if it gave one."""

    kind: ClassVar[RefusalKind]


class NoCapacity(CloudError):
    kind = RefusalKind.NO_CAPACITY


class QuotaExceeded(CloudError):
    kind = RefusalKind.QUOTA_EXCEEDED


class BadRequest(CloudError):
    kind = RefusalKind.BAD_REQUEST


class Transient(CloudError):
    kind = RefusalKind.TRANSIENT


class Throttled(CloudError):
    kind = RefusalKind.THROTTLED


CLOUD_ERRORS: Mapping[RefusalKind, type[CloudError]] = {
    error.kind: error for error in (NoCapacity, QuotaExceeded, BadRequest, Transient, Throttled)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One machine, completely described before the cloud is asked."""

    token: str
    """Identifies this request permanently: a repeated request never gives a second machine."""
    instance_id: str
    """The master's name of the machine. A cloud that permits it uses it as its own."""
    cluster: str
    """The tag by which `list` finds the machine again."""
    pool: str
    offer: Offer
    boot: MachineBoot
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The cloud's answer: the machine of this token, also when it was requested earlier."""

    provider_id: str
    observed: Observed
    paid_from: datetime | None
    """When the cloud began to charge for it; None while it does not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInstance:
    """One machine as the cloud lists it."""

    provider_id: str
    token: str
    """The token; "" if a machine has the cluster's tag and no token of the provisioner."""
    instance_id: str
    pool: str
    observed: Observed
    requested_at: datetime | None = None
    paid_from: datetime | None = None
    paid_until: datetime | None = None
    """When the cloud stopped charging; None while it runs and if the cloud does not report it."""
    message: str = ""
    """The cloud's message about its state, for example the reason of its end."""
    refusal: RefusalKind | None = None
    """The class of the refusal, if the machine ended before it was usable and the cloud reports a refusal as the reason;
    otherwise None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudCapabilities:
    """Properties of a cloud that a caller may rely on."""

    name: str
    gives_notice: bool
    """Whether machines may announce their interruption."""
    listing_lag_s: float
    """Time after the answer of `launch` for which a machine may be missing from `list`."""
    poll_s: float
    """A sensible time between two listings while machines start or end."""
    concurrent_launches: int = 8
    """Most concurrent launches. It is larger where a launch takes long because it waits for the cloud."""


class Cloud(Protocol):
    """Launches, ends and lists the machines of one account.

    Contract, tested by the conformance suite:

    - `launch` is idempotent by token: a second call, at once or after a restart of the caller, by any process, gives
      the same machine, even when that machine has ended meanwhile. A token is remembered at least an hour past its
      machine's end. The same `instance_id` under another token is a `BadRequest`.
    - A refusal (`NoCapacity`, `QuotaExceeded`, `BadRequest`) means that no machine came of this call. `Transient` and
      `Throttled` mean nothing: there may be one of an earlier call. Only a repeated call with the same token, or `list`, shows it.
    - A caller killed at any point of `launch` leaves either no trace or a machine that `list` shows with its token.
    - `terminate` of a machine that is gone, or was never there, succeeds. Its success says that the cloud has taken
      the order, not that the machine is gone: repeat it until `list` says so.
    - `list` gives every machine of the cluster that is not gone (within `listing_lag_s`), and for a while those that
      are. It never gives a machine of another cluster. The order is that of `provider_id`.
    - Nothing is kept in the implementation that the next process could not find again.
    """

    @property
    def capabilities(self) -> CloudCapabilities: ...

    async def launch(self, request: LaunchRequest) -> Launched:
        """Launches a machine, or finds the machine of the token. Raises a `CloudError`."""
        ...

    async def terminate(self, provider_ids: Collection[str]) -> None:
        """Orders the end of machines. Raises `Transient` or `Throttled` if the cloud may not have accepted the order for some of
        them."""
        ...

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        """Lists the machines of a cluster. Raises `Transient` or `Throttled`."""
        ...
