"""The search methods by the name that the configuration gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.searcher.base import SearchMethod
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.random_search import RandomSearch, SingleSearch


def make(searcher: Mapping[str, Any], space: Space) -> SearchMethod:
    """The method that the configuration's `searcher` block names. Raises `InvalidInput` for one that is not there yet."""
    match searcher.get("name"):
        case "single":
            return SingleSearch(space)
        case "random":
            limit = searcher.get("max_concurrent_trials")
            return RandomSearch(
                space, max_trials=int(searcher["max_trials"]), at_once=16 if limit is None else int(limit)
            )
        case other:
            raise InvalidInput(f"searcher.name: '{other}' is not available yet; use single or random")
