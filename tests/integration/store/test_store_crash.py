"""A store whose process is killed at any moment has every change that was acknowledged, and none in part."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from resolute_master.domain.change import Counter
from resolute_master.domain.ids import TaskId, TrialId
from resolute_master.store.base import LogQuery, Store
from resolute_master.store.sql.store import SqlStore
from support import stores_crashing_writer
from support.stores_crashing_writer import COUNTERS, LINES, SNAPSHOT_EVERY

WRITER = Path(stores_crashing_writer.__file__)
KILLS = 12
SEED = 20240301
START_LIMIT_S = 60.0
"""How long a process may take until its first commit before the test calls it hung."""


def acknowledged_until_killed(path: Path, commits: int, delay_s: float) -> list[int]:
    """Runs the writer, kills it `delay_s` after its `commits`-th acknowledgement; the numbers that it said."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(WRITER.parent.parent), *sys.path])}
    process = subprocess.Popen([sys.executable, str(WRITER), str(path)], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    said = b""
    deadline = time.monotonic() + START_LIMIT_S
    try:
        while said.count(b"\n") < commits:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no commit within {START_LIMIT_S} s"
            said += os.read(process.stdout.fileno(), 65536)
            assert process.poll() is None, f"the writer ended by itself with {process.returncode}"
        time.sleep(delay_s)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with process.stdout:
        said += process.stdout.read()
    # A line without its end was cut by the kill; what it says is not promised.
    return [int(line) for line in said.split(b"\n")[:-1]]


async def last_change(store: Store) -> int:
    """Checks that what is there is exactly a whole number of changes; how many."""
    loaded = await store.load()
    n = loaded.sequence
    assert loaded.digest == f"digest-{n}"
    assert loaded.entities == tuple(sorted(expected_counters(n), key=lambda counter: counter.id))
    assert [effect.key for effect in loaded.outbox] == [f"remove-checkpoint:{n}"]
    assert [decision.subject for decision in await store.decisions(n + 1)] == [str(i) for i in range(1, n + 1)]
    lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert [line.log for line in lines] == [str(i) for i in range(1, n + 1) for _ in range(LINES)]
    snapshots = [snapshot.sequence for snapshot in await store.snapshots()]
    entries = [entry.sequence async for entry in store.journal(0)]
    assert entries == list(range(snapshots[0] if snapshots else 1, n + 1))
    assert len(snapshots) <= 2 and all(sequence % SNAPSHOT_EVERY == 0 for sequence in snapshots)
    return n


def expected_counters(n: int) -> list[Counter]:
    return [Counter(id=f"counter-{index}", value=n) for index in range(COUNTERS)]


async def metric_steps(store: Store) -> list[int | None]:
    rows = await store.metrics(TrialId(1))
    steps = [row.steps_completed for row in rows if row.group == "training"]
    assert steps == [row.steps_completed for row in rows if row.group == "validation"], "half a batch was stored"
    return steps


async def test_no_acknowledged_change_is_lost_and_none_is_there_in_part(tmp_path: Path) -> None:
    path = tmp_path / "master.db"
    moments = random.Random(SEED)
    reached = 0
    acknowledged: list[int] = []
    for kill in range(KILLS):
        commits, delay_s = moments.randint(1, 30), moments.uniform(0, 0.02)
        where = f"kill {kill} ({delay_s:.4f} s after {commits} commits)"
        said = acknowledged_until_killed(path, commits, delay_s)
        # It goes on exactly where the store stood, and leaves nothing out.
        assert said == list(range(reached + 1, reached + 1 + len(said))), where
        acknowledged += said
        store = await SqlStore.open(f"sqlite:///{path}")
        try:
            reached = await last_change(store)
            # At most one change was on its way when the process ended.
            assert reached in (said[-1], said[-1] + 1), where
            steps = await metric_steps(store)
            assert set(acknowledged) <= set(steps) <= set(range(1, reached + 1)), where
        finally:
            await store.close()
    assert reached > KILLS * 5
