"""`det pool offers` shows what an elastic pool may buy, of a master or of a file; `det pool validate` checks a file."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from resolute.clock import SystemClock
from resolute.errors import InvalidInput
from resolute.wire.codec import to_wire
from resolute.wire.rest.offers import GetPoolOffersResponse, PoolOffer
from resolute_cli.command import Command, UsageError
from resolute_cli.invocation import Invocation
from resolute_cli.loading import loading
from resolute_cli.pool_savings import savings, sentences
from resolute_cli.render import duration_text, price_text

COLUMNS = ("#", "Offer", "Slots", "Price/h", "Expected/h", "Price From", "Machines", "Now", "Learnt")


def offers(cli: Invocation, args: argparse.Namespace) -> None:
    if args.config is None:
        if args.pool_name is None:
            raise UsageError("name the pool, or a file with --config")
        _show(cli, cli.api().queue.offers(args.pool_name))
        return
    found = _offers_in(args.config, args.pool_name)
    if not found:
        raise InvalidInput(f"{args.config}: no pool of it has a provider, so that nothing would be bought")
    if len(found) > 1:
        names = ", ".join(pool.pool for pool in found)
        raise UsageError(f"{args.config} has several elastic pools; name one of {names}")
    _show(cli, found[0])


def validate(cli: Invocation, args: argparse.Namespace) -> None:
    found = _offers_in(args.file)
    if cli.render.format == "json":
        cli.render.value([{**to_wire(pool), "savings": savings(args.file, pool.pool, args.jobs)} for pool in found])
        return
    for pool in found:
        cli.render.line(f"{pool.pool}: {_summary(pool)}")
        for text in _remarks(pool):
            cli.render.line(f"  {text}")
        saved = savings(args.file, pool.pool, args.jobs)
        for text in () if saved is None else sentences(saved, args.jobs):
            cli.render.line(f"  {text}")
    if not found:
        cli.render.line(f"{args.file} is right; no pool of it has a provider, so that nothing would be bought")


def _show(cli: Invocation, pool: GetPoolOffersResponse) -> None:
    rows = [_row(place, offer, pool.now) for place, offer in enumerate(pool.offers, start=1)]
    cli.render.table(COLUMNS, rows, pool)
    for text in _remarks(pool):
        cli.render.note(text)


def _row(place: int, offer: PoolOffer, now: datetime) -> tuple[object, ...]:
    return (
        place,
        offer.id,
        offer.slots,
        price_text(offer.price),
        price_text(offer.expected_price),
        _price_source(offer, now),
        offer.machines,
        _now(offer, now),
        "; ".join(_observations(offer, now)),
    )


def _price_source(offer: PoolOffer, now: datetime) -> str:
    if offer.price_as_of is None:
        return offer.price_source
    return f"{offer.price_source}, since {_span(offer.price_as_of, now)}"


def _now(offer: PoolOffer, now: datetime) -> str:
    if not offer.blocked:
        return "may be requested"
    if offer.blocked_until is None:
        return f"not asked for: {offer.blocked}"
    return f"not for {_span(now, offer.blocked_until)}: {offer.blocked}"


def _observations(offer: PoolOffer, now: datetime) -> Iterator[str]:
    if offer.launches:
        yield f"{offer.launches} launch{'es' if offer.launches != 1 else ''}"
    if offer.join_time_s is not None:
        yield f"joins in {duration_text(offer.join_time_s)}"
    if offer.interruptions:
        yield f"{offer.interruptions} interruption{'s' if offer.interruptions != 1 else ''}"
    if offer.boot_failures:
        yield f"{offer.boot_failures} in a row never joined or brought too few slots"
    if offer.last_refusal_at is not None:
        yield f"refused {_span(offer.last_refusal_at, now)} ago ({offer.last_refusal})"


def _span(start: datetime, end: datetime) -> str:
    """Whole seconds, and of long spans the largest units."""
    seconds = max(0.0, (end - start).total_seconds())
    if seconds < 3600:
        return duration_text(float(round(seconds))).replace(".0s", "s")
    return f"{seconds / 3600:.0f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


def _summary(pool: GetPoolOffersResponse) -> str:
    sizes = Counter(offer.slots for offer in pool.offers)
    kinds = ", ".join(f"{count} with {slots} slot{'s' if slots != 1 else ''}" for slots, count in sorted(sizes.items()))
    offers_ = "1 offer" if len(pool.offers) == 1 else f"{len(pool.offers)} offers"
    return f"{offers_} ({kinds}), {pool.min_instances} to {pool.max_instances} machines"


def _remarks(pool: GetPoolOffersResponse) -> Iterator[str]:
    """Notes beside the rows."""
    if not pool.offers:
        yield f"Pool {pool.pool} has no provider, and so buys no machines."
        return
    unknown = [offer for offer in pool.offers if offer.price is None]
    spot = sum(offer.market == "spot" for offer in unknown)
    if unknown:
        asked = ""
        if spot and pool.asks_prices_of:
            asked = f" The master asks {pool.asks_prices_of} for the prices of the {spot} on the spot market."
        yield (
            f"{len(unknown)} of {len(pool.offers)} prices are unknown; such offers are tried last, and their cost is not "
            f"counted. Set `prices`, or `price` and `spot_price` in offers.{asked}"
        )
    if all(offer.slots == 0 for offer in pool.offers):
        yield "No machine of it has slots: work with slots waits here for ever. Name types with GPUs, or set cpu_slots_allowed."
    if pool.left_to_master:
        yield (
            f"Left to the machine that the master runs on: {', '.join(pool.left_to_master)}. A master that is not in that "
            "cloud may refuse to start: name them."
        )
    watch = pool.prices
    if watch is not None and watch.error:
        yield f"Prices of the moment cannot be had, {watch.failures} time(s) in a row ({watch.source}): {watch.error}"
    if pool.retired:
        yield f"Machines whose offer has left the configuration, until they are idle: {', '.join(pool.retired)}"


def _offers_in(file: Path, pool_name: str | None = None) -> Sequence[GetPoolOffersResponse]:
    """As a master reads its pools: by a part of it that needs none of what a master needs."""
    with loading("the reader of pools"):
        from resolute_master.pools import pool_file
    return pool_file.offers_in(file, SystemClock().now(), pool_name)


def _offers_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool_name", nargs="?", help="name of the resource pool")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="read the pool from a master's configuration, or from a file with one pool, without a master",
    )


OFFERS = Command(
    name="offers",
    help="list what an elastic pool may buy",
    run=offers,
    arguments=_offers_arguments,
    formats=("json", "csv"),
)


def _validate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file")
    parser.add_argument(
        "--jobs",
        type=Path,
        metavar="JOBS.csv",
        help="past jobs of the pool, in the format of 'det simulate', to simulate what other machine types and settings would "
        "save; without it, a sample of jobs is simulated for pools with one machine type",
    )


VALIDATE = Command(name="validate", help="check the pools of a file", run=validate, arguments=_validate_arguments)
