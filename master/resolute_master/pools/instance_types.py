"""What AWS says of the machine types that the pools name: asked at each start, and remembered for a start without an answer.

The shipped table is what is left where there is neither. What was told is kept in a file beside the state, because the
journal can only be run again with the slots that were known then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider
from resolute.errors import InvalidInput
from resolute_master.pools.aws import aws_types
from resolute_master.pools.remembered import read_remembered, remember
from resolute_provisioner.catalogue import Catalogue, Shape, shipped
from resolute_provisioner.catalogue.source import TypeSource
from resolute_provisioner.clouds.base import CloudError

log = logging.getLogger(__name__)

FILE = "instance-types.json"
PATIENCE_S = 20.0
"""A start does not wait longer for the answer: the last one, or the table, will do."""

OpenTypes = Callable[[ResourcePool, Clock], TypeSource | None]
"""`type_source_of`, or what is composed in its place."""


def type_source_of(pool: ResourcePool, clock: Clock) -> TypeSource | None:
    """None for a pool whose cloud is not asked."""
    return aws_types(pool, pool.provider, clock) if isinstance(pool.provider, AwsProvider) else None


def remembered(config: MasterConfig) -> Catalogue:
    """The types of AWS as the last start knew them. Raises `InvalidInput` for a file that is damaged."""
    return _known(_read(_path(config)))


async def learnt(config: MasterConfig, open_types: OpenTypes, clock: Clock) -> Catalogue:
    """The types of AWS as it tells them now. The answer is on the disk before it is used."""
    if not any(isinstance(pool.provider, AwsProvider) for pool in config.resource_pools):
        return Catalogue()
    told = await asyncio.gather(*(_ask(pool, open_types, clock) for pool in config.resource_pools))
    shapes = {shape.instance_type: shape for each in told for shape in each}
    if not shapes:
        return remembered(config)
    path = _path(config)
    before = {shape.instance_type: shape for shape in await asyncio.to_thread(_read, path)}
    after = {**before, **shapes}
    if after != before:
        await asyncio.to_thread(_write, path, after.values())
    return _known(after.values())


async def _ask(pool: ResourcePool, open_types: OpenTypes, clock: Clock) -> tuple[Shape, ...]:
    if not isinstance(pool.provider, AwsProvider):
        return ()
    named = {type_ for offer in pool.provider.offers for type_ in offer.instance_types} or {pool.provider.instance_type}
    source = await asyncio.to_thread(open_types, pool, clock)
    if source is None:
        return ()
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await source.shapes(named)
    except (CloudError, TimeoutError) as error:
        log.warning("machine types of pool %s: AWS did not tell them, the last answer holds: %s", pool.pool_name, error)
        return ()


def _known(told: Iterable[Shape]) -> Catalogue:
    """An answer that knows of no accelerators says nothing against a table that does: it may be too old for their kind."""
    table = shipped("aws")
    return table.with_shapes(
        shape
        for shape in told
        if shape.accelerators or not (known := table.shapes.get(shape.instance_type)) or not known.accelerators
    )


def _path(config: MasterConfig) -> Path:
    return Path(config.cluster_state_dir) / FILE


def _read(path: Path) -> list[Shape]:
    try:
        return [Shape(**row) for row in read_remembered(path) or ()]
    except TypeError as error:
        raise InvalidInput(
            f"{path}: what AWS has told of machine types cannot be read ({error}); remove it to ask again"
        ) from error


def _write(path: Path, shapes: Iterable[Shape]) -> None:
    remember(path, [asdict(shape) for shape in sorted(shapes, key=lambda shape: shape.instance_type)])
