"""Plants a unique secret in every field that the models mark as secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from resolute.config.base import SecretMark
from resolute.config.masking import Place

WORD = "SeededSecret"
"""Common part of all seeded values, so that one search finds them all."""


class SecretSeeder:
    """Creates values with unique secrets; `seeded` contains their places."""

    def __init__(self) -> None:
        self.seeded: dict[str, str] = {}
        self._numbers = count(1)

    def secret(self, where: str) -> str:
        value = f"{WORD}{next(self._numbers):04}"
        self.seeded[value] = where
        return value

    def block(self, place: Place, where: str = "") -> Any:
        """A configuration with a secret in every place."""
        match place.mark:
            case SecretMark.STARRED | SecretMark.LEFT_OUT:
                return self.secret(where)
            case SecretMark.VARIABLES:
                return {kind: self.assignments(f"{where}.{kind}") for kind in ("cpu", "cuda", "rocm")}
            case SecretMark.DATA:
                return {"secrets": {"key": self.secret(f"{where}.secrets"), "deep": {"x": self.secret(where)}}}
            case SecretMark.FREE:
                variable = {"name": "REGISTRY_TOKEN", "value": self.secret(where)}
                return {"containers": [{"env": [variable]}], "password": self.secret(where)}
        found = {key: self.block(inner, f"{where}.{key}") for key, inner in place.keys.items()}
        if place.each is None:
            return found
        return [self.block(place.each, f"{where}[]")]

    def assignments(self, where: str) -> list[str]:
        """Variables with every common kind of name, and the address of a proxy."""
        names = ("HF_TOKEN", "WANDB_API_KEY", "db_password", "AWS_SECRET_ACCESS_KEY", "SLACK_WEBHOOK_URL")
        values = [f"{name}={self.secret(f'{where} {name}')}" for name in names]
        address = f"HTTPS_PROXY=http://user:{self.secret(f'{where} HTTPS_PROXY')}@proxy:3128"
        return [*values, address, "PLAIN=is shown"]


def over(config: Mapping[str, Any], seeded: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the seeded values."""
    both = {**seeded, **config}
    for key in config.keys() & seeded.keys():
        if isinstance(config[key], Mapping) and isinstance(seeded[key], Mapping):
            both[key] = over(config[key], seeded[key])
        else:
            both[key] = seeded[key]
    return both


def paths_of(place: Place, path: str = "") -> Iterator[tuple[str, SecretMark]]:
    """Every marked field as a dotted path, with `[]` for entries."""
    if place.mark is not None:
        yield path, place.mark
    for key, inner in place.keys.items():
        yield from paths_of(inner, f"{path}.{key}" if path else key)
    if place.each is not None:
        yield from paths_of(place.each, f"{path}[]")
