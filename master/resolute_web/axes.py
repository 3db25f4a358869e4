"""What is chosen on the axes of a search's picture: a range of numbers, or one of the words, of each hyperparameter and the metric.

The address holds it, so that a choice is a link: `from:hp.lr=0.01&to:hp.lr=0.1&is:hp.optimiser=adam&to:metric=0.3`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.errors import InvalidInput
from resolute_web.trials import TrialRow, flat
from resolute_web.words import number

METRIC = "metric"
HYPERPARAMETER = "hp."
LONGEST_LABEL = 18
"""Characters beside an axis."""

MOST_WORDS = 100
"""Most words of an axis that a form offers as choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Ends are in it; None does not limit. A word is chosen by what is shown of the value."""

    low: float | None = None
    high: float | None = None
    word: str | None = None

    def __bool__(self) -> bool:
        return (self.low, self.high, self.word) != (None, None, None)

    def holds(self, value: Any) -> bool:
        if self.word is not None and number(value) != self.word:
            return False
        if self.low is None and self.high is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


Choices = Mapping[str, Choice]
"""By the key of an axis: those of the address, also of axes that the picture does not have."""


def choices_of(query: Mapping[str, str]) -> Choices:
    """Raises `InvalidInput` for an end that is no number. Fields that are empty choose nothing."""
    found: dict[str, dict[str, Any]] = {}
    for name, text in query.items():
        kind, colon, key = name.partition(":")
        if not colon or not text or not (key == METRIC or key.startswith(HYPERPARAMETER)):
            continue
        if kind in ("from", "to"):
            found.setdefault(key, {})["low" if kind == "from" else "high"] = _number(name, text)
        elif kind == "is":
            found.setdefault(key, {})["word"] = text
    return {key: Choice(**parts) for key, parts in found.items()}


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput(f"{name[:80]}: {text[:80]!r} is not a number; give one, or leave it empty")
    return value


def key_of(name: str) -> str:
    """The key of a hyperparameter's axis."""
    return HYPERPARAMETER + name


def fits(row: TrialRow, choices: Choices) -> bool:
    """Whether the trial is in all that is chosen."""
    values = flat(row.trial.hparams)
    return all(
        choice.holds(row.best if key == METRIC else values.get(key.removeprefix(HYPERPARAMETER)))
        for key, choice in choices.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to a place between 0 and 1: by size (by order of magnitude where they span some), or words by their order."""

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    words: Sequence[str] = ()
    """Words of an axis whose values are not all numbers."""

    @property
    def numeric(self) -> bool:
        return not self.words

    def place(self, value: Any) -> float:
        if self.words:
            steps = len(self.words) - 1
            return self.words.index(number(value)) / steps if steps else 0.5
        low, high, at = self.low, self.high, float(value)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low) if high > low else 0.5

    def place_of_end(self, value: float | None, otherwise: float) -> float:
        """Place of one end of a range, which may be outside of the axis; `otherwise` if the range has no such end."""
        if value is None:
            return otherwise
        return self.place(min(max(value, self.low), self.high))

    @property
    def labels(self) -> Sequence[tuple[float, str]]:
        """Place and text of some values."""
        if self.words:
            return [(self.place(word), shortened(word)) for word in self.words[:12]]
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return [(self.place(value), number(value, 3)) for value in (self.low, middle, self.high)]


def shortened(word: str) -> str:
    """As it fits beside an axis."""
    return word if len(word) <= LONGEST_LABEL else f"{word[: LONGEST_LABEL - 1]}…"


def scale_of(values: Sequence[Any]) -> Scale:
    """The scale for all values of an axis; `values` has at least one."""
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values) or not all(map(math.isfinite, numbers)):
        return Scale(words=sorted({number(value) for value in values}))
    low, high = min(numbers), max(numbers)
    return Scale(low=low, high=high, log=low > 0 and high / low >= 50)
