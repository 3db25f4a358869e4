"""Points proposed by Optuna. The library is imported when a search first needs one of its samplers."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from resolute_master.domain.ids import ExperimentId
from resolute_master.engine.proposals import EvaluatedPoint
from resolute_master.searcher.conditions import Path, conditions, is_one_of
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.method import PointRequest
from resolute_master.searcher.proposed import SamplerSettings

if TYPE_CHECKING:
    import optuna

ABSENT: Any = object()
"""Value of a hyperparameter whose condition is not met."""


class OptunaSampler:
    """One study per search, in memory. After a restart of the master it is rebuilt from the results of the search."""

    def __init__(self) -> None:
        self._studies: dict[ExperimentId, _Study] = {}

    def propose(
        self, search: ExperimentId, seed: int, point_request: PointRequest, evaluated: Sequence[EvaluatedPoint]
    ) -> list[Mapping[str, Any]]:
        study = self._studies.get(search)
        if study is None:
            study = self._studies[search] = _Study(seed, point_request, evaluated)
        study.learn(evaluated)
        study.forget_unused()
        return [study.ask() for _ in range(point_request.points)]

    def forget(self, search: ExperimentId) -> None:
        self._studies.pop(search, None)


class _Study:
    def __init__(self, seed: int, point_request: PointRequest, evaluated: Sequence[EvaluatedPoint]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        settings: SamplerSettings = point_request.settings
        self._optuna = optuna
        self._space = point_request.space
        self._leaves = dict(_leaves(point_request.space))
        self._names = {".".join(path): path for path in self._leaves}
        self._conditions = conditions(point_request.space)
        self._distributions = {_name(path): _distribution(optuna, spec) for path, spec in self._leaves.items()}
        self._known: dict[str, optuna.trial.Trial | None] = {}
        """Trials of the study, by request id; None is complete."""
        self._asked: list[tuple[str, optuna.trial.Trial]] = []
        """Proposed points that no known trial uses yet, as text."""
        direction: Literal["minimize", "maximize"] = "minimize" if settings.smaller_is_better else "maximize"
        ended = [self._frozen(each) for each in evaluated if not each.open and _number(each.metric) is not None]
        # A sampler that resumes where another one has stopped draws other numbers than that one has drawn.
        drawn = (seed + len(evaluated)) % 2**32
        sampler = _sampler(optuna, settings, drawn, ended, conditional=bool(self._conditions))
        self._study = optuna.create_study(direction=direction, sampler=sampler)

    def learn(self, evaluated: Sequence[EvaluatedPoint]) -> None:
        for each in evaluated:
            if each.request_id not in self._known:
                self._meet(each)
            trial = self._known[each.request_id]
            if not each.open and trial is not None:
                metric = _number(each.metric)
                if metric is None:
                    self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                else:
                    self._study.tell(trial, metric)
                self._known[each.request_id] = None

    def forget_unused(self) -> None:
        """Drops proposed points that arrived too late: all points in use are known by now."""
        for _, trial in self._asked:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        self._asked.clear()

    def _meet(self, evaluated: EvaluatedPoint) -> None:
        """Adds a known point: a proposed one, or one from another process or from the search itself."""
        text = _text(evaluated.point)
        for index, (point, trial) in enumerate(self._asked):
            if point == text:
                del self._asked[index]
                self._known[evaluated.request_id] = trial
                return
        if evaluated.open:
            self._study.enqueue_trial(self._parameters(evaluated.point))
            self._known[evaluated.request_id] = self._asked_for()[0]
            return
        if _number(evaluated.metric) is not None:
            self._study.add_trial(self._frozen(evaluated))
        self._known[evaluated.request_id] = None

    def ask(self) -> Mapping[str, Any]:
        trial, chosen = self._asked_for()
        point = _point(self._space, chosen)
        self._asked.append((_text(point), trial))
        return point

    def _asked_for(self) -> tuple[optuna.trial.Trial, dict[Path, Any]]:
        """A trial of the study with its parameters. Where some depend on others, they are drawn one after the other."""
        if not self._conditions:
            trial = self._study.ask(self._distributions)
            return trial, {path: trial.params[_name(path)] for path in self._leaves}
        trial, chosen, decided = self._study.ask(), dict[Path, Any](), set[Path]()
        for path in self._leaves:
            self._choose(trial, path, chosen, decided)
        return trial, chosen

    def _choose(self, trial: optuna.trial.Trial, path: Path, chosen: dict[Path, Any], decided: set[Path]) -> None:
        if path in decided:
            return
        decided.add(path)
        for name, allowed in self._conditions.get(path, {}).items():
            other = self._names[name]
            self._choose(trial, other, chosen, decided)
            if other not in chosen or not is_one_of(_value(self._leaves[other], chosen[other]), allowed):
                return
        chosen[path] = _suggested(trial, _name(path), self._leaves[path])

    def _frozen(self, evaluated: EvaluatedPoint) -> optuna.trial.FrozenTrial:
        parameters = self._parameters(evaluated.point)
        there = {name: self._distributions[name] for name in parameters}
        return self._optuna.trial.create_trial(params=parameters, distributions=there, value=evaluated.metric)

    def _parameters(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the hyperparameters that the point has."""
        found = {path: _at(point, path) for path in self._leaves}
        return {_name(p): _parameter(self._leaves[p], value) for p, value in found.items() if value is not ABSENT}


