"""The objects that the composition root provides to the API, each by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.ids import IdSource
from resolute_master.api.auth.authenticate import Passwords, Tokens
from resolute_master.api.auth.login_attempts import LoginAttempts
from resolute_master.api.barriers import Barriers
from resolute_master.api.http.addresses import Addresses
from resolute_master.api.http.admission import Admission
from resolute_master.api.http.limits import MAX_UPLOAD_BYTES
from resolute_master.api.queue.advice import PoolAdvices
from resolute_master.api.queue.orders import QueueOrders
from resolute_master.api.queue.starts import Starts
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.engine.engine import Engine
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.engine.reporting import Reporting
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.base import Store
from resolute_master.store.recent_code import RecentCode

Exposition = Callable[[], Awaitable[bytes]]
"""Metrics as they are now, in Prometheus's text format."""


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """Everything a handler may use. `master_id` is new with each start, `cluster_id` as old as the store."""

    engine: Engine
    store: Store
    reporting: Reporting
    clock: Clock
    ids: IdSource
    config: MasterConfig
    tokens: Tokens
    passwords: Passwords
    cluster_id: str
    master_id: str
    version: str
    join_token: JoinToken
    """The token with which machines outside of cloud pools join."""
    own_files: Sequence[str] = ()
    """Files with which the master was started, such as its configuration. No experiment may name them."""
    master_log: LogRing = field(default_factory=LogRing)
    exposition: Exposition | None = None
    """Metrics for Prometheus; None where no metrics are kept."""
    swept: asyncio.Event = field(default_factory=_set_event)
    """Set when the archives of unfinished uploads of an earlier master have been removed: until then none may be added."""
    recent_code: RecentCode = field(default_factory=RecentCode)
    """Called with the progress of uploads."""
    barriers: Barriers = field(default_factory=Barriers)
    admission: Admission = field(default_factory=Admission)
    addresses: Addresses = field(default_factory=Addresses)
    """Determines client addresses, given the trusted proxies."""
    logins: LoginAttempts = field(default_factory=LoginAttempts)
    starts: Starts = field(default_factory=Starts)
    """Estimates when waiting jobs will start."""
    advices: PoolAdvices = field(default_factory=PoolAdvices)
    """Estimates what other settings of a pool would save."""
    queue_orders: QueueOrders = field(default_factory=QueueOrders)
    price_watches: Sequence[PriceWatch] = ()
    """One for each pool whose cloud publishes current prices."""
    max_request_bytes: int = MAX_UPLOAD_BYTES
    follow_grace_s: float = 1.0
    """How long a followed log stays open after its task has ended, for lines that are still on their way."""
    rendezvous_warning_s: float = 600.0
    """After this time, an incomplete rendezvous is reported in the task's log."""

    @property
    def cluster_name(self) -> str:
        return self.config.cluster_name
