"""Runs the operator's programs, and reads their answers. Blocking.

The exit status is the result of a launch, as in `sysexits.h`:

    0    it is done
    69   EX_UNAVAILABLE: none of these machines now             `NoCapacity`
    75   EX_TEMPFAIL: ask later                                 `Throttled`
    77   EX_NOPERM: no more machines are allowed                `QuotaExceeded`
    78   EX_CONFIG: the configuration is wrong                  `BadRequest`

Every other one, and a program that does not end in time, says nothing: `Transient`. The last line of its errors is what people are
shown.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from resolute.printable import lines
from resolute_provisioner.clouds.base import (
    BadRequest,
    CloudError,
    NoCapacity,
    QuotaExceeded,
    Throttled,
    Transient,
)

REFUSALS: Mapping[int, type[CloudError]] = {69: NoCapacity, 75: Throttled, 77: QuotaExceeded, 78: BadRequest}

PASSED_ON = re.compile(r"PATH|HOME|LANG|LC_.*|TZ|TMPDIR|USER|SSH_AUTH_SOCK")
"""Variables that the programs inherit from the master. Its secrets are not among them."""

MESSAGE_CHARACTERS = 300


def run(
    command: Sequence[str], *, environ: Mapping[str, str], told: Mapping[str, str], text: str = "", limit_s: float
) -> str:
    """Runs a program; returns its output. `told`: further variables; `text`: its input. Raises a `CloudError`."""
    environment = {name: value for name, value in environ.items() if PASSED_ON.fullmatch(name)} | dict(told)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise BadRequest(f"{command[0]} cannot be run: {error.strerror or error}") from error
    try:
        output, errors = process.communicate(text, timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise Transient(f"{command[0]} did not end within {limit_s:g} s") from None
    if process.returncode == 0:
        return output
    raise REFUSALS.get(process.returncode, Transient)(_message(command[0], process.returncode, errors or output))


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process with all processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _message(program: str, status: int, text: str) -> str:
    said = [line for line in text.strip().splitlines() if line.strip()]
    last = f": {lines(said[-1].strip())[:MESSAGE_CHARACTERS]}" if said else ""
    return f"{program} ended with status {status}{last}"
