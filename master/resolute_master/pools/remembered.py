"""Facts that a start has learnt from outside and that decisions depend on: small JSON files beside the state.

The journal can only be run again with the facts of the time of its recording, which no source provides later.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from resolute.config import MasterConfig
from resolute.errors import InvalidInput
from resolute_provisioner.clouds.driver import driver_of

PLACES = "places.json"


def read_remembered(path: Path) -> Any:
    """None where there is nothing. Raises `InvalidInput` for a file that is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path}: cannot be read ({error}); remove it, and the next start writes a new one"
        ) from error


def remember(path: Path, value: Any) -> None:
    """On the disk when it returns. Raises `InvalidInput` when it cannot be."""
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise InvalidInput(
            f"cluster_state_dir: cannot write {path}: {error.strerror or error}; name a directory that can be written"
        ) from error


def remember_places(config: MasterConfig) -> None:
    """Where the pools are, of a configuration that the master's machine has completed."""
    path = Path(config.cluster_state_dir) / PLACES
    places = {
        pool.pool_name: found
        for pool in config.resource_pools
        if (provider := pool.provider) is not None
        if (found := {key: value for key in driver_of(provider).remembered_keys if (value := getattr(provider, key))})
    }
    if places and read_remembered(path) != places:
        remember(path, places)


def recalled(config: MasterConfig) -> MasterConfig:
    """The configuration with its pools where the last start found them, as far as it leaves that open."""
    places = read_remembered(Path(config.cluster_state_dir) / PLACES) or {}
    pools = []
    for pool in config.resource_pools:
        provider, found = pool.provider, places.get(pool.pool_name, {})
        keys = () if provider is None else driver_of(provider).remembered_keys
        if provider is not None and keys:
            missing = {key: found[key] for key in keys if key in found and not getattr(provider, key)}
            pool = pool.model_copy(update={"provider": provider.model_copy(update=missing)})
        pools.append(pool)
    return config.model_copy(update={"resource_pools": tuple(pools)})
