"""The advisor of a master: a separate process (`advisor_process`) simulates the pool's history, so that no request waits for it.

The interface for the master's composition root. It imports nothing of the simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from collections.abc import Mapping, Sequence

from resolute.errors import InvalidInput, Unavailable
from resolute_master.forecast.advice import Advice, Question

COMMAND = (sys.executable, "-P", "-m", "resolute_sim.twin.advisor_process")
"""`-P` excludes the master's working directory from the module path."""
PASSED_ON = frozenset({"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL"})
"""Environment variables that the process inherits. Others may contain secrets."""
ADVICE_S = 600.0
"""Timeout of a simulation for advice. It exceeds the limit of processor time, because a busy machine gives the process less than
one processor."""


class ProcessAdvisor:
    """An `Advisor` that starts one process per question. The caller limits the number of concurrent questions."""

    def __init__(
        self, environ: Mapping[str, str], *, command: Sequence[str] = COMMAND, limit_s: float = ADVICE_S
    ) -> None:
        self._environ = {name: value for name, value in environ.items() if name in PASSED_ON}
        self._command = tuple(command)
        self._limit_s = limit_s

    async def __call__(self, question: Question) -> Advice:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=self._environ
        )
        try:
            async with asyncio.timeout(self._limit_s):
                written, _ = await process.communicate(await asyncio.to_thread(pickle.dumps, question))
        except TimeoutError:
            raise _too_long(question) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode != 0:
            raise (
                _too_long(question)
                if (process.returncode or 0) < 0
                else Unavailable(
                    f"the simulation of pool {question.pool.name} has failed, and the master's log has the details"
                )
            )
        answer: Advice | str = pickle.loads(written)
        if isinstance(answer, str):
            raise InvalidInput(answer)
        return answer


def _too_long(question: Question) -> Unavailable:
    return Unavailable(
        f"the simulation of {len(question.jobs)} jobs of pool {question.pool.name} was ended: it took longer, or more "
        "memory, than it may; 'det simulate' has no such limits"
    )
