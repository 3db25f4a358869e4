"""Number of worlds in a test run."""

from __future__ import annotations

import os

SEEDS = int(os.environ.get("RESOLUTE_SIM_SEEDS", "60"))
"""`RESOLUTE_SIM_SEEDS=20` for a quick look, `RESOLUTE_SIM_SEEDS=1000` for a night; thousands are for `make sim`."""
