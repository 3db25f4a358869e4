"""`python -m resolute.testing.scripted_trial`: a trial that executes a script, without any framework.

The script is the hyperparameter `script` (see `resolute.testing.script` for the language), or `--script` off-cluster.
The hyperparameter `event_log` names a file or directory where every start, step, save and end is written down and flushed
to disk. It reports, saves, obeys preemption and resumes at the exact step; in a gang all ranks meet at every step.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute import core
from resolute.clock import Clock, SystemClock
from resolute.errors import InvalidInput, ResoluteError
from resolute.testing.event_log import EventLog
from resolute.testing.script import (
    Command,
    Exit,
    Fault,
    Log,
    Save,
    Script,
    Sleep,
    Steps,
    Validate,
    WaitForFile,
    WaitForPreemption,
    parse_script,
)

STATE_NAME = "state.json"
WATCH_S = 0.05
"""How often a sleeping or waiting trial asks whether to stop."""


@dataclass(slots=True, kw_only=True)
class Position:
    """The position in the script: steps completed in all, the current command, and its steps already done."""

    step: int = 0
    command: int = 0
    done: int = 0


class Preempted(Exception):
    """Saved and acknowledged: end with exit code 0."""


class ScriptedTrial:
    """Runs one script inside one context."""

    def __init__(self, context: core.Context, script: Script, event_log: EventLog | None, metric: str) -> None:
        self._context = context
        self._script = script
        self._event_log = event_log
        self._metric = metric
        self._position = Position()
        self._saved_step: int | None = None
        self._validated_step: int | None = None
        trial = context.info.trial if context.info is not None else None
        self._run_id = trial.trial_run_id if trial is not None else 1
        self._chief = context.distributed.rank == 0

    def run(self, latest_checkpoint: str | None) -> None:
        """From the latest checkpoint to the end of the script. Raises `Preempted`, or SystemExit as scripted."""
        if latest_checkpoint is not None:
            self._restore(latest_checkpoint)
        self._note("start", resumed_from=latest_checkpoint)
        self._context.train.mark_step(self._position.step)
        while self._position.command < len(self._script.commands):
            self._execute(self._script.commands[self._position.command])
            self._position.command += 1
            self._position.done = 0
        self._finish()

    # --------------------------------------------------------------------------------------------------- commands

    def _execute(self, command: Command) -> None:
        match command:
            case Steps():
                while self._position.done < command.count:
                    self._one_step(command)
            case Sleep(seconds=seconds):
                self._sleep(seconds)
            case Log(lines=lines):
                for number in range(lines):
                    print(f"line {number}", flush=number % 100 == 99)
                sys.stdout.flush()
            case Save():
                self._save()
            case Validate():
                self._validate()
            case WaitForPreemption():
                while True:
                    self._check_preemption(next_command=True)
                    time.sleep(WATCH_S)
            case WaitForFile(path=path):
                while not Path(path).exists():
                    self._sleep(WATCH_S)
            case Exit(code=code):
                self._exit(code)

    def _one_step(self, command: Steps) -> None:
        if command.every_s:
            time.sleep(command.every_s)
        step = self._position.step + 1
        met = self._context.distributed.allgather(step)
        if len(set(met)) != 1:
            raise ResoluteError(f"ranks are at different steps: {met}")
        self._position.step = step
        self._position.done += 1
        self._note("step")
        if command.report and self._chief:
            self._context.train.report_training_metrics(step, {"loss": 1.0 / step, "scripted_step": step})
        self._context.train.mark_step(step)
        if self._chief and self._script.total_steps >= 10 and step % (self._script.total_steps // 10) == 0:
            self._context.train.report_progress(min(1.0, step / self._script.total_steps))
        for fault in self._script.faults:
            if fault.applies(step=step, run=self._run_id, rank=self._context.distributed.rank):
                self._fail(fault)
        if self._script.validate_every and step % self._script.validate_every == 0:
            self._validate()
        if self._script.checkpoint_every and step % self._script.checkpoint_every == 0:
            self._save()
        self._check_preemption()

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            if self._context.distributed.size == 1:
                # Ranks of a gang wake at different times: only a lone process may ask while it sleeps.
                self._check_preemption()
            time.sleep(min(WATCH_S, left_s))

    def _validate(self) -> None:
        step = self._position.step
        if self._chief and self._validated_step != step:
            self._context.train.report_validation_metrics(step, {self._metric: 1.0 / (step + 1)})
        self._validated_step = step

    def _finish(self) -> None:
        self._validate()
        if self._script.checkpoint_every and self._saved_step != self._position.step:
            self._save()
        if self._chief:
            self._context.train.report_progress(1.0)
        self._context.train.flush()
        self._note("end", code=0, why="completed")

    # ----------------------------------------------------------------------------------------------------- endings

    def _exit(self, code: int) -> None:
        self._context.train.flush()
        self._note("end", code=code, why="scripted")
        sys.exit(code)

    def _fail(self, fault: Fault) -> None:
        if fault.hang:
            while True:
                signal.pause()
        if fault.signal is not None:
            sys.stdout.flush()
            os.kill(os.getpid(), fault.signal)
            signal.pause()  # the signal may take a moment to be delivered
        self._exit(fault.code or 0)

    def _check_preemption(self, *, next_command: bool = False) -> None:
        if self._script.ignore_preemption:
            return
        preempt = self._context.preempt
        # A script that waits for preemption has no use for the time after a notice.
        stop = preempt.should_preempt(auto_ack=False) or (next_command and preempt.noticed)
        if not stop and preempt.should_checkpoint():
            self._save()
        if not stop:
            return
        self._note("preempted", reason=preempt.reason)
        failing = self._script.fail_on_preemption
        if failing is not None and failing[1] in (None, self._run_id):
            preempt.acknowledge_preemption_signal()
            self._exit(failing[0])
        if next_command:
            self._position.command += 1
            self._position.done = 0
        if self._saved_step != self._position.step or next_command:
            self._save()
        self._context.train.flush()
        preempt.acknowledge_preemption_signal()
        self._context.distributed.barrier()  # no rank ends before the checkpoint is complete
        self._note("end", code=0, why="preempted")
        raise Preempted

    # ------------------------------------------------------------------------------------------------- checkpoints

    def _save(self) -> None:
        shard = self._context.distributed.size > 1
        metadata = {"steps_completed": self._position.step}
        with self._context.checkpoint.store_path(metadata, shard=shard) as (path, uuid):
            if self._chief:
                position = self._position
                body = {"step": position.step, "command": position.command, "done": position.done}
                (path / STATE_NAME).write_text(json.dumps(body))
            else:
                (path / f"rank-{self._context.distributed.rank}.json").write_text(json.dumps(metadata))
        self._saved_step = self._position.step
        self._note("save", uuid=uuid)

    def _restore(self, uuid: str) -> None:
        with self._context.checkpoint.restore_path(uuid) as path:
            body = json.loads((path / STATE_NAME).read_text())
        self._position = Position(step=body["step"], command=body["command"], done=body["done"])
        self._saved_step = self._position.step
        self._context.checkpoint.started_from(uuid)

    def _note(self, event: str, **fields: Any) -> None:
        if self._event_log is not None:
            self._event_log.write(event, step=self._position.step, **fields)


def main(arguments: list[str] | None = None, clock: Clock | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute.testing.scripted_trial", description=__doc__)
    parser.add_argument("--script", help="sentences separated by ';' (default: the hyperparameter `script`)")
    parser.add_argument(
        "--event-log", help="file or directory for the event log (default: the hyperparameter `event_log`)"
    )
    parser.add_argument("--local-dir", type=Path, help="off-cluster: where checkpoints and reports go")
    parser.add_argument("--resume", metavar="UUID", help="off-cluster: the checkpoint to resume from")
    options = parser.parse_args(arguments)
    clock = clock or SystemClock()
    info = core.get_cluster_info()
    trial = info.trial if info is not None else None
    hparams: Mapping[str, Any] = trial.hparams if trial is not None else {}
    try:
        script = parse_script(options.script or hparams.get("script") or _missing())
        with core.init(local_dir=options.local_dir, clock=clock) as context:
            event_log = _event_log(options.event_log or hparams.get("event_log"), context, clock)
            metric = str((trial.config.get("searcher") or {}).get("metric") or "loss") if trial else "loss"
            latest = info.latest_checkpoint if info is not None else None
            ScriptedTrial(context, script, event_log, metric).run(latest or options.resume)
    except Preempted:
        return 0
    except ResoluteError as error:
        print(f"ERROR: resolute.testing: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _missing() -> Any:
    raise InvalidInput("there is no script: set the hyperparameter `script`, or give --script")


def _event_log(path: Any, context: core.Context, clock: Clock) -> EventLog | None:
    if not path:
        return None
    info = context.info
    trial = info.trial if info is not None else None
    identity = {
        "allocation_id": info.allocation_id if info is not None else "local",
        "trial_id": trial.trial_id if trial is not None else None,
        "trial_run_id": trial.trial_run_id if trial is not None else None,
        "rank": context.distributed.rank,
    }
    return EventLog(str(path), clock=clock, identity=identity)


if __name__ == "__main__":
    sys.exit(main())
