"""Run again, alone and twice, the few tests that failed in the last whole run, and name those that pass as unstable.

A whole run is some nine thousand tests on processors that are busy for twenty minutes. A test that loses a race once in a thousand
runs is a defect, and it is not a reason to refuse a change that did not touch it. What fails for a reason fails again.

Exits with 0 when each passes both times, and with 1 when one fails, when more than `MOST` have failed, or when the last run left no
list of failures, as one that did not come to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
TIMES = 2
FAILURES = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    failed = sorted(json.loads(FAILURES.read_text())) if FAILURES.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests have failed; from 1 to {MOST} are run again.", file=sys.stderr)
        return 1
    for _ in range(TIMES):
        # Without the cache: it keeps the failures of the whole run.
        again = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed], check=False)
        if again.returncode:
            return 1
    print(f"\nUnstable: failed in the whole run, and passed {TIMES} times alone. Each is a defect to mend.")
    for name in failed:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
