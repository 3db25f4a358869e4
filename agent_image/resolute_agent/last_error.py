"""The error of a failed task: the traceback that ended it, or its last lines. It is read from the end of the output when the task
has ended, so restarts of the agent do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from resolute.wire.agent_link import MAX_ERROR_CHARACTERS, Exit
from resolute.wire.states import FailureKind
from resolute_agent.runtimes.base import Runtime

TAIL_BYTES = 64 * 1024
"""Bytes at the end of each stream that are searched."""

MOST_LINES = 25
"""Lines of a traceback that are kept. The end of a longer one is kept, because it names the error."""

LAST_WORDS = 5
"""Lines that are kept of a program that ends without a traceback."""

BEGINNING = "Traceback (most recent call last):"
_PREFIX = re.compile(r"(?:\[rank[=\d]+\]:? ?)?(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL): )?")
_SUMMARY = "ChildFailedError"
"""Errors of torch's launcher after the failure of a worker: the worker's own traceback has more details."""


class Traceback:
    """Follows the lines of one stream and detects those of a traceback."""

    def __init__(self) -> None:
        self._inside = False

    def holds(self, line: str) -> bool:
        """`line` without its break. The exception's own line, the last one of a traceback, belongs to it."""
        line = _PREFIX.sub("", line, count=1)
        if line.strip() == BEGINNING:
            self._inside = True
            return True
        inside, self._inside = self._inside, self._inside and (not line or line[0] in " \t")
        return inside


def last_error(stderr: bytes, stdout: bytes) -> str:
    """The last traceback of either stream, else the last lines of the one that has any; at most `MAX_ERROR_CHARACTERS`."""
    streams = [_lines(data) for data in (stderr, stdout)]
    found = [block for lines in streams for block in reversed(list(_tracebacks(lines)))]
    telling = [block for block in found if _SUMMARY not in block[-1]] or found
    if telling:
        lines = telling[0]
        return _cut([lines[0], "  ...", *lines[1 - MOST_LINES :]] if len(lines) > MOST_LINES else lines)
    said = [[line for line in lines if line.strip()] for lines in streams]
    return _cut(next((lines[-LAST_WORDS:] for lines in said if lines), []))


def with_last_error(exit: Exit, runtime: Runtime, container_id: str) -> Exit:
    """The end of a container that failed by itself, with the end of its output."""
    if exit.failure is not FailureKind.CONTAINER_FAILED or not exit.code:
        return exit
    stderr, stdout = (_tail(runtime, container_id, stream) for stream in ("stderr", "stdout"))
    return replace(exit, error=last_error(stderr, stdout))


def _tail(runtime: Runtime, container_id: str, stream: str) -> bytes:
    start = max(0, runtime.output_size(container_id, stream) - TAIL_BYTES)
    return runtime.read_output(container_id, stream, start, TAIL_BYTES)


def _lines(data: bytes) -> list[str]:
    text = data.decode("utf-8", errors="replace").replace("\0", "")
    return [_PREFIX.sub("", line.rstrip(), count=1) for line in re.split(r"\r\n|\n|\r", text)]


def _tracebacks(lines: Sequence[str]) -> Iterator[list[str]]:
    following, block = Traceback(), list[str]()
    for line in lines:
        if line.strip() == BEGINNING:
            if len(block) > 1:
                yield block
            block = []
        if following.holds(line):
            block.append(line)
        elif block:
            yield block
            block = []
    if len(block) > 1:
        yield block


def _cut(lines: Sequence[str]) -> str:
    """The end matters most: it names the exception."""
    return "\n".join(lines)[-MAX_ERROR_CHARACTERS:]
