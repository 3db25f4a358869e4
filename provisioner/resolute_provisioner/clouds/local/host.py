"""The host of one local machine: a detached process that boots it, interrupts it, ends it, and writes down when.

`python -m resolute_provisioner.clouds.local.host <machine directory>` returns as soon as the host has claimed the
machine; the host lives on by itself. The process that started it may be killed at any moment. Of several hosts started for one
machine, one claims it and the others leave. What runs in the machine is a descendant of the host and dies with it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import psutil

from resolute.clock import Clock, SystemClock
from resolute.wire.states import NoticeKind
from resolute_provisioner.clouds.local.files import MachineFiles, process_identity
from resolute_provisioner.clouds.records import claim_json, read_json, time_text, write_json

log = logging.getLogger(__name__)

POLL_S = 0.1
"""Period in which an order (stop, interrupt) or the end of the machine is detected."""

POWER_OFF_LIMIT_S, POWER_OFF_PAUSE_S = 60.0, 1.0
"""Time after which a process that does not end is logged; the machine's other processes have ended."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class Host:
    """Runs one machine, from the boot delay to the record in `gone.json`."""

    def __init__(self, files: MachineFiles, record: Mapping[str, Any], clock: Clock) -> None:
        self._files = files
        self._record = record
        self._clock = clock
        self._machine_pid: int | None = None
        self._exit_status: int | None = None
        self._kill_at: datetime | None = None
        self._killed_because = ""
        self._stop_since: float | None = None
        self._paid_from = clock.now()
        self._interruptions: list[Mapping[str, Any]] = list(record["interruptions"])

    def run(self) -> None:
        """Returns when nothing of the machine is left."""
        if self._wait_for_boot():
            self._start()
            while self._exit_status is None:
                self._carry_out()
                self._reap()
                if self._exit_status is None:
                    time.sleep(POLL_S)
            # The end is the machine's, not that of what it leaves behind.
            ended_at = self._clock.now()
            self._kill_descendants()
            self._power_off()
            self._write_end(ended_at, self._killed_because or _exit_text(self._exit_status))
        else:
            self._write_end(self._clock.now(), "ended before it had booted")
        self._files.interrupt_order.unlink(missing_ok=True)

    def _wait_for_boot(self) -> bool:
        """False when the machine got an order to end, or was interrupted, while it was booting."""
        boots_at = self._clock.monotonic() + float(self._record["boot_delay_s"])
        while not self._files.stop.exists() and not self._files.interrupt_order.exists():
            left_s = boots_at - self._clock.monotonic()
            if left_s <= 0:
                return True
            time.sleep(min(POLL_S, left_s))
        return False

    def _start(self) -> None:
        host_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_machine(host_pid)
        self._machine_pid = pid
        self._paid_from = self._clock.now()
        write_json(self._files.started, {**process_identity(pid), "paid_from": time_text(self._paid_from)})

    def _become_machine(self, host_pid: int) -> NoReturn:
        try:
            os.setsid()
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != host_pid:
                os._exit(1)  # the host died before the line above could tie us to it
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)  # what the host ignores would be ignored by every task
            output = os.open(self._files.directory / "machine.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(self._files.directory)
            command = [*self._record["command"], str(self._files.directory)]
            environment = {**os.environ, "RESOLUTE_INSTANCE": str(self._record["instance_id"])}
            os.execvpe(command[0], command, environment)
        except BaseException as error:
            os.write(2, f"the machine could not be started: {error}\n".encode())
        os._exit(127)

    def _carry_out(self) -> None:
        order = read_json(self._files.interrupt_order)
        if order is not None:
            self._interrupt(order.get("notice_s"), str(order.get("reason") or "interrupted by order"))
            self._files.interrupt_order.unlink(missing_ok=True)
        for scripted in list(self._interruptions):
            if self._clock.now() >= self._paid_from + timedelta(seconds=float(scripted["after_s"])):
                self._interruptions.remove(scripted)
                self._interrupt(scripted.get("notice_s"), "scripted interruption")
        if self._kill_at is not None and self._clock.now() >= self._kill_at:
            self._kill()
        if self._files.stop.exists():
            self._stop()

    def _interrupt(self, notice_s: float | None, reason: str) -> None:
        if self._kill_at is not None:
            return
        self._kill_at = self._clock.now() + timedelta(seconds=float(notice_s or 0.0))
        self._killed_because = f"{reason}, {'without notice' if notice_s is None else f'{notice_s:g} s after notice'}"
        if notice_s is not None:
            notice = {"kind": NoticeKind.INTERRUPTION.value, "deadline": time_text(self._kill_at), "reason": reason}
            write_json(self._files.notice, notice)

    def _stop(self) -> None:
        if self._stop_since is None:
            self._stop_since = self._clock.monotonic()
            self._killed_because = self._killed_because or "terminated"
            self._signal(signal.SIGTERM)
        elif self._clock.monotonic() - self._stop_since > float(self._record["stop_grace_s"]):
            self._kill()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Until it is reaped, which only we do, the pid cannot be given to another process.
        if self._machine_pid is not None and self._exit_status is None:
            os.kill(self._machine_pid, number)

    def _reap(self) -> None:
        """Collect the machine, and the orphans that fall to us because we are their reaper."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._machine_pid:
                    self._exit_status = status

    def _kill_descendants(self) -> None:
        """Kills all processes that the machine has started, also detached ones."""
        while remaining := psutil.Process().children(recursive=True):
            for process in remaining:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._reap()
            time.sleep(0.01)

    def _power_off(self) -> None:
        """Processes that are not descendants, such as containers, end before the machine is recorded as ended."""
        command = self._record.get("power_off")
        if not command:
            return
        until = self._clock.monotonic() + POWER_OFF_LIMIT_S
        while True:
            done = subprocess.run([*command, str(self._files.directory)], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            log.error("the machine is not off yet: %s", done.stderr.strip())
            if self._clock.monotonic() > until:
                return
            time.sleep(POWER_OFF_PAUSE_S)

    def _write_end(self, at: datetime, reason: str) -> None:
        claim_json(self._files.gone, {"at": time_text(at), "reason": reason})


def _exit_text(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return (
        f"its machine process was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with code {code}"
    )


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def main(arguments: Sequence[str]) -> int:
    """Detach, claim the machine, and host it. The return is that of the starting process, once the claim is decided."""
    files = MachineFiles(Path(arguments[0]))
    read_end, write_end = os.pipe()
    if os.fork() > 0:
        os.close(write_end)
        os.read(read_end, 1)  # returns when the host has claimed the machine, or has died
        return 0
    os.setsid()
    os.close(read_end)
    record = read_json(files.instance)
    if record is None or not claim_json(files.host, process_identity(os.getpid())):
        return 0
    os.close(write_end)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # A person's Ctrl-C or a polite shutdown of what started us is not for the machine.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        Host(files, record, SystemClock()).run()
    except Exception:
        log.exception("the host failed, and its machine ends with it")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
