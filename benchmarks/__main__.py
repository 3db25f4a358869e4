"""`python -m benchmarks [name ...]`: without names, all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from benchmarks import commits, scheduling

BENCHMARKS: dict[str, Callable[[], None]] = {"scheduling": scheduling.main, "commits": commits.main}


def main(names: Sequence[str]) -> int:
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        print(f"\n$ python -m benchmarks {name}")
        BENCHMARKS[name]()
    return 0


sys.exit(main(sys.argv[1:]))
