"""How the trials of an experiment are chosen."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    Integer,
    NonEmptyText,
    Number,
    PositiveInteger,
    TaggedUnion,
    Text,
)
from resolute.config.lengths import PositiveLength, SearcherLength, Unit

Mode = Literal["aggressive", "standard", "conservative"]
Divisor = Annotated[Number, Field(gt=1)]

SEARCHER_NAMES = (
    "single",
    "random",
    "grid",
    "async_halving",
    "adaptive_asha",
    "pbt",
    "optuna",
    "custom",
    "sync_halving",
    "adaptive",
    "adaptive_simple",
)


class _Searcher(ConfigModel):
    """What every search method has."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"max_length"})

    metric: NonEmptyText
    """The validation metric that ranks trials."""
    smaller_is_better: Flag = True
    """Whether a smaller metric is a better one."""
    source_trial_id: Integer | None = None
    """Start from the newest checkpoint of this trial; takes precedence over `source_checkpoint_uuid`."""
    source_checkpoint_uuid: Text | None = None
    """Start from this checkpoint."""


class SingleSearcher(_Searcher):
    """One trial."""

    name: Literal["single"] = "single"
    """Tag of the search method."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


class RandomSearcher(_Searcher):
    """Trials drawn at random."""

    name: Literal["random"] = "random"
    """Tag of the search method."""
    max_trials: PositiveInteger
    """Total number of trials."""
    max_concurrent_trials: Count = 16
    """Number of concurrent trials; 0 means all, or a default of the search."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


class GridSearcher(_Searcher):
    """Every point of the grid."""

    name: Literal["grid"] = "grid"
    """Tag of the search method."""
    max_concurrent_trials: Count = 16
    """Number of concurrent trials; 0 means all, or a default of the search."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


class _Halving(_Searcher):
    time_metric: Text | None = None
    """The reported metric that measures training time."""
    max_time: Integer | None = None
    """The longest a trial trains, in units of `time_metric`."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""
    stop_once: Flag | None = None
    """Stop trials instead of pausing and promoting them."""
    divisor: Divisor = 4.0
    """One in this number of trials continues from a rung."""
    max_concurrent_trials: Count = 16
    """Number of concurrent trials; 0 means all, or a default of the search."""


class AsyncHalvingSearcher(_Halving):
    """Asynchronous successive halving."""

    name: Literal["async_halving"] = "async_halving"
    """Tag of the search method."""
    num_rungs: PositiveInteger
    """How many rungs."""
    max_trials: PositiveInteger
    """Total number of trials."""


class AdaptiveAshaSearcher(_Halving):
    """Several brackets of successive halving."""

    name: Literal["adaptive_asha"] = "adaptive_asha"
    """Tag of the search method."""
    max_trials: PositiveInteger
    """Total number of trials."""
    mode: Mode = "standard"
    """How early poor trials are stopped."""
    max_rungs: PositiveInteger = 5
    """Rungs of the longest bracket."""
    bracket_rungs: tuple[Integer, ...] = ()
    """Rungs of each bracket, instead of those that `mode` gives."""


class ReplaceFunction(ConfigModel):
    """Which trials are replaced after a round."""

    truncate_fraction: Annotated[Number, Field(ge=0, le=0.5)] = 0.2
    """Fraction of the population, its worst, that is replaced by changed copies of the best."""


class ExploreFunction(ConfigModel):
    """How a copy's hyperparameters differ."""

    resample_probability: Annotated[Number, Field(ge=0, le=1)] = 0.25
    """Likelihood that a hyperparameter is drawn again."""
    perturb_factor: Annotated[Number, Field(ge=0, lt=1)] = 0.2
    """Factor by which it is otherwise increased or decreased."""


class PbtSearcher(_Searcher):
    """A population that trains in rounds, and whose worst follow on from its best."""

    name: Literal["pbt"] = "pbt"
    """Tag of the search method."""
    population_size: PositiveInteger
    """Trials that train at a time."""
    num_rounds: PositiveInteger
    """How many rounds."""
    length_per_round: PositiveLength
    """Length that each trial trains in a round; the training code requests its lengths."""
    replace_function: ReplaceFunction = ReplaceFunction()
    """Which trials are replaced after a round."""
    explore_function: ExploreFunction = ExploreFunction()
    """How a copy's hyperparameters differ."""


