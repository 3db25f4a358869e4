"""`python -m campaign.search`: a real search on a local spot pool with interruptions, compared with uninterrupted trainings.

Trials of `adaptive_asha` train the digits example by lengths (`examples/digits_pytorch/by_length.py`) on a local elastic pool.
Every machine is interrupted with a notice after some steps. After the search this process trains each trial again without
interruption, and every loss that the cluster has stored must equal the new one, bit for bit.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from resolute.client.sdk import Experiment, Trial
from support.live import LiveCluster, live_cluster, until

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "digits_pytorch"
ENDS = ("COMPLETED", "ERROR", "CANCELED")
LONGEST_S = 7_200.0
SEED_IS = "its seed is "
SMALL = {"samples": 300, "batch_size": 16, "width": {"type": "categorical", "vals": [4, 8]}}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the search, and the rate of interruptions."""

    trials: int = 32
    machines: int = 3
    notices: int = 24
    """Number of machines that are interrupted, from the first one on."""
    notice_s: int = 20
    length: int = 64


@dataclass(kw_only=True)
class Findings:
    """The numbers of compared objects, and the differences."""

    trials: int = 0
    runs: int = 0
    losses: int = 0
    machines: int = 0
    noticed: int = 0
    rungs: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def text(self) -> str:
        rungs = ", ".join(f"{count} to rung {rung}" for rung, count in sorted(self.rungs.items()))
        return (
            f"{self.trials} trials ({rungs}), {self.runs} runs, {self.machines} machines, {self.noticed} of them taken back with a "
            f"notice; {self.losses} losses compared with uninterrupted trainings, {len(self.faults)} differ"
        )


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if the search has completed and no loss differs, else 1."""
    parser = argparse.ArgumentParser(prog="python -m campaign.search", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=Plan.trials, help="of the search (default: %(default)s)")
    parser.add_argument("--machines", type=int, default=Plan.machines, help="at a time (default: %(default)s)")
    parser.add_argument("--notices", type=int, default=Plan.notices, help="machines taken back (default: %(default)s)")
    given = parser.parse_args(arguments)
    plan = Plan(trials=given.trials, machines=given.machines, notices=given.notices)
    folder = Path(tempfile.mkdtemp(prefix="resolute-search-")).resolve()
    began = time.monotonic()
    print(f"everything lies in {folder}", flush=True)
    findings = played(folder, plan)
    print(f"{findings.text()}; {time.monotonic() - began:.0f} s")
    for fault in findings.faults[:20]:
        print(f"  {fault}")
    if not findings.faults:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if findings.faults else 0


def played(folder: Path, plan: Plan) -> Findings:
    """Runs the search to its end, and compares the reports of its trials with uninterrupted trainings."""
    with live_cluster(folder, pool=_pool(plan)) as cluster:
        experiment = cluster.client.create_experiment(_config(plan), EXAMPLE)
        until("the search has ended", lambda: _has_ended(experiment), within_s=LONGEST_S, every_s=1.0)
        return _judged(cluster, experiment, plan)


def _has_ended(experiment: Experiment) -> bool:
    experiment.reload()
    return experiment.state in ENDS


def _pool(plan: Plan) -> dict[str, Any]:
    taken = [
        {"instance": number, "after_steps": 5 + number * 7 % 40, "notice": f"{plan.notice_s}s"}
        for number in range(1, plan.notices + 1)
    ]
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": plan.machines,
        "max_idle_agent_period": "10s",
        "price_per_hour": 3.6,
        "spot_price_per_hour": 1.2,
        "interruptions": taken,
    }
    return {"provider": provider, "scheduler": {"type": "priority", "preemption": True}}


def _config(plan: Plan) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / "promoting.yaml").read_text())
    # Only the environment of a trial contains its seed.
    config["entrypoint"] = ["sh", "-c", f'echo "{SEED_IS}$DET_TRIAL_SEED" && exec {sys.executable} by_length.py']
    config["hyperparameters"] |= SMALL
    config["searcher"] = {
        "name": "adaptive_asha",
        "metric": "accuracy",
        "smaller_is_better": False,
        "divisor": 4,
        "max_rungs": 3,
        "max_trials": plan.trials,
        "max_concurrent_trials": 8,
        "max_length": {"batches": plan.length},
    }
    return config | {"max_restarts": 0}


def _judged(cluster: LiveCluster, experiment: Experiment, plan: Plan) -> Findings:
    findings = Findings()
    if experiment.state != "COMPLETED":
        findings.faults.append(f"the experiment is {experiment.state}")
    search = cluster.client.experiments.search(experiment.id)
    found = experiment.list_trials()
    if len(found) != plan.trials:
        findings.faults.append(f"{len(found)} trials instead of {plan.trials}")
    for trial, seen in zip(found, search.trials, strict=True):
        rung = seen.rung or 0
        findings.trials += 1
        findings.runs += len(trial.list_allocations())
        findings.rungs[rung] = findings.rungs.get(rung, 0) + 1
        losses, twin = _reported(trial), uninterrupted(trial, seen.length or 0)
        findings.losses += len(losses)
        differ = [step for step in sorted(losses.keys() | twin.keys()) if losses.get(step) != twin.get(step)]
        findings.faults += [
            f"trial {trial.id}, step {step}: {losses.get(step)!r}, uninterrupted {twin.get(step)!r}" for step in differ
        ]
    findings.machines = len(cluster.machines_on_file())
    findings.noticed = len(cluster.lost_machines())
    return findings


def _reported(trial: Trial) -> dict[int, float]:
    return {
        report.total_batches: float(report.metrics["avg_metrics"]["loss"])
        for report in trial.iter_metrics("training")
        if not report.archived
    }


# -------------------------------------------------------------------------------------------------- the other training


def uninterrupted(trial: Trial, length: int) -> dict[int, float]:
    """The losses by step of the same training in this process, without interruption."""
    details = trial.details
    alone = _Alone(length)
    if str(EXAMPLE) not in sys.path:
        sys.path.insert(0, str(EXAMPLE))
    program: Any = importlib.import_module("by_length")
    program.train(alone, dict(details.hparams), _seed_of(trial))
    return alone.losses


def _seed_of(trial: Trial) -> int:
    line = next(line for line in trial.iter_logs() if SEED_IS in line)
    return int(line.partition(SEED_IS)[2])


class _Alone:
    """The context of the program without a cluster: one length, no checkpoint, no interruption."""

    def __init__(self, length: int) -> None:
        self.losses: dict[int, float] = {}
        self.info = None
        self.train = SimpleNamespace(
            mark_step=lambda step: None,
            report_training_metrics=self._report,
            report_validation_metrics=lambda step, metrics: None,
        )
        self.preempt = SimpleNamespace(should_preempt=lambda auto_ack: False)
        self.searcher = SimpleNamespace(operations=lambda: self._operations(length))
        self.checkpoint = SimpleNamespace(store_path=self._store)

    def _report(self, step: int, metrics: Mapping[str, float]) -> None:
        self.losses[step] = metrics["loss"]

    @staticmethod
    def _operations(length: int) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(length=length, report_completed=lambda metric: None)

    @staticmethod
    def _store(metadata: Mapping[str, Any]) -> tempfile.TemporaryDirectory[str]:
        return _Folder()


class _Folder(tempfile.TemporaryDirectory[str]):
    """Discards a checkpoint."""

    def __enter__(self) -> Any:
        return Path(super().__enter__()), ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
