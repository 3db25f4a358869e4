"""Simulate worlds.

python -m resolute_sim --seed 7                    print the events of one world
python -m resolute_sim --seeds 2000 [--first 0]    many worlds; stops with code 1 when a rule was broken
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from resolute_sim.simulation import Outcome, simulate, simulate_many


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute_sim", description="Simulate worlds and check every rule.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="print the events of this world")
    what.add_argument("--seeds", type=int, help="number of worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed of many (default: 0)")
    parser.add_argument("--processes", type=int, default=2, help="worlds that run at a time (default: 2)")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(given.seed)
    return _many(range(given.first, given.first + given.seeds), given.processes)


def _one(seed: int) -> int:
    outcome = simulate(seed, tell=print, with_replay=True, snapshot_every=1, deadlines=True)
    print(_summary(outcome))
    return _say_violations(outcome)


def _many(seeds: range, processes: int) -> int:
    broken: list[Outcome] = []
    commits, hours, deadlines = 0, 0.0, 0
    for count, outcome in enumerate(simulate_many(seeds, processes=processes), start=1):
        commits += outcome.commits
        deadlines += outcome.deadlines
        hours += outcome.virtual_s / 3600.0
        if outcome.violations:
            broken.append(outcome)
            _say_violations(outcome)
        if count % 50 == 0 or count == len(seeds):
            so_far = f"{hours:.0f} virtual hours, {commits} commits, {deadlines} deadlines judged"
            print(f"{count} of {len(seeds)} worlds, {so_far}, {len(broken)} broken", flush=True)
    return 1 if broken else 0


def _summary(outcome: Outcome) -> str:
    return (
        f"seed {outcome.seed}: {outcome.virtual_s / 3600.0:.1f} virtual hours, {outcome.commits} commits, "
        f"{outcome.masters} master(s), {outcome.machines} machine(s), {outcome.steps} steps, "
        f"{outcome.replayed} cycles replayed, trace {outcome.trace[:16]}"
    )


def _say_violations(outcome: Outcome) -> int:
    for violation in outcome.violations:
        print(f"seed {outcome.seed}: {violation}")
    if outcome.violations:
        print(f"seed {outcome.seed}: see its story with  python -m resolute_sim --seed {outcome.seed}", flush=True)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
