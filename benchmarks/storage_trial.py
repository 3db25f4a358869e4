"""The trial of `benchmarks.storage_notice`: it trains until it is preempted, saves the configured number of bytes, and prints the
times."""

from __future__ import annotations

import json
import os
import time

from resolute import core

STEP_S = 0.01


def main() -> None:
    info = core.get_cluster_info()
    assert info is not None and info.trial is not None
    content = os.urandom(int(info.trial.hparams["bytes"]))
    with core.init() as context:
        step = 0
        context.train.report_training_metrics(1, {"loss": 1.0})
        while not context.preempt.should_preempt():
            time.sleep(STEP_S)
            step += 1
        seen = time.time()
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "weights").write_bytes(content)
        print("noticed " + json.dumps({"seen": seen, "saved": time.time()}), flush=True)


if __name__ == "__main__":
    main()