class OptunaSearcher(_Searcher):
    """Points that a sampler of Optuna proposes from the results so far."""

    name: Literal["optuna"] = "optuna"
    """Tag of the search method."""
    max_trials: PositiveInteger
    """Total number of trials."""
    max_concurrent_trials: Count = 16
    """Number of concurrent trials; 0 means all, or a default of the search."""
    sampler: Literal["tpe", "cma_es"] = "tpe"
    """The sampler: a tree of Parzen estimators, or covariance matrix adaptation."""
    multivariate: Flag = False
    """Whether `tpe` samples hyperparameters jointly."""
    random_trials: PositiveInteger = 10
    """Number of points that are drawn at random first."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


class CustomSearcher(_Searcher):
    """A search driven by a program outside; kept so that old configurations can be read."""

    name: Literal["custom"] = "custom"
    """Tag of the search method."""
    unit: Unit | None = None
    """Unit of the lengths."""


class SyncHalvingSearcher(_Searcher):
    """Retired; kept so that old configurations can be read."""

    name: Literal["sync_halving"] = "sync_halving"
    """Tag of the search method."""
    num_rungs: PositiveInteger
    """How many rungs."""
    budget: PositiveLength
    """Training length of all trials together."""
    divisor: Divisor = 4.0
    """One in this number of trials continues from a rung."""
    train_stragglers: Flag = True
    """Train trials that fell behind."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


class AdaptiveSearcher(_Searcher):
    """Retired; kept so that old configurations can be read."""

    name: Literal["adaptive"] = "adaptive"
    """Tag of the search method."""
    budget: PositiveLength
    """Training length of all trials together."""
    bracket_rungs: tuple[Integer, ...] = ()
    """Rungs of each bracket, instead of those that `mode` gives."""
    mode: Mode = "standard"
    """How early poor trials are stopped."""
    divisor: Divisor = 4.0
    """One in this number of trials continues from a rung."""
    max_rungs: PositiveInteger = 5
    """Rungs of the longest bracket."""
    train_stragglers: Flag = True
    """Train trials that fell behind."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


class AdaptiveSimpleSearcher(_Searcher):
    """Retired; kept so that old configurations can be read."""

    name: Literal["adaptive_simple"] = "adaptive_simple"
    """Tag of the search method."""
    max_trials: Annotated[PositiveInteger, Field(le=2000)]
    """Total number of trials."""
    mode: Mode = "standard"
    """How early poor trials are stopped."""
    divisor: Divisor = 4.0
    """One in this number of trials continues from a rung."""
    max_rungs: PositiveInteger = 5
    """Rungs of the longest bracket."""
    max_length: SearcherLength | None = None
    """The longest a trial trains; a script may also decide that alone."""


_NAMES = TaggedUnion("name", SEARCHER_NAMES)

Searcher = Annotated[
    Annotated[SingleSearcher, Tag("<single>")]
    | Annotated[RandomSearcher, Tag("<random>")]
    | Annotated[GridSearcher, Tag("<grid>")]
    | Annotated[AsyncHalvingSearcher, Tag("<async_halving>")]
    | Annotated[AdaptiveAshaSearcher, Tag("<adaptive_asha>")]
    | Annotated[PbtSearcher, Tag("<pbt>")]
    | Annotated[OptunaSearcher, Tag("<optuna>")]
    | Annotated[CustomSearcher, Tag("<custom>")]
    | Annotated[SyncHalvingSearcher, Tag("<sync_halving>")]
    | Annotated[AdaptiveSearcher, Tag("<adaptive>")]
    | Annotated[AdaptiveSimpleSearcher, Tag("<adaptive_simple>")],
    Discriminator(_NAMES.member),
    BeforeValidator(_NAMES.check),
]
