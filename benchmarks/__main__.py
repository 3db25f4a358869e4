"""`python -m benchmarks [--write] [name ...]`: without names, all; `--write` updates docs/benchmarks.md."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report

# Each is the module `benchmarks.<name>` with `main() -> list[report.Row]`, imported only when it is run.
BENCHMARKS = (
    "start",
    "exit",
    "docker_start",
    "throughput",
    "harness",
    "cli",
    "api",
    "scheduling",
    "twin",
    "estimates",
    "planning",
    "reaction",
    "reclaim",
    "admission",
    "commits",
    "ingest",
    "requests",
    "reads",
    "filtered",
    "pages",
    "cost",
    "restart",
    "noisy",
    "load",
    "spot",
    "search",
    "search_pool",
    "storage",
    "deploy",
)
DOCS = Path(__file__).resolve().parents[1] / "docs"
KEPT, PAGE = DOCS / "benchmarks.json", DOCS / "benchmarks.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--write", action="store_true", help="keep the rows and write the tables of docs/benchmarks.md")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(BENCHMARKS)):
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in arguments.names or BENCHMARKS:
        print(f"\n$ python -m benchmarks {name}", flush=True)
        run = _run(name)
        print(f"{run.date}, {run.machine}\n{run.text()}", flush=True)
        if arguments.write:
            _write(name, run)
    return 0


def _run(name: str) -> report.Run:
    rows: list[report.Row] = importlib.import_module(f"benchmarks.{name}").main()
    return report.Run(
        command=f"python -m benchmarks {name}",
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}{_origin()}",
        rows=tuple(rows),
    )


def _origin() -> str:
    """The origin of the interpreter: the distribution's one has profile-guided optimization, others may not."""
    return " of the distribution" if sys.base_prefix == "/usr" else ""


def _write(name: str, run: report.Run) -> None:
    runs = report.load(KEPT) | {name: run}
    report.save(KEPT, runs)
    PAGE.write_text(report.page(PAGE.read_text(), runs))


if __name__ == "__main__":
    sys.exit(main())
