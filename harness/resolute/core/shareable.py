"""The part of a configuration that a checkpoint may contain: more users can read a storage than a task's environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORAGES = ("checkpoint_storage", "tensorboard_storage")
STORAGE_KEYS = frozenset({"access_key", "secret_key", "connection_string", "credential"})
ENVIRONMENT_KEYS = frozenset({"environment_variables", "registry_auth", "pod_spec"})
TOP_KEYS = frozenset({"integrations"})


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the keys that may hold secrets. To load a checkpoint takes none of them."""
    kept = {key: value for key, value in config.items() if key not in TOP_KEYS}
    for name in STORAGES:
        _leave_out(kept, name, STORAGE_KEYS)
    _leave_out(kept, "environment", ENVIRONMENT_KEYS)
    _leave_out(kept, "data", frozenset({"secrets"}))
    return kept


def _leave_out(config: dict[str, Any], block: str, keys: frozenset[str]) -> None:
    found = config.get(block)
    if isinstance(found, Mapping):
        config[block] = {key: value for key, value in found.items() if key not in keys}
