"""How many worlds a test run lives through."""

from __future__ import annotations

import os

SEEDS = int(os.environ.get("RESOLUTE_SIM_SEEDS", "150"))
"""`RESOLUTE_SIM_SEEDS=20` for a quick look; thousands are for `make sim`."""
