"""The trial of `benchmarks.harness`: `harness_trial.py PAIRS`, run by the cluster. Prints the seconds of each block as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from resolute import core

BLOCK = 100
STEP_S = 0.005


def main(pairs: int) -> None:
    rounds = calibrated()
    plain: list[float] = []
    managed: list[float] = []
    with core.init() as context:
        context.preempt.should_preempt()  # the first question waits for the first answer

        def bare_step(_: int) -> None:
            work(rounds)

        def managed_step(number: int) -> None:
            work(rounds)
            if number % BLOCK == 0:
                context.train.report_training_metrics(number, {"loss": 1.0 / number, "accuracy": 0.5})
            if context.preempt.should_preempt():
                raise SystemExit("preempted in the middle of a measurement")

        first = 1
        for _ in range(pairs):
            plain.append(seconds_of(bare_step, first))
            managed.append(seconds_of(managed_step, first))
            first += BLOCK
        context.train.report_validation_metrics(first - 1, {"loss": 0.0})
    print(json.dumps({"plain": plain, "managed": managed, "steps": [BLOCK]}), flush=True)


def calibrated() -> int:
    """How many rounds of work take one step: of five attempts the fastest, which others disturbed least."""
    fastest = min(_timed_work(20_000) for _ in range(5))
    return max(1, int(20_000 * STEP_S / fastest))


def _timed_work(rounds: int) -> float:
    start = time.perf_counter()
    work(rounds)
    return time.perf_counter() - start


def work(rounds: int) -> float:
    total = 0.0
    for number in range(rounds):
        total += number * 0.5
    return total


def seconds_of(step: Callable[[int], None], first: int) -> float:
    start = time.perf_counter()
    for number in range(first, first + BLOCK):
        step(number)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(int(sys.argv[1]))
