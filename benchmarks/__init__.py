"""Measurements of speed: medians, and ratios to a bound or a peer of the same run.

    python -m benchmarks [--write] [name ...]

Every figure is printed with its command. Benchmarks assert nothing: tests check behaviour, benchmarks report figures. The database
servers, Docker engines and ports are those of the tests (`tests/support`).
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
