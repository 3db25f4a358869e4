"""The same training without a cluster and without interruptions, for comparison, in a separate process.

    python -m demo.reference --model examples/digits_pytorch --hparams hparams.json --seed 17 --steps 500 --output DIR

Runs the submitted model code with the trial's hyperparameters, seed and number of threads. Writes `metrics.jsonl` (one line per
report), `checkpoints/`, and at the end `reference.json` with its parameters.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NICENESS = 10
"""Niceness: the cluster's trial has priority over the reference."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.reference", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="directory with model_def.py")
    parser.add_argument("--hparams", type=Path, required=True, help="JSON file with the trial's hyperparameters")
    parser.add_argument("--seed", type=int, required=True, help="the trial's seed")
    parser.add_argument("--steps", type=int, required=True, help="how many steps")
    parser.add_argument("--output", type=Path, required=True, help="where reports and checkpoints go")
    given = parser.parse_args(arguments)
    os.nice(NICENESS)
    hparams: dict[str, Any] = {**json.loads(given.hparams.read_text()), "step_sleep_s": 0.0}
    threads = train(given.model.resolve(), hparams, seed=given.seed, steps=given.steps, output=given.output)
    facts = {"seed": given.seed, "steps": given.steps, "threads": threads}
    (given.output / "reference.json").write_text(json.dumps(facts) + "\n")
    return 0


def train(model: Path, hparams: dict[str, Any], *, seed: int, steps: int, output: Path) -> int:
    """Trains from the first step to the last. Returns the number of threads."""
    import torch

    from resolute import pytorch

    sys.path.insert(0, str(model))
    definition = importlib.import_module("model_def")
    with pytorch.init(hparams=hparams, trial_seed=seed, local_dir=output) as context:
        torch.set_num_threads(int(hparams["threads"]))
        trainer = pytorch.Trainer(definition.DigitsTrial(context), context)
        trainer.fit(max_length=pytorch.Batch(steps), reporting_period=pytorch.Batch(1), checkpoint_policy="none")
        return torch.get_num_threads()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
