"""Builders for provisioning tests: a pool, machines in every state, gangs, and launch requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from resolute.wire.states import NoticeKind
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import LaunchRequest
from resolute_provisioner.model import (
    Demand,
    Gang,
    InstanceNotice,
    InstanceView,
    Intent,
    Market,
    Observed,
    Offer,
    PoolScaling,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def an_offer(name: str = "small", *, slots: int = 2, price: float | None = 1.0) -> Offer:
    return Offer(
        offer_id=name,
        instance_type=f"type-{name}",
        zone="zone-a",
        market=Market.SPOT,
        slots=slots,
        price_per_hour=price,
    )


def a_pool(*offers: Offer, low: int = 0, high: int = 5, idle_s: float = 300.0, max_aux: int = 4) -> PoolScaling:
    return PoolScaling(
        pool="default",
        offers=offers or (an_offer(),),
        min_instances=low,
        max_instances=high,
        idle_timeout_s=idle_s,
        boot_timeout_s=120.0,
        max_aux_per_instance=max_aux,
    )


def starting(name: str, *, slots: int = 2, asked_s: float = 10.0, reserved_for: tuple[str, ...] = ()) -> InstanceView:
    return InstanceView(
        instance_id=name,
        token=f"token-{name}",
        offer_id="small",
        slots=slots,
        intent=Intent.RUN,
        observed=Observed.PENDING,
        requested_at=ago(asked_s),
        reserved_for=reserved_for,
    )


def joined(
    name: str,
    *,
    slots: int = 2,
    used: int = 0,
    closed: int = 0,
    aux: int = 0,
    idle_s: float = 1.0,
    away_s: float | None = None,
    notice_s: float | None = None,
    draining_s: float | None = None,
    occupants: tuple[str, ...] = (),
    offer: str = "small",
) -> InstanceView:
    """A machine with a joined agent; `notice_s` is the time to its announced end. `closed` used slots are disabled and not part of
    `slots`."""
    notice = None
    if notice_s is not None:
        notice = InstanceNotice(kind=NoticeKind.INTERRUPTION, deadline=after(notice_s))
    return InstanceView(
        instance_id=name,
        token=f"token-{name}",
        offer_id=offer,
        slots=slots,
        intent=Intent.RUN,
        observed=Observed.RUNNING,
        requested_at=ago(3600),
        launched_at=ago(3590),
        joined_at=ago(3500),
        agent_connected=away_s is None,
        disconnected_since=None if away_s is None else ago(away_s),
        slots_in_use=used,
        closed_slots_in_use=closed,
        aux_in_use=aux,
        occupants=occupants,
        idle_since=None if used or aux else ago(idle_s),
        notice=notice,
        draining_since=None if draining_s is None else ago(draining_s),
    )


def a_gang(
    token: str,
    slots: int = 2,
    *,
    single: bool = False,
    each: int | None = None,
    priority: int = 42,
    excluded: frozenset[str] = frozenset(),
) -> Gang:
    return Gang(
        token=token,
        slots=slots,
        submitted_at=ago(60),
        single_machine=single,
        slots_per_machine=each,
        priority=priority,
        excluded_instances=excluded,
    )


def demand(*gangs: Gang) -> Demand:
    return Demand(gangs=gangs)


def a_request(
    name: str = "i-1", *, token: str | None = None, cluster: str = "cluster-1", offer: Offer | None = None
) -> LaunchRequest:
    return LaunchRequest(
        token=token or f"token-{name}",
        instance_id=name,
        cluster=cluster,
        pool="default",
        offer=offer or an_offer(),
        boot=MachineBoot(
            master_url="http://127.0.0.1:8080",
            agent_id=name,
            resource_pool="default",
            instance_id=name,
            join_token="secret",
            artificial_slots=2,
        ),
    )
