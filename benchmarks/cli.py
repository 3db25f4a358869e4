"""The command line: `det --help`, `det experiment list` and `create` on a real master, beside the bare start of Python."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from functools import partial

from benchmarks.cluster import PASSWORD, cluster
from benchmarks.report import Row, Spread, Target
from benchmarks.timing import interleaved

ROUNDS = 15
TARGET_MS = 150.0
KEPT_FROM = "PYTHONDONTWRITEBYTECODE"
"""An installed program is compiled: that is not to be measured, also where Python is kept from writing it down."""
CREATE_MS = 200.0
"""Promised beside the upload, so for a directory of one small file."""
BARE, HELP, LIST = "python3 -c pass", "det --help", "det experiment list"
CREATE, CREATE_1_MB = "det experiment create (one file)", "det experiment create (1 MB)"


def main() -> list[Row]:
    with cluster(slots=1) as running:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DET_") and name != KEPT_FROM},
            "PYTHONPYCACHEPREFIX": str(running.directory / "bytecode"),
            "DET_MASTER": f"http://127.0.0.1:{running.port}",
            "DET_DEBUG_CONFIG_PATH": str(running.directory / "logins"),
        }

        processor: dict[tuple[str, ...], list[float]] = {}

        def run(*arguments: str) -> None:
            before = _processor_ms()
            subprocess.run([sys.executable, *arguments], env=environ, stdout=subprocess.DEVNULL, check=True)
            processor.setdefault(arguments, []).append(_processor_ms() - before)

        det = ("-m", "resolute_cli.main")
        login = [sys.executable, *det, "user", "login", "determined"]
        subprocess.run(login, env={**environ, "DET_PASS": PASSWORD}, stdout=subprocess.DEVNULL, check=True)
        small, large = running.directory / "small", running.directory / "large"
        for model in (small, large):
            model.mkdir()
            (model / "train.py").write_text("print('x')\n")
        (large / "data.bin").write_bytes(os.urandom(1024 * 1024))
        (running.directory / "const.yaml").write_text(
            "name: submitted\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss, max_length: 1}\n"
        )
        create = (*det, "e", "create", str(running.directory / "const.yaml"))
        commands = {
            BARE: ("-c", "pass"),
            HELP: (*det, "--help"),
            LIST: (*det, "experiment", "list"),
            CREATE: (*create, str(small), "--paused"),
            CREATE_1_MB: (*create, str(large), "--paused"),
        }
        found = interleaved(
            {name: partial(run, *command) for name, command in commands.items()},
            rounds=ROUNDS,
            timer=time.perf_counter,
        )
    notes = {name: _processor_note(processor[command]) for name, command in commands.items()}
    milliseconds = {name: [1000 * second for second in seconds] for name, seconds in found.items()}
    bare = Spread.of(milliseconds[BARE], "ms")
    return [
        Row(
            name=name,
            subject=Spread.of(milliseconds[name], "ms"),
            bound_name=BARE,
            bound=bare,
            result=_more(milliseconds[name], milliseconds[BARE]),
            unit="ms more",
            target=Target(at_most=TARGET_MS),
            notes=notes[name],
        )
        for name in (HELP, LIST)
    ] + [
        Row(
            name=name,
            subject=Spread.of(milliseconds[name], "ms"),
            bound_name=BARE,
            bound=bare,
            result=Spread.of(milliseconds[name], "ms").median,
            unit="ms",
            target=target,
            notes=notes[name],
        )
        for name, target in ((CREATE, Target(at_most=CREATE_MS)), (CREATE_1_MB, None))
    ]


def _processor_ms() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime)


def _processor_note(milliseconds: list[float]) -> str:
    """What a busy machine stretches less than the time on the clock."""
    spread = Spread.of(milliseconds, "ms")
    return f"{spread.median:.0f} ms of processor time ({spread.low:.0f} to {spread.high:.0f})"


def _more(subject: list[float], bound: list[float]) -> float:
    return Spread.of([own - other for own, other in zip(subject, bound, strict=True)], "ms").median
