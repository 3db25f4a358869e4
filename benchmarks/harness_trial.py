"""The trial of `benchmarks.harness`: `harness_trial.py BLOCKS`, run by the cluster. Prints the times of each block as a line of
JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median

from resolute import core

BLOCK = 100
"""Number of steps of each kind in a block."""
STEP_S = 0.005


@dataclass
class Taken:
    """Elapsed seconds of a block's steps, and processor seconds of its own thread and of all other threads."""

    plain_s: float = 0.0
    managed_s: float = 0.0
    plain_computed_s: float = 0.0
    managed_computed_s: float = 0.0
    beside_computed_s: float = 0.0


def main(blocks: int) -> None:
    rounds = calibrated()
    taken: list[Taken] = []
    with core.init() as context:
        context.preempt.should_preempt()  # the first question waits for the first answer
        for block in range(blocks):
            taken.append(timed_block(context, rounds, block * BLOCK + 1))
        context.train.report_validation_metrics(blocks * BLOCK, {"loss": 0.0})
    for each in taken:
        print(json.dumps(asdict(each)), flush=True)


def timed_block(context: core.Context, rounds: int, first: int) -> Taken:
    """Alternates steps of both kinds. Each kind comes first equally often, and follows a report equally often."""
    taken = Taken()
    all_threads, own_thread = time.process_time(), time.thread_time()
    for number in range(first, first + BLOCK):
        for kind in ("plain", "managed") if (number + number // BLOCK) % 2 else ("managed", "plain"):
            start, computed = time.perf_counter(), time.thread_time()
            work(rounds)
            if kind == "plain":
                taken.plain_s += time.perf_counter() - start
                taken.plain_computed_s += time.thread_time() - computed
                continue
            if number % BLOCK == 0:
                context.train.report_training_metrics(number, {"loss": 1.0 / number, "accuracy": 0.5})
            if context.preempt.should_preempt():
                raise SystemExit("preempted in the middle of a measurement")
            taken.managed_s += time.perf_counter() - start
            taken.managed_computed_s += time.thread_time() - computed
    own_thread = time.thread_time() - own_thread
    taken.beside_computed_s = time.process_time() - all_threads - own_thread
    return taken


def calibrated() -> int:
    """Number of rounds of work in one step: the median over a second of attempts, because the first ones are slower."""
    attempts = [_timed_work(20_000) for _ in range(int(1.0 / STEP_S))]
    return max(1, int(20_000 * STEP_S / median(attempts)))


def _timed_work(rounds: int) -> float:
    start = time.perf_counter()
    work(rounds)
    return time.perf_counter() - start


def work(rounds: int) -> float:
    total = 0.0
    for number in range(rounds):
        total += number * 0.5
    return total


if __name__ == "__main__":
    main(int(sys.argv[1]))
