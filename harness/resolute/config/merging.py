"""Merging configurations: a higher one over a lower one, on JSON values, before validation.

A null never wins and never hides. What cannot be merged because it has the wrong type is left as the higher side
wrote it, so that validation names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from resolute.config.environment import DEVICE_TYPES, per_device_type

Json = Any
_SEARCHER_COMMON = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")
_STORAGE_COMMON = ("save_experiment_best", "save_trial_best", "save_trial_latest")
_AZURE_CREDENTIALS = ("connection_string", "account_url", "credential")


def merge(higher: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """`higher` over `lower`, each an experiment configuration or a part of one. Neither is changed."""
    return _mappings(higher, lower, ())


def _values(higher: Json, lower: Json, path: tuple[str, ...]) -> Json:
    if higher is None:
        return lower
    if lower is None:
        return higher
    special = _SPECIAL.get(path)
    if special is not None:
        return special(higher, lower)
    if isinstance(higher, Mapping) and isinstance(lower, Mapping):
        return _mappings(higher, lower, path)
    return higher


def _mappings(higher: Mapping[str, Any], lower: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    keys = [*higher, *(key for key in lower if key not in higher)]
    return {key: _values(higher.get(key), lower.get(key), (*path, key)) for key in keys}


def _labels(higher: Json, lower: Json) -> Json:
    sides = [
        [label for label, is_set in side.items() if is_set] if isinstance(side, Mapping) else side
        for side in (higher, lower)
    ]
    if not all(isinstance(side, list) and all(isinstance(one, str) for one in side) for side in sides):
        return higher
    return sorted({*sides[0], *sides[1]})


def _lists_by(key: str) -> Callable[[Json, Json], Json]:
    """All of the higher list, then what the lower one has under other values of `key`."""

    def lists(higher: Json, lower: Json) -> Json:
        if not isinstance(higher, list) or not isinstance(lower, list):
            return higher
        taken = [_in_full(one).get(key) for one in higher]
        return [*higher, *(one for one in lower if _in_full(one).get(key) not in taken)]

    return lists


def _in_full(entry: Json) -> Mapping[str, Any]:
    """An entry of a list as a mapping: a device may be written as `/host:/container[:mode]`."""
    if isinstance(entry, str):
        return dict(zip(("host_path", "container_path", "mode"), entry.split(":"), strict=False))
    return entry if isinstance(entry, Mapping) else {}


def _variables(higher: Json, lower: Json) -> Json:
    """Per device type: the lower side's first, because later entries win when the task starts."""
    high, low = per_device_type(higher, list), per_device_type(lower, list)
    if not isinstance(high, Mapping) or not isinstance(low, Mapping):
        return higher
    merged = {**low, **high}
    for kind in DEVICE_TYPES:
        sides = [side[kind] for side in (low, high) if side.get(kind) is not None]
        if sides and all(isinstance(side, list) for side in sides):
            merged[kind] = [entry for side in sides for entry in side]
    return merged


def _images(higher: Json, lower: Json) -> Json:
    high, low = per_device_type(higher, str), per_device_type(lower, str)
    if not isinstance(high, Mapping) or not isinstance(low, Mapping):
        return higher
    return _mappings(high, low, ())


def _log_policies(higher: Json, lower: Json) -> Json:
    if not isinstance(higher, list) or not isinstance(lower, list):
        return higher
    policies = [one for one in higher if isinstance(one, Mapping)]
    names = [one.get("name") for one in policies]
    pairs = [_action_and_pattern(one) for one in policies if one.get("name") is None]
    added = [
        one
        for one in lower
        if isinstance(one, Mapping)
        and (one.get("name") not in names if one.get("name") is not None else _action_and_pattern(one) not in pairs)
    ]
    return [*higher, *added]


def _action_and_pattern(policy: Mapping[str, Any]) -> tuple[Json, Json]:
    action = policy.get("action")
    return (action.get("type") if isinstance(action, Mapping) else action), policy.get("pattern")


def _tagged(path: str, tag: str, common: tuple[str, ...]) -> Callable[[Json, Json], Json]:
    """Common keys merge one by one; the rest only where both sides mean the same member."""

    def unions(higher: Json, lower: Json) -> Json:
        if not isinstance(higher, Mapping) or not isinstance(lower, Mapping):
            return higher
        same_member = higher.get(tag) is None or higher.get(tag) == lower.get(tag)
        base = lower if same_member else {key: lower[key] for key in common if key in lower}
        if same_member and lower.get(tag) == "azure":
            base = _azure_base(higher, lower)
        return _mappings(higher, base, (path,))

    return unions


def _azure_base(higher: Mapping[str, Any], lower: Mapping[str, Any]) -> Mapping[str, Any]:
    """Credentials are taken whole from one side: half of each would name a wrong account."""
    if higher.get("connection_string") is None and higher.get("account_url") is None:
        return lower
    return {key: value for key, value in lower.items() if key not in _AZURE_CREDENTIALS}


def _lengths(higher: Json, lower: Json) -> Json:
    """A length is one value: half of each side would have two units."""
    is_empty = isinstance(higher, Mapping) and all(amount is None for amount in higher.values())
    return lower if is_empty else higher


def _hyperparameters(higher: Json, lower: Json) -> Json:
    """Groups merge; anything else is replaced whole, by a null too, which is a value of a hyperparameter like any other."""
    if not _is_group(higher) or not _is_group(lower):
        return higher
    merged = {**lower, **higher}
    for key in sorted(set(higher) & set(lower)):
        merged[key] = _hyperparameters(higher[key], lower[key])
    return merged


def _is_group(value: Json) -> bool:
    return isinstance(value, Mapping) and value.get("type") is None


def _pod_spec(higher: Json, lower: Json) -> Json:
    """Mappings merge, lists of named things are joined with the higher side's first, other values are replaced."""
    if isinstance(higher, Mapping) and isinstance(lower, Mapping):
        keys = [*higher, *(key for key in lower if key not in higher)]
        return {key: _pod_spec(higher.get(key), lower.get(key)) for key in keys}
    if _is_named_list(higher) and _is_named_list(lower):
        below = {one["name"]: one for one in lower}
        names = {one["name"] for one in higher}
        joined = [_pod_spec(one, below[one["name"]]) if one["name"] in below else one for one in higher]
        return [*joined, *(one for one in lower if one["name"] not in names)]
    return lower if higher is None else higher


def _is_named_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "name" in one for one in value)


_SPECIAL: Mapping[tuple[str, ...], Callable[[Json, Json], Json]] = {
    ("labels",): _labels,
    ("bind_mounts",): _lists_by("container_path"),
    ("resources", "devices"): _lists_by("container_path"),
    ("environment", "proxy_ports"): _lists_by("proxy_port"),
    ("environment", "environment_variables"): _variables,
    ("environment", "image"): _images,
    ("environment", "pod_spec"): _pod_spec,
    ("log_policies",): _log_policies,
    ("min_validation_period",): _lengths,
    ("min_checkpoint_period",): _lengths,
    ("searcher", "max_length"): _lengths,
    ("searcher", "budget"): _lengths,
    ("searcher",): _tagged("searcher", "name", _SEARCHER_COMMON),
    ("checkpoint_storage",): _tagged("checkpoint_storage", "type", _STORAGE_COMMON),
    ("tensorboard_storage",): _tagged("tensorboard_storage", "type", ()),
    ("hyperparameters",): _hyperparameters,
}
