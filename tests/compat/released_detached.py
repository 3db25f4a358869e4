"""Training outside of the cluster, by the released client: `released_detached.py <password> <external id> <steps> [fail]`."""

import pathlib
import sys

from determined import core
from determined.experimental import client, core_v2


def main() -> None:
    _, password, name, steps, *rest = sys.argv
    client.login(user="determined", password=password)
    core_v2.init(
        config=core_v2.Config(
            name="detached",
            external_experiment_id=name or None,
            external_trial_id="trial" if name else None,
            hparams={"lr": 0.1},
        ),
        client=client._determined,
        tensorboard_mode=core.TensorboardMode.MANUAL,
    )
    info = core_v2.info
    assert info is not None
    done = int(info.latest_checkpoint is not None and restored(info.latest_checkpoint))
    print(f"begins at step {done} of trial {info.trial.trial_id}")
    for step in range(done + 1, int(steps) + 1):
        core_v2.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
    core_v2.train.report_validation_metrics(steps_completed=int(steps), metrics={"unmanaged": 0.5})
    with core_v2.checkpoint.store_path({"steps_completed": int(steps)}) as (path, _):
        (path / "done").write_text(steps)
    if rest:
        raise SystemExit(3)
    core_v2.close()


def restored(uuid: str) -> str:
    with core_v2.checkpoint.restore_path(uuid) as path:
        return (pathlib.Path(path) / "done").read_text()


if __name__ == "__main__":
    main()
