"""How often a run repeats what is random: a push repeats a little, `make nightly` much more.

A test with the marker `nightly` runs only there.
"""

from __future__ import annotations

import os

NIGHT = os.environ.get("RESOLUTE_TEST_EFFORT", "") == "night"


def repeated(*, push: int, night: int) -> int:
    """The number of repetitions (kills, trials, requests) of this run."""
    return night if NIGHT else push
