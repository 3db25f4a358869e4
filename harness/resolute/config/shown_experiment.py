"""The configuration of an experiment as it is shown, and the way back: what was shown is submitted again for a fork."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from resolute.config.base import SecretMark
from resolute.config.environment import DEVICE_TYPES
from resolute.config.errors import Location
from resolute.config.experiment import ExperimentConfig
from resolute.config.masking import Place, masked_values, masks_in, secrets_of
from resolute.config.secret_names import BUILT_IN_NAMES, SecretNames
from resolute.config.yaml_text import as_json, dump_yaml, load_yaml
from resolute.errors import InvalidInput

REMEMBERED_TEXT = 16 * 1024
"""Longest text whose masked form is kept for the next time: lists show the same texts again and again."""

UNREADABLE = "# This text cannot be read, and is not shown, as it may hold secrets.\n"

_VARIABLES: Location = ("environment", "environment_variables")
_COUNTS = ("save_experiment_best", "save_trial_best", "save_trial_latest")
_STORAGES = ("checkpoint_storage", "tensorboard_storage")


def mask_experiment(config: Mapping[str, Any], names: SecretNames = BUILT_IN_NAMES) -> dict[str, Any]:
    """A configuration or template, complete or as submitted, for display: secrets are replaced by a fixed mask, and the keys of
    storages left out, because a client would use them."""
    return masked_values(config, secrets_of(ExperimentConfig), names)


def mask_experiment_text(text: str, names: SecretNames = BUILT_IN_NAMES) -> str:
    """The text of a submitted configuration for display: as it is where it can hold no secret, else written again without them
    and without its comments."""
    if not _may_hold_secrets(text):
        return text
    return _masked_again(text, names) if len(text) <= REMEMBERED_TEXT else _masked(text, names)


def _masked(text: str, names: SecretNames) -> str:
    try:
        given = load_yaml(text)
    except InvalidInput:
        return UNREADABLE
    shown = mask_experiment(given, names)
    return text if shown == given else dump_yaml(shown)


_masked_again = lru_cache(maxsize=256)(_masked)


def _may_hold_secrets(text: str) -> bool:
    """Whether a key that is marked, or an address with a password, can be in it: to read YAML takes a hundred times as long.

    A key occurs in the text literally, unless it has escapes.
    """
    return "\\" in text or ("@" in text and "://" in text) or any(word in text for word in _telling_words())


@lru_cache(maxsize=1)
def _telling_words() -> tuple[str, ...]:
    return tuple(sorted(set(_words(secrets_of(ExperimentConfig)))))


def _words(place: Place) -> Iterator[str]:
    for key, inner in place.keys.items():
        if inner.mark is SecretMark.DATA:
            yield "secrets"
        elif inner.mark is not None:
            yield key
        else:
            yield from _words(inner)


# ------------------------------------------------------------------------------------------------------- the way back


def with_stored_secrets(
    submitted: Mapping[str, Any], stored: Mapping[str, Any], names: SecretNames = BUILT_IN_NAMES
) -> dict[str, Any]:
    """`submitted` with each mask in a place where `stored` is shown with the same mask replaced by the stored value, and with the
    stored keys of storages that are the same as there. Masks of other values stay."""
    restored: dict[str, Any] = as_json(submitted)
    shown = mask_experiment(stored, names)
    for path, text in masks_in(submitted):
        if path[: len(_VARIABLES)] == _VARIABLES:
            found = _stored_variable(path, text, shown, stored)
        else:
            found = _at(stored, path) if _at(shown, path) == text else None
        if found is not None:
            _put(restored, path, found)
    for name in _STORAGES:
        _add_storage_keys(restored.get(name), stored.get(name), shown.get(name))
    return restored


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _put(value: Any, path: Location, found: Any) -> None:
    *way, last = path
    _at(value, way)[last] = found


def _stored_variable(path: Location, text: str, shown: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """The assignment of a complete configuration that is shown as `text`; None where kinds of device differ in it."""
    asked = path[len(_VARIABLES)]
    kinds = DEVICE_TYPES if isinstance(asked, int) else ("cuda",) if asked == "gpu" else (asked,)
    found = {
        real
        for kind in kinds
        for seen, real in zip(
            _at(shown, (*_VARIABLES, kind)) or (), _at(stored, (*_VARIABLES, kind)) or (), strict=True
        )
        if seen == text
    }
    return found.pop() if len(found) == 1 else None


def _add_storage_keys(submitted: Any, stored: Any, shown: Any) -> None:
    """Only for the same place: the keys must not be sent to another address."""
    if not isinstance(submitted, dict) or not isinstance(stored, Mapping) or not isinstance(shown, Mapping):
        return
    keys = {key: value for key, value in stored.items() if key not in shown}
    if keys and not keys.keys() & submitted.keys() and _destination(submitted) == _destination(shown):
        submitted.update(keys)


def _destination(storage: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in storage.items() if value is not None and key not in _COUNTS}
