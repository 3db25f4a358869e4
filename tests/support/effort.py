"""How often a run repeats what is random: a push repeats a little, `make nightly` much more.

A test with the marker `nightly` runs only there.
"""

from __future__ import annotations

import os

NIGHT = os.environ.get("RESOLUTE_TEST_EFFORT", "") == "night"

PUSHED_SHARE = 3
"""A push runs this fraction (one in three) of the examples of a property. They are equal in each run: only a change of code makes
one fail."""

FEWEST = 20


def repeated(*, push: int, night: int) -> int:
    """The number of repetitions (kills, trials, requests) of this run."""
    return night if NIGHT else push


def examples(night: int) -> int:
    """The number of examples of a property in this run; `night` in `make nightly` and `make search`."""
    return repeated(push=min(night, max(FEWEST, night // PUSHED_SHARE)), night=night)
