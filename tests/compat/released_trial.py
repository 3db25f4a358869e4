"""A trial written for the released harness: counts steps, reports, saves, stops when it is asked to, and goes on later.

Runs inside the task, under the interpreter of the released client; nothing of this repository is imported.
"""

import json
import pathlib
import time

from determined import core, get_cluster_info


def main() -> None:
    info = get_cluster_info()
    assert info is not None and info.trial is not None, "the files of the task are missing: the harness sees no cluster"
    steps = int(info.trial.hparams["steps"])
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        done = 0
        if info.latest_checkpoint is not None:
            with context.checkpoint.restore_path(info.latest_checkpoint) as path:
                done = json.loads((pathlib.Path(path) / "state.json").read_text())["done"]
        print(f"run {info.trial._trial_run_id} begins at step {done}", flush=True)
        while done < steps:
            time.sleep(0.05)
            done += 1
            context.train.report_training_metrics(steps_completed=done, metrics={"loss": 1.0 / done})
            context.train.report_progress(done / steps)
            if done % 20 == 0 or done == steps:
                context.train.report_validation_metrics(steps_completed=done, metrics={"loss": 1.0 / done})
            if context.preempt.should_preempt():
                save(context, done)
                print(f"preempted at step {done}", flush=True)
                return
        save(context, done)
        print(f"finished at step {done}", flush=True)


def save(context: core.Context, done: int) -> None:
    with context.checkpoint.store_path({"steps_completed": done}) as (path, _):
        (path / "state.json").write_text(json.dumps({"done": done}))


if __name__ == "__main__":
    main()
