"""Whether the master can be given work: beyond the contract.

GET /ready            Readiness
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHealth:
    """Whether one part of the master works; `message` is the error, or the current stage."""

    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Answer of `/ready`: whether the master can be given work, and how each part is."""

    ready: bool
    stage: str
    """starting, serving or stopping."""
    parts: Mapping[str, PartHealth]
