"""Resolute without a framework: fit a line to points by gradient descent, in plain Python.

The five things to look at: `core.init`, resuming, reporting, saving, and asking whether to stop.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

from resolute import core

STEPS = 200


def points(seed: int) -> list[tuple[float, float]]:
    """Points near the line y = 3x + 1."""
    draw = random.Random(seed)
    xs = [draw.uniform(-1, 1) for _ in range(100)]
    return [(x, 3 * x + 1 + draw.gauss(0, 0.1)) for x in xs]


def error(data: list[tuple[float, float]], slope: float, offset: float) -> float:
    return sum((slope * x + offset - y) ** 2 for x, y in data) / len(data)


def improved(data: list[tuple[float, float]], slope: float, offset: float, rate: float) -> tuple[float, float]:
    """One step of gradient descent."""
    by_slope = sum(2 * (slope * x + offset - y) * x for x, y in data) / len(data)
    by_offset = sum(2 * (slope * x + offset - y) for x, y in data) / len(data)
    return slope - rate * by_slope, offset - rate * by_offset


def load(context: core.Context, uuid: str | None) -> tuple[int, float, float]:
    if uuid is None:
        return 0, 0.0, 0.0
    with context.checkpoint.restore_path(uuid) as path:
        state = json.loads((path / "line.json").read_text())
    return state["step"], state["slope"], state["offset"]


def save(context: core.Context, step: int, slope: float, offset: float) -> None:
    with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
        (path / "line.json").write_text(json.dumps({"step": step, "slope": slope, "offset": offset}))


def train(context: core.Context, hparams: dict[str, Any], latest: str | None, steps: int) -> None:
    training, validation = points(seed=1), points(seed=2)
    step, slope, offset = load(context, latest)
    context.train.mark_step(step)
    while step < steps:
        slope, offset = improved(training, slope, offset, float(hparams["learning_rate"]))
        time.sleep(float(hparams.get("step_sleep_s", 0)))
        step += 1
        context.train.report_training_metrics(step, {"loss": error(training, slope, offset)})
        if context.preempt.should_preempt(auto_ack=False):
            # Save before acknowledging the preemption: if the save fails, the run counts as failed and is repeated.
            save(context, step, slope, offset)
            context.preempt.acknowledge_preemption_signal()
            return
        if step % 50 == 0:
            context.train.report_progress(step / steps)
        # After a notice the machine goes away soon: save, and train on while the next machine boots.
        if context.preempt.should_checkpoint() or step % 50 == 0:
            save(context, step, slope, offset)
    context.train.report_validation_metrics(step, {"validation_error": error(validation, slope, offset)})
    print(f"step {step}: y = {slope:.2f} x + {offset:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="how many steps (default %(default)s)")
    parser.add_argument("--local-dir", type=Path, default=Path("core-run"), help="without a cluster: where files go")
    parser.add_argument("--resume", metavar="UUID", help="without a cluster: the checkpoint to resume from")
    options = parser.parse_args()
    with core.init(local_dir=options.local_dir) as context:
        if context.info is not None and context.info.trial is not None:
            train(context, dict(context.info.trial.hparams), context.info.latest_checkpoint, options.steps)
        else:
            train(context, {"learning_rate": 0.1}, options.resume, options.steps)


if __name__ == "__main__":
    main()
