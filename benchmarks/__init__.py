"""Speed, measured: medians and ratios against a bound or a peer of the same run.

    python -m benchmarks [--write] [name ...]

Every figure is printed with the command that gives it. Nothing here is asserted: tests promise behaviour, benchmarks tell figures.
The database servers and Docker engines that are measured are those of the tests (`tests/support`).
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
