"""Runs Terraform, or OpenTofu, in the directory of a cluster."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from resolute.errors import InvalidInput, ResoluteError
from resolute_deploy import state_copy

OLDEST = (1, 6)
PROGRAMS = ("terraform", "tofu")
LOCK_WAIT = "1m"
"""How long a run waits for the lock of another run; see `Terraform.check_lock`."""


class TerraformFailed(ResoluteError):
    """Terraform ended with an error; the text is its message without decoration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One resource of an apply or a destroy. `elapsed_s` is None when it begins."""

    action: str
    resource: str
    elapsed_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terraform:
    """The program, in one directory."""

    program: Path
    version: tuple[int, ...]
    directory: Path
    environ: Mapping[str, str]
    state_file: Path | None = None
    """None if the state is in a bucket."""

    def init(self, *, reconfigure: bool = True) -> None:
        self._checked("init", "-input=false", "-no-color", *(["-reconfigure"] if reconfigure else []))

    def validate_variables(self) -> None:
        """Runs the checks of the variables. Raises `InvalidInput` with their messages."""
        done = self._run("plan", "-input=false", "-no-color", "-lock=false", "-refresh=false")
        if done.returncode:
            raise InvalidInput(failure_in_words(done.stderr or done.stdout))

    def plan(self, file: str) -> dict[str, Any]:
        """Writes a plan to `file`, and returns it in Terraform's JSON format."""
        self._checked("plan", "-input=false", "-no-color", f"-out={file}")
        shown: dict[str, Any] = json.loads(self._checked("show", "-json", file))
        return shown

    def apply(self, told: Callable[[Step], None], *arguments: str) -> None:
        self._stream(told, "apply", *arguments)

    def destroy(self, told: Callable[[Step], None]) -> None:
        self._stream(told, "destroy")

    def outputs(self) -> dict[str, Any]:
        """The outputs; empty before the first apply."""
        told: dict[str, Any] = json.loads(self._checked("output", "-json", "-no-color"))
        return {name: output["value"] for name, output in told.items()}

    def resources(self) -> list[str]:
        """Addresses of all resources in the state."""
        done = self._run("state", "list")
        return done.stdout.split() if done.returncode == 0 else []

    def state(self) -> dict[str, Any]:
        """The state in Terraform's JSON format."""
        told: dict[str, Any] = json.loads(self._checked("show", "-json", "-no-color"))
        return told

    def check_lock(self) -> None:
        """Raises `TerraformFailed` if another run holds the lock, or was killed while it held it. Changes nothing."""
        self._checked("untaint", "-no-color", "-allow-missing", "terraform_data.lock")

    def adopt(self, address: str, id_: str) -> None:
        """Imports an existing resource into the state."""
        self._checked("import", "-input=false", "-no-color", f"-lock-timeout={LOCK_WAIT}", address, id_)

    def forget(self, addresses: Sequence[str]) -> None:
        """Removes resources from the state without deleting them."""
        if addresses:
            self._checked("state", "rm", *addresses)

    def _stream(self, told: Callable[[Step], None], command: str, *arguments: str) -> None:
        """Terraform continues if this program is killed: it has its own session and output file, and keeps its lock."""
        log = self.directory / f"{command}.log"
        with self._run_lock() as lock, log.open("w") as out:
            fcntl.flock(lock, fcntl.LOCK_EX)
            running = subprocess.Popen(
                [
                    str(self.program),
                    command,
                    "-json",
                    "-input=false",
                    "-auto-approve",
                    f"-lock-timeout={LOCK_WAIT}",
                    *arguments,
                ],
                cwd=self.directory,
                env=dict(self.environ),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
        problems = []
        with log.open() as lines:
            try:
                for event in _events(_followed(lines, running)):
                    if event.get("type") == "diagnostic" and event.get("@level") == "error":
                        told_of = event["diagnostic"]
                        locked = self._lock_in_words(f"{told_of.get('summary', '')}\n{told_of.get('detail', '')}")
                        problems.append(locked or _diagnostic(event))
                    step = _step(event)
                    if step is not None:
                        if self.state_file is not None:
                            state_copy.keep(self.state_file)
                        told(step)
            except KeyboardInterrupt:
                # Terraform ends what it has begun, and writes its state.
                running.send_signal(signal.SIGINT)
                running.wait()
                raise
        if running.wait():
            raise TerraformFailed(
                "; ".join(problems) or f"{self.program.name} {command} ended with {running.returncode}"
            )

    def wait_for_earlier_run(self, told: Callable[[str], None]) -> None:
        """Waits for a Terraform that a killed program left behind in this directory, and restores a state that was cut off."""
        with self._run_lock() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                told("waiting for the Terraform of an earlier run, which still works")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if self.state_file is not None and state_copy.restore(self.state_file):
                told("the state was cut off while Terraform wrote it; its last whole copy is used")

    def _run_lock(self) -> TextIO:
        return (self.directory / "run.lock").open("w")

    def _checked(self, *arguments: str) -> str:
        done = self._run(*arguments)
        if done.returncode:
            said = done.stderr or done.stdout
            raise TerraformFailed(self._lock_in_words(said) or failure_in_words(said))
        return done.stdout

    def _lock_in_words(self, said: str) -> str:
        """The lock in Terraform's message; empty if the state is not locked. A lock in a bucket outlives a killed run."""
        if "acquiring the state lock" not in said:
            return ""
        lock = dict(re.findall(r"^\W*(ID|Who|Operation|Created):\s+(.+?)\s*$", said, flags=re.MULTILINE))
        if "ID" not in lock:
            return ""
        doing = lock.get("Operation", "").removeprefix("OperationType").lower()
        since = lock.get("Created", "").partition(".")[0]
        return (
            f"the state is locked by {lock.get('Who', 'another run')} since {since} UTC ({doing}); run the command again when that "
            "has ended. If that run was killed, this frees the state: "
            f"`{self.program.name} -chdir={self.directory} force-unlock {lock['ID']}`"
        )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.program), *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=dict(self.environ), capture_output=True, text=True, check=False
        )


