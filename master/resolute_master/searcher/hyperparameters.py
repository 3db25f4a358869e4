"""One point of a search space.

A value without structure is a constant; an object without `type` is a group of its own; an object with `type` is one of `const`,
`int`, `double`, `log`, `categorical`, which may have a condition (`conditions`). Names are walked in sorted order, so the same
generator gives the same point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.searcher.conditions import pruned
from resolute_master.searcher.generator import Generator

Space = Mapping[str, Any]


def sample(space: Space, generator: Generator) -> dict[str, Any]:
    """Draw every hyperparameter once. One whose condition is not met is drawn as well, and left out."""
    return pruned(space, {name: draw(name, space[name], generator) for name in sorted(space)})


def draw(name: str, spec: Any, generator: Generator) -> Any:
    """Draw one hyperparameter or group, whatever its conditions; `name` is for errors."""
    if not isinstance(spec, Mapping):
        return spec
    if spec.get("type") is None:
        return {inner: draw(f"{name}.{inner}", spec[inner], generator) for inner in sorted(spec)}
    match spec["type"]:
        case "const":
            return spec["val"]
        case "int":
            low, high = int(spec["minval"]), int(spec["maxval"])
            return low + generator.bounded(high - low)
        case "double":
            return _uniform(spec, generator)
        case "log":
            return float(spec["base"]) ** _uniform(spec, generator)
        case "categorical":
            values = spec["vals"]
            if not values:
                raise InvalidInput(f"hyperparameters.{name}.vals: is empty; give at least one value to choose from")
            return values[generator.bounded(len(values) - 1)]
        case other:
            raise InvalidInput(
                f"hyperparameters.{name}.type: '{other}' is none of const, int, double, log, categorical"
            )


def _uniform(spec: Mapping[str, Any], generator: Generator) -> float:
    """A number of at least `minval` and less than `maxval`, which rounding must not reach."""
    low, high = float(spec["minval"]), float(spec["maxval"])
    return min(low + (high - low) * generator.unit(), math.nextafter(high, low))
