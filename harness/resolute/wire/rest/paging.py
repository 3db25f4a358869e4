"""Pages of a list, in every answer that lists."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pagination:
    """Where a page lies: items `start_index` up to `end_index` of `total`. The next page begins at `end_index`."""

    end_index: int
    limit: int
    offset: int
    start_index: int
    total: int
