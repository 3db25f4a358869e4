"""The clouds' descriptions of the machine types that the pools name: queried at each start, stored for a start without answer.

Without either, the shipped table applies. The answers are kept in a file beside the state, because the journal can only be run
again with the slots of the time of its recording.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.errors import InvalidInput
from resolute_master.pools.policies import Types
from resolute_master.pools.remembered import read_remembered, remember
from resolute_provisioner.catalogue import Catalogue, Shape
from resolute_provisioner.catalogue.source import TypeSource
from resolute_provisioner.clouds.base import CloudError
from resolute_provisioner.clouds.driver import Driver, driver_of

log = logging.getLogger(__name__)

TIMEOUT_S = 20.0
"""A start does not wait longer for the answer: the last one, or the table, will do."""

OpenTypes = Callable[[ResourcePool, Clock], TypeSource | None]
"""`type_source_of`, or what is composed in its place."""


def type_source_of(pool: ResourcePool, clock: Clock) -> TypeSource | None:
    """The source of machine types; None for a pool whose cloud is not queried."""
    provider = pool.provider
    return None if provider is None else driver_of(provider).type_source(pool, provider, clock)


def remembered(config: MasterConfig) -> Types:
    """The types of the clouds as the last start knew them. Raises `InvalidInput` for a file that is damaged."""
    return {driver.name: _known(driver, _read(_path(config, driver), driver)) for driver in _asked(config)}


async def learnt(config: MasterConfig, open_types: OpenTypes, clock: Clock) -> Types:
    """The clouds' current types. An answer is written to the disk before it is used."""
    return {driver.name: await _learnt(config, driver, open_types, clock) for driver in _asked(config)}


async def _learnt(config: MasterConfig, driver: Driver[Any], open_types: OpenTypes, clock: Clock) -> Catalogue:
    pools = [pool for pool in config.resource_pools if pool.provider is not None and pool.provider.name == driver.name]
    told = await asyncio.gather(*(_ask(pool, driver, open_types, clock) for pool in pools))
    shapes = {shape.instance_type: shape for each in told for shape in each}
    path = _path(config, driver)
    before = {shape.instance_type: shape for shape in await asyncio.to_thread(_read, path, driver)}
    after = {**before, **shapes}
    if after != before:
        await asyncio.to_thread(_write, path, after.values())
    return _known(driver, after.values())


async def _ask(pool: ResourcePool, driver: Driver[Any], open_types: OpenTypes, clock: Clock) -> tuple[Shape, ...]:
    source = await asyncio.to_thread(open_types, pool, clock)
    if source is None:
        return ()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await source.shapes(driver.types_named(pool.provider))
    except (CloudError, TimeoutError) as error:
        log.warning(
            "machine types of pool %s: %s did not return them; the last answer is used: %s",
            pool.pool_name,
            driver.title,
            error,
        )
        return ()


def _asked(config: MasterConfig) -> list[Driver[Any]]:
    """The drivers of the pools whose clouds describe their types."""
    found = {
        pool.provider.name: driver_of(pool.provider) for pool in config.resource_pools if pool.provider is not None
    }
    return [driver for _, driver in sorted(found.items()) if driver.types_file]


def _known(driver: Driver[Any], told: Iterable[Shape]) -> Catalogue:
    """An answer without accelerators does not override a table with some: it may be too old for their kind."""
    table = driver.catalogue()
    return table.with_shapes(
        shape
        for shape in told
        if shape.accelerators or not (known := table.shapes.get(shape.instance_type)) or not known.accelerators
    )


def _path(config: MasterConfig, driver: Driver[Any]) -> Path:
    return Path(config.cluster_state_dir) / driver.types_file


def _read(path: Path, driver: Driver[Any]) -> list[Shape]:
    try:
        return [Shape(**row) for row in read_remembered(path) or ()]
    except TypeError as error:
        raise InvalidInput(
            f"{path}: the stored machine types of {driver.title} cannot be read ({error}); remove the file to query them again"
        ) from error


def _write(path: Path, shapes: Iterable[Shape]) -> None:
    remember(path, [asdict(shape) for shape in sorted(shapes, key=lambda shape: shape.instance_type)])
