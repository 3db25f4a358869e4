"""Killed with -9 at any moment of a save: what is listed is whole, and nothing that was saved is lost."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

from resolute.storage import DirectoryStorage, Manifest, Verify, verify
from support.harness_tasks import Tasks

KILLS = 30
SAVE_ALL_THE_TIME = """
import os, sys
from pathlib import Path
from resolute import core
step, parent = int(sys.argv[2]), None
with core.init(environ={}, local_dir=sys.argv[1]) as context:
    while True:
        step += 1
        with context.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            for number in range(4):
                (path / f"part-{number}").write_bytes(os.urandom(100_000))
        print(step, uuid, flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_checkpoints_only(tasks: Tasks, tmp_path: Path) -> None:
    draw = random.Random(8)
    storage = DirectoryStorage(tmp_path / "checkpoints")
    announced: set[str] = set()
    for attempt in range(KILLS):
        variables = {"PATH": "/usr/bin:/bin"}
        arguments = [sys.executable, "-c", SAVE_ALL_THE_TIME, str(tmp_path), str(attempt * 1000)]
        task = tasks.start_command(variables, arguments)
        assert task.stdout is not None
        first = task.stdout.readline()
        time.sleep(draw.uniform(0, 0.03))
        task.send_signal(signal.SIGKILL)
        rest, _ = task.communicate()
        announced |= {line.split()[1] for line in [first, *rest.splitlines(keepends=True)] if line.endswith("\n")}
        for uuid in storage.list():
            with storage.restore(uuid) as path:
                verify(Manifest.from_bytes(uuid, storage.manifest(uuid)), path, Verify.FULL)
        assert announced <= set(storage.list()), "a checkpoint that was announced is gone"
    assert len(announced) >= KILLS


def test_sigterm_after_a_notice_preempts_those_who_asked_for_it(tasks: Tasks, tmp_path: Path) -> None:
    program = """
import signal, sys, time
from pathlib import Path
from resolute.clock import SystemClock
from resolute.core.distributed import DistributedContext
from resolute.core.preempt import ManagedPreempt, PreemptMode
from resolute.core.session import RetryPolicy, Session
session = Session("http://127.0.0.1:9", "token", retry=RetryPolicy(total_s=0.1))
preempt = ManagedPreempt(session=session, allocation_id="t.1", run_dir=Path(sys.argv[1]),
                         distributed=DistributedContext.alone(), mode=PreemptMode.WorkersAskChief,
                         clock=SystemClock(), sigterm_on_notice=True)
preempt.start()
print(preempt.should_preempt(auto_ack=False), flush=True)
while not preempt.should_preempt(auto_ack=False):
    time.sleep(0.01)
print(preempt.reason, flush=True)
preempt.close()
"""
    task = tasks.start_command({"PATH": "/usr/bin:/bin"}, [sys.executable, "-c", program, str(tmp_path)])
    assert task.stdout is not None and task.stdout.readline() == "False\n"
    assert int((tmp_path / "notice.pid").read_text()) == task.pid
    task.send_signal(signal.SIGTERM)
    ended = tasks.finish(task)
    assert (ended.code, "SIGTERM" in ended.out) == (0, True), ended.err
    assert not (tmp_path / "notice.pid").exists()
