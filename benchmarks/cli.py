"""The command line: `det --help`, `det experiment list` and `create` on a real master, compared with the start of Python."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.cluster import PASSWORD, Cluster, cluster
from benchmarks.report import Row, Spread, Target
from benchmarks.timing import interleaved

ROUNDS = 15
TARGET_MS = 150.0
KEPT_FROM = "PYTHONDONTWRITEBYTECODE"
"""Environment with a cache of compiled modules, which an installed program has, even if the caller disables writing it."""
CREATE_MS = 200.0
"""The target excludes the upload, so it applies to a directory with one small file."""
BARE, HELP, LIST = "python3 -c pass", "det --help", "det experiment list"
CREATE, CREATE_1_MB = "det experiment create (one file)", "det experiment create (1 MB)"


DET = ("-m", "resolute_cli.main")


class Commands:
    """Runs commands against one cluster, each in a new process, and records their processor time."""

    def __init__(self, running: Cluster) -> None:
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DET_") and name != KEPT_FROM},
            "PYTHONPYCACHEPREFIX": str(running.directory / "bytecode"),
            "DET_MASTER": f"http://127.0.0.1:{running.port}",
            "DET_DEBUG_CONFIG_PATH": str(running.directory / "logins"),
        }
        self._processor: dict[tuple[str, ...], list[float]] = {}

    def log_in(self) -> None:
        login = [sys.executable, *DET, "user", "login", "determined"]
        subprocess.run(login, env={**self._environ, "DET_PASS": PASSWORD}, stdout=subprocess.DEVNULL, check=True)

    def run(self, *arguments: str) -> None:
        before = _processor_ms()
        subprocess.run([sys.executable, *arguments], env=self._environ, stdout=subprocess.DEVNULL, check=True)
        self._processor.setdefault(arguments, []).append(_processor_ms() - before)

    def note(self, arguments: tuple[str, ...]) -> str:
        """Processor time depends less on other load of the machine than elapsed time."""
        spread = Spread.of(self._processor[arguments], "ms")
        return f"{spread.median:.0f} ms of processor time ({spread.low:.0f} to {spread.high:.0f})"


def main() -> list[Row]:
    with cluster(slots=1) as running:
        commands = Commands(running)
        commands.log_in()
        words = _words(running.directory)
        found = interleaved(
            {name: partial(commands.run, *arguments) for name, arguments in words.items()},
            rounds=ROUNDS,
            timer=time.perf_counter,
        )
    milliseconds = {name: [1000 * second for second in seconds] for name, seconds in found.items()}
    bare = Spread.of(milliseconds[BARE], "ms")
    targets = {HELP: TARGET_MS, LIST: TARGET_MS, CREATE: CREATE_MS, CREATE_1_MB: None}
    return [
        Row(
            name=name,
            subject=Spread.of(milliseconds[name], "ms"),
            bound_name=BARE,
            bound=bare,
            result=_more(milliseconds[name], milliseconds[BARE])
            if at_most == TARGET_MS
            else _median(milliseconds[name]),
            unit="ms more" if at_most == TARGET_MS else "ms",
            target=Target(at_most=at_most) if at_most is not None else None,
            notes=commands.note(words[name]),
        )
        for name, at_most in targets.items()
    ]


def _words(directory: Path) -> dict[str, tuple[str, ...]]:
    """The arguments of each command. Creates the directories that two of them upload."""
    small, large = directory / "small", directory / "large"
    for model in (small, large):
        model.mkdir()
        (model / "train.py").write_text("print('x')\n")
    (large / "data.bin").write_bytes(os.urandom(1024 * 1024))
    config = directory / "const.yaml"
    config.write_text(
        "name: submitted\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss, max_length: 1}\n"
    )
    create = (*DET, "e", "create", str(config))
    return {
        BARE: ("-c", "pass"),
        HELP: (*DET, "--help"),
        LIST: (*DET, "experiment", "list"),
        CREATE: (*create, str(small), "--paused"),
        CREATE_1_MB: (*create, str(large), "--paused"),
    }


def _processor_ms() -> float:
    """Processor time of all ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (used.ru_utime + used.ru_stime)


def _median(values: list[float]) -> float:
    return Spread.of(values, "ms").median


def _more(subject: list[float], bound: list[float]) -> float:
    return Spread.of([own - other for own, other in zip(subject, bound, strict=True)], "ms").median
