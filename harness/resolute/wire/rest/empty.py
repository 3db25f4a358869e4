"""The message without fields: the answer of calls that only do something."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """`{}`"""
