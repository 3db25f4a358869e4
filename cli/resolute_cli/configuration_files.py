"""Configuration files of experiments with the overrides of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute_cli.command import UsageError


def configuration_text(path: str, overrides: list[str]) -> str:
    """The file as it is, or, with overrides, the merged configuration as YAML. Raises `UsageError`."""
    import yaml

    from resolute.config.yaml_text import load_yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the configuration {path!r}: {reason}") from None
    try:
        config = load_yaml(text, what=path)
    except InvalidInput as error:
        raise UsageError(str(error)) from None
    if not config:
        raise UsageError(f"{path} is empty; it must at least contain an entrypoint")
    if not overrides:
        return text
    for override in overrides:
        config = overlaid(config, parse_override(override))
    return yaml.safe_dump(config, sort_keys=False)


def overlaid(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the changes in it: mappings key by key, everything else as a whole, null as well."""
    merged = dict(config)
    for key, value in changes.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and (below is None or isinstance(below, Mapping)):
            merged[key] = overlaid(below or {}, value)
        else:
            merged[key] = value
    return merged


def parse_override(text: str) -> dict[str, Any]:
    """`a.b=value` as `{"a": {"b": value}}`; the value is YAML, and a list when it has commas. Raises `UsageError`."""
    from resolute.config.yaml_text import load_yaml_value

    key, equals, written = text.partition("=")
    if not equals or not all(key.split(".")):
        raise UsageError(f"--config {text!r}: write it as key=value, like searcher.max_length=100")
    try:
        if "," in written and written.strip()[:1] not in ("[", "{"):
            value: Any = [load_yaml_value(part, what=f"--config {key}") for part in written.split(",")]
        else:
            value = load_yaml_value(written, what=f"--config {key}")
    except InvalidInput as error:
        raise UsageError(str(error)) from None
    *parents, last = key.split(".")
    if last == "bind_mounts" and not isinstance(value, list):
        value = [value]
    nested: dict[str, Any] = {last: value}
    for parent in reversed(parents):
        nested = {parent: nested}
    return nested
