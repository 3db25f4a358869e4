"""A promoting search with real programs on an elastic pool: trials wait without machines, machines leave, the master is killed."""

from __future__ import annotations

import random
from pathlib import Path

from support.live import live_cluster, until
from support.new_db import NewDb

PROGRAM = """
import json, random
from resolute import core

def load(context, uuid):
    if uuid is None:
        return 0, random.Random(context.info.trial.hparams["x"])
    with context.checkpoint.restore_path(uuid) as path:
        step, state = json.loads((path / "state.json").read_text())
    draw = random.Random()
    draw.setstate((state[0], tuple(state[1]), state[2]))
    return step, draw

def save(context, step, draw):
    with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
        (path / "state.json").write_text(json.dumps([step, draw.getstate()]))

def run(context):
    info = context.info
    step, draw = load(context, info.latest_checkpoint)
    context.train.mark_step(step)
    for operation in context.searcher.operations():
        while step < operation.length:
            loss = info.trial.hparams["x"] + draw.random() / 100
            step += 1
            context.train.mark_step(step)
            context.train.report_training_metrics(step, {"loss": loss})
            if context.preempt.should_preempt(auto_ack=False):
                save(context, step, draw)
                context.preempt.acknowledge_preemption_signal()
                return
        context.train.report_validation_metrics(step, {"loss": loss})
        save(context, step, draw)
        operation.report_completed(loss)

with core.init() as context:
    run(context)
"""
LENGTHS = (4, 12, 36)
TRIALS = 9


def twin(x: float, steps: int) -> list[float]:
    """The losses of a trial that was never interrupted."""
    draw = random.Random(x)
    return [x + draw.random() / 100 for _ in range(steps)]


def test_a_search_promotes_over_machines_that_leave_and_a_master_that_is_killed(tmp_path: Path, new_db: NewDb) -> None:
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 2,
        "max_idle_agent_period": "60s",
        "interruptions": [{"instance": 1, "after_steps": 3, "notice": "5s"}],
    }
    with live_cluster(tmp_path, pool={"provider": provider}, **new_db()) as cluster:
        experiment = cluster.client.create_experiment(
            {
                "name": "promoting",
                "entrypoint": ["python3", "-c", PROGRAM],
                "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
                "searcher": {
                    "name": "async_halving",
                    "metric": "loss",
                    "num_rungs": 3,
                    "divisor": 3,
                    "max_trials": TRIALS,
                    "max_concurrent_trials": 3,
                    "max_length": {"batches": LENGTHS[-1]},
                },
                "reproducibility": {"experiment_seed": 5},
                "max_restarts": 0,
            }
        )
        until("some trials are there", lambda: len(experiment.list_trials()) >= 4)
        cluster.kill_master()
        cluster.start()
        until("it has ended", lambda: experiment.reload() or experiment.state in ("COMPLETED", "ERROR"), within_s=400)
        assert experiment.state == "COMPLETED"
        search = cluster.client.experiments.search(experiment.id)
        trials = experiment.list_trials()
        unusual = [
            (seen.reason, list(trial.iter_logs()))
            for trial, seen in zip(trials, search.trials, strict=True)
            if seen.state != "stopped"
        ]
        assert unusual == []
        assert sorted(trial.rung for trial in search.trials) == [0] * 6 + [1] * 2 + [2]  # type: ignore[type-var]
        best = min(trials, key=lambda trial: float(trial.details.hparams["x"]))
        assert search.best_trial_id == best.id
        for trial, seen in zip(trials, search.trials, strict=True):
            # Those that a lost machine took back, because no checkpoint held them, are kept apart.
            kept = [report for report in trial.iter_metrics("training") if not report.archived]
            losses = [float(report.metrics["avg_metrics"]["loss"]) for report in kept]
            assert losses == twin(float(trial.details.hparams["x"]), LENGTHS[seen.rung or 0])
    assert cluster.left_over() == []
