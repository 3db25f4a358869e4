"""One task writes ten thousand lines a second, beside one that writes a line now and then: the second does not notice."""

from __future__ import annotations

import re
from pathlib import Path

from resolute.client.sdk import Experiment
from resolute.wire.rest.logs import LogsQuery
from support.live import LiveCluster, live_cluster, until
from support.new_db import NewDb

QUIET_LINES = 40
READ = 10_000

NOISY = """\
import sys, time
number = 0
while True:
    sys.stdout.write("".join(f"noise {number + i}\\n" for i in range(1000)))
    sys.stdout.flush()
    number += 1000
    time.sleep(0.1)
"""

QUIET = f"""\
import time
for number in range({QUIET_LINES}):
    print(f"quiet {{number}}", flush=True)
    time.sleep(0.05)
"""


def task_that(cluster: LiveCluster, program: str) -> Experiment:
    return cluster.submit({}, entrypoint=["python3", "-u", "-c", program])


def numbers(experiment: Experiment, word: str, most: int = 0) -> list[int]:
    """The numbers behind the word in the first `most` lines of the log (0: in all), in their order."""
    (trial,) = experiment.list_trials()
    found = (re.search(rf"\b{word} (\d+)", line) for line in trial.iter_logs(LogsQuery(limit=most)))
    return [int(match.group(1)) for match in found if match]


def test_a_task_that_writes_ten_thousand_lines_a_second_hurts_no_other(tmp_path: Path, new_db: NewDb) -> None:
    pool = {"type": "local", "slots_per_instance": 2, "max_instances": 1, "max_idle_agent_period": "3s"}
    with live_cluster(tmp_path, pool={"provider": pool}, **new_db()) as cluster:
        noisy = task_that(cluster, NOISY)
        until("the noise has begun", lambda: numbers(noisy, "noise", READ + 100)[READ - 1 :])
        quiet = task_that(cluster, QUIET)
        assert quiet.wait(interval_s=0.2, timeout_s=180) == "COMPLETED"
        # All of its lines are there when it ends, in order, each once: they waited for none of the noise that came before.
        assert numbers(quiet, "quiet") == list(range(QUIET_LINES))
        # Both were on one machine, whose link lived all the time, and the noise goes on without a gap.
        assert len(cluster.agents()) == 1 and "has been silent" not in cluster.master_log()
        assert numbers(noisy, "noise", READ + 100)[:READ] == list(range(READ))
        noisy.kill()
        noisy.wait(interval_s=0.2, timeout_s=120)
    assert cluster.left_over() == []