def _sampler(
    module: Any, settings: SamplerSettings, seed: int, ended: Sequence[optuna.trial.FrozenTrial], *, conditional: bool
) -> optuna.samplers.BaseSampler:
    """The sampler, without random first points, because the search has drawn them itself."""
    with warnings.catch_warnings():
        # Their interface may change with a release of the library; the tests say whether it has.
        warnings.simplefilter("ignore", module.exceptions.ExperimentalWarning)
        return _make_sampler(module, settings, seed, ended, conditional=conditional)


def _make_sampler(
    module: Any, settings: SamplerSettings, seed: int, ended: Sequence[optuna.trial.FrozenTrial], *, conditional: bool
) -> optuna.samplers.BaseSampler:
    sampler: optuna.samplers.BaseSampler
    if settings.sampler == "cma_es":
        sampler = module.samplers.CmaEsSampler(
            seed=seed, n_startup_trials=0, warn_independent_sampling=False, source_trials=list(ended) or None
        )
    else:
        sampler = module.samplers.TPESampler(
            seed=seed,
            n_startup_trials=1,
            multivariate=settings.multivariate,
            # Those that are always there together are looked at together.
            group=settings.multivariate and conditional,
            constant_liar=True,
        )
    return sampler


def _number(metric: float | None) -> float | None:
    return None if metric is None or not math.isfinite(metric) else metric


# ------------------------------------------------------------------------------------------------------------ the space


def _leaves(space: Space, above: Path = ()) -> list[tuple[Path, Mapping[str, Any]]]:
    """Hyperparameters that are sampled, by path."""
    found: list[tuple[Path, Mapping[str, Any]]] = []
    for name in sorted(space):
        spec, path = space[name], (*above, name)
        if not isinstance(spec, Mapping) or spec.get("type") == "const":
            continue
        if spec.get("type") is None:
            found += _leaves(spec, path)
        else:
            found.append((path, spec))
    return found


def _distribution(module: Any, spec: Mapping[str, Any]) -> Any:
    """Distribution of a hyperparameter: of the exponent for `log`, and of the index for `categorical`, whose values may have any
    type."""
    match spec["type"]:
        case "int":
            return module.distributions.IntDistribution(int(spec["minval"]), int(spec["maxval"]))
        case "categorical":
            return module.distributions.CategoricalDistribution(tuple(range(len(spec["vals"]))))
        case _:
            return module.distributions.FloatDistribution(float(spec["minval"]), float(spec["maxval"]))


def _suggested(trial: optuna.trial.Trial, name: str, spec: Mapping[str, Any]) -> Any:
    match spec["type"]:
        case "int":
            return trial.suggest_int(name, int(spec["minval"]), int(spec["maxval"]))
        case "categorical":
            return trial.suggest_categorical(name, tuple(range(len(spec["vals"]))))
        case _:
            return trial.suggest_float(name, float(spec["minval"]), float(spec["maxval"]))


def _parameter(spec: Mapping[str, Any], value: Any) -> Any:
    """The internal representation of the value in its distribution."""
    match spec["type"]:
        case "int":
            return int(value)
        case "categorical":
            return [_text(each) for each in spec["vals"]].index(_text(value))
        case "log":
            value = math.log(float(value)) / math.log(float(spec["base"]))
    return min(max(float(value), float(spec["minval"])), float(spec["maxval"]))


def _value(spec: Mapping[str, Any], parameter: Any) -> Any:
    match spec["type"]:
        case "int":
            return int(parameter)
        case "categorical":
            return spec["vals"][parameter]
        case "log":
            return float(spec["base"]) ** float(parameter)
    return float(parameter)


def _point(space: Space, parameters: Mapping[Path, Any], above: Path = ()) -> dict[str, Any]:
    """A point in the form of the search's own points: with constants and groups."""
    point: dict[str, Any] = {}
    for name in sorted(space):
        spec, path = space[name], (*above, name)
        if not isinstance(spec, Mapping):
            point[name] = spec
        elif spec.get("type") == "const":
            point[name] = spec["val"]
        elif spec.get("type") is None:
            point[name] = _point(spec, parameters, path)
        elif path in parameters:
            point[name] = _value(spec, parameters[path])
    return point


def _at(point: Mapping[str, Any], path: Path) -> Any:
    found: Any = point
    for name in path:
        found = found.get(name, ABSENT) if isinstance(found, Mapping) else ABSENT
    return found


def _name(path: Path) -> str:
    return json.dumps(path)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
