"""The flags of the master's programs: every key of the configuration is one."""

from __future__ import annotations

from collections.abc import Sequence

from resolute.errors import InvalidInput


def parse_flags(arguments: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """`--key value` and `--key=value`; keys are checked against the configuration later. Raises `InvalidInput`."""
    flags: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise InvalidInput(f"unexpected argument '{word}'; flags are --key value")
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not rest:
                raise InvalidInput(f"--{key} needs a value")
            value = rest.pop(0)
        flags[key] = value
    return flags.pop("config-file", None), flags
