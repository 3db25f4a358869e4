"""`python -m hostile [--seed N] [--budget N] [--store sqlite,postgres] [--rate N] [--folder DIRECTORY]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hostile.campaign import RATE, attack
from hostile.findings import Findings, summary, table
from support.postgres import postgres_server

STORES = ("sqlite", "postgres")
BUDGET = 50_000


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if the whole budget was sent without a fault, else 1."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description="Attack a running master, look for faults.")
    parser.add_argument("--seed", type=int, default=20260101, help="of what is sent (default: %(default)s)")
    parser.add_argument(
        "--budget",
        type=int,
        default=BUDGET,
        help="requests and messages, over all stores (default: %(default)s)",
    )
    parser.add_argument("--store", default=",".join(STORES), help="sqlite, postgres or both (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=RATE, help="at most this many per second (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="a new one, which is kept (default: temporary, kept on failure)")
    given = parser.parse_args(arguments)
    stores = given.store.split(",")
    if unknown := sorted(set(stores) - set(STORES)):
        parser.error(f"--store: {', '.join(unknown)} is none of {', '.join(STORES)}")
    if given.budget < 1 or given.rate <= 0:
        parser.error("--budget and --rate: more than nothing")
    folder = Path(given.folder or tempfile.mkdtemp(prefix="resolute-hostile-")).resolve()
    print(f"seed {given.seed}; everything lies in {folder}", flush=True)
    failed = False
    for number, store in enumerate(stores):
        share = given.budget // len(stores) + (number < given.budget % len(stores))
        began = time.monotonic()
        found = _on(store, folder / store, given.seed + number, share, given.rate)
        took = time.monotonic() - began
        print(f"\n{store}: seed {given.seed + number}, {found.total} requests and messages in {took:.0f} s")
        print(f"{table(found)}\n{summary(found)}", flush=True)
        failed = failed or bool(found.faults)
    if not failed and given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"seed {given.seed}: {'FAILED' if failed else 'nothing found'}")
    return int(failed)


def _on(store: str, folder: Path, seed: int, budget: int, rate: float) -> Findings:
    if store == "postgres":
        with postgres_server() as server:
            return attack(folder, seed=seed, budget=budget, rate=rate, server=server)
    return attack(folder, seed=seed, budget=budget, rate=rate)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
