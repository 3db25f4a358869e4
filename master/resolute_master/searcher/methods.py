"""The search methods by the name that the configuration gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.searcher.grid import GridSearch
from resolute_master.searcher.halving import HalvingSearch, adaptive_brackets, one_bracket, rung_counts
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.method import SearchMethod
from resolute_master.searcher.population import Exploration, PopulationSearch
from resolute_master.searcher.proposed import ProposedSearch, SamplerSettings
from resolute_master.searcher.random_search import RandomSearch, SingleSearch

Block = Mapping[str, Any]
"""The configuration's `searcher`, complete."""

AT_ONCE = 16
"""Default number of concurrent trials."""


def make(searcher: Block, space: Space) -> SearchMethod:
    """The method that the configuration's `searcher` block names. Raises `InvalidInput` for one that cannot be run."""
    make_ = METHODS.get(str(searcher.get("name")))
    if make_ is None:
        raise InvalidInput(f"searcher.name: '{searcher.get('name')}' is not available; use one of {', '.join(METHODS)}")
    return make_(searcher, space)


def length_of(searcher: Block, key: str = "max_length") -> int | None:
    """A length as a number, whatever its unit."""
    length = searcher.get(key)
    if isinstance(length, Mapping):
        length = next(iter(length.values()), None)
    return None if length is None else int(length)


def _at_once(searcher: Block) -> int:
    limit = searcher.get("max_concurrent_trials")
    return AT_ONCE if limit is None else int(limit)


def _random(searcher: Block, space: Space) -> SearchMethod:
    return RandomSearch(
        space, max_trials=int(searcher["max_trials"]), at_once=_at_once(searcher), length=length_of(searcher)
    )


def _halving(searcher: Block, space: Space) -> SearchMethod:
    units, by_length = _units(searcher)
    divisor, trials = float(searcher.get("divisor", 4.0)), int(searcher["max_trials"])
    if searcher["name"] == "async_halving":
        rungs = int(searcher["num_rungs"])
        brackets = [
            one_bracket(num_rungs=rungs, divisor=divisor, max_trials=trials, units=units, at_once=_at_once(searcher))
        ]
    else:
        counts = rung_counts(
            mode=str(searcher.get("mode", "standard")),
            max_rungs=int(searcher.get("max_rungs", 5)),
            bracket_rungs=[int(each) for each in searcher.get("bracket_rungs") or ()],
            divisor=divisor,
            max_trials=trials,
            units=units,
        )
        brackets = adaptive_brackets(
            counts, divisor=divisor, max_trials=trials, units=units, at_once=_at_once(searcher)
        )
    return HalvingSearch(
        space,
        brackets,
        smaller_is_better=bool(searcher.get("smaller_is_better", True)),
        by_length=by_length,
        promotes=not searcher.get("stop_once"),
        length=None if by_length else length_of(searcher),
    )


def _population(searcher: Block, space: Space) -> SearchMethod:
    replaces, explores = searcher.get("replace_function") or {}, searcher.get("explore_function") or {}
    exploration = Exploration(
        resample_probability=float(explores.get("resample_probability", 0.25)),
        perturb_factor=float(explores.get("perturb_factor", 0.2)),
    )
    return PopulationSearch(
        space,
        size=int(searcher["population_size"]),
        rounds=int(searcher["num_rounds"]),
        length=length_of(searcher, "length_per_round") or 0,
        truncated=float(replaces.get("truncate_fraction", 0.2)),
        exploration=exploration,
        smaller_is_better=bool(searcher.get("smaller_is_better", True)),
    )


def _proposed(searcher: Block, space: Space) -> SearchMethod:
    sampler = SamplerSettings(
        sampler=str(searcher.get("sampler", "tpe")),
        multivariate=bool(searcher.get("multivariate", False)),
        smaller_is_better=bool(searcher.get("smaller_is_better", True)),
    )
    return ProposedSearch(
        space,
        max_trials=int(searcher["max_trials"]),
        limit=_at_once(searcher),
        drawn=int(searcher.get("random_trials", 10)),
        sampler=sampler,
        length=length_of(searcher),
    )


def _units(searcher: Block) -> tuple[int, bool]:
    """The length of the longest trials, and whether trials get it as a length."""
    if searcher.get("max_time") is not None and searcher.get("time_metric"):
        if int(searcher["max_time"]) < 1:
            raise InvalidInput(f"searcher.max_time: must be at least 1, not {searcher['max_time']}")
        return int(searcher["max_time"]), False
    length = length_of(searcher)
    if not length:
        raise InvalidInput(
            f"searcher: {searcher['name']} needs max_time and time_metric, or a max_length of at least 1 where the training "
            "code asks for lengths; give one of the two"
        )
    return length, True


METHODS: Mapping[str, Callable[[Block, Space], SearchMethod]] = {
    "single": lambda searcher, space: SingleSearch(space, length=length_of(searcher)),
    "random": _random,
    "grid": lambda searcher, space: GridSearch(space, at_once=_at_once(searcher), length=length_of(searcher)),
    "async_halving": _halving,
    "adaptive_asha": _halving,
    "pbt": _population,
    "optuna": _proposed,
}
"""Constructors of the methods, from a complete `searcher` block and the search space."""