def find_terraform(directory: Path, environ: Mapping[str, str]) -> Terraform:
    """The program on the PATH. Raises `InvalidInput` if there is none, or if it is too old."""
    for name in PROGRAMS:
        found = shutil.which(name, path=environ.get("PATH"))
        if found is None:
            continue
        settled = {**environ, "TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}
        version = _version(found, settled)
        if version < OLDEST:
            raise InvalidInput(
                f"{found} is version {'.'.join(map(str, version))}, and deploying needs {OLDEST[0]}.{OLDEST[1]} or newer; "
                "get one from https://developer.hashicorp.com/terraform/install or https://opentofu.org/docs/intro/install"
            )
        return Terraform(program=Path(found), version=version, directory=directory, environ=settled)
    raise InvalidInput(
        "neither terraform nor tofu is on the PATH, and deploying needs one of version 1.6 or newer; "
        "get it from https://developer.hashicorp.com/terraform/install or https://opentofu.org/docs/intro/install"
    )


def _followed(lines: TextIO, running: subprocess.Popen[Any]) -> Iterator[str]:
    """The lines of a file that a program writes, until the program ends."""
    partial = ""
    while True:
        ended = running.poll() is not None
        partial += lines.readline()
        if partial.endswith("\n"):
            yield partial
            partial = ""
        elif ended:
            return
        else:
            time.sleep(0.1)


def _version(program: str, environ: Mapping[str, str]) -> tuple[int, ...]:
    done = subprocess.run([program, "version", "-json"], env=dict(environ), capture_output=True, text=True, check=False)
    try:
        text = json.loads(done.stdout)["terraform_version"]
    except (ValueError, KeyError):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise InvalidInput(
            f"`{program} version` prints no version: {said[0] if said else 'its output is empty'}"
        ) from None
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a word of a provider between the events
        if isinstance(event, dict):
            yield event


def _step(event: Mapping[str, Any]) -> Step | None:
    kind = event.get("type")
    if kind not in ("apply_start", "apply_complete"):
        return None
    hook = event["hook"]
    elapsed = float(hook.get("elapsed_seconds", 0)) if kind == "apply_complete" else None
    return Step(action=hook["action"], resource=hook["resource"]["addr"], elapsed_s=elapsed)


def _diagnostic(event: Mapping[str, Any]) -> str:
    told = event["diagnostic"]
    where = f"{told['address']}: " if told.get("address") else ""
    parts = [part for part in (told.get("summary", ""), told.get("detail", "")) if part]
    return where + ": ".join(" ".join(part.split()) for part in parts)


def failure_in_words(text: str) -> str:
    """The errors in Terraform's output, each on one line and without source excerpts."""
    problems = []
    for block in re.split(r"^(?:│ )?Error: ", _undecorated(text), flags=re.MULTILINE)[1:]:
        summary, _, rest = block.partition("\n")
        kept = []
        for line in rest.splitlines():
            if re.match(r"\s*(on \S+ line \d+|with \S+|\d+: )", line) or re.match(r"\s*│|\s*├|\s*├", line):
                continue
            if line.startswith("This was checked by"):
                break
            kept.append(line.strip())
        detail = " ".join(" ".join(kept).split())
        known = summary.strip() in ("Invalid value for variable", "Resource precondition failed")
        problems.append(detail if known and detail else f"{summary.strip()}: {detail}".rstrip(": "))
    return "\n".join(dict.fromkeys(problems)) or " ".join(text.split())


def _undecorated(text: str) -> str:
    return "\n".join(re.sub(r"^[╷│╵] ?", "", line) for line in text.splitlines())
