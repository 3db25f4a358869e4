"""Reads a pickled question from its input and writes a pickled answer. `ProcessAdvisor` starts this process.

Both ends belong to one installation, and no other program writes to the pipes. The process has a low priority and its own limits of
time and memory, so that it ends soon after a killed master.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys

from resolute.errors import InvalidInput
from resolute_master.forecast.advice import Advice, Question
from resolute_sim.twin.advice import advise, simulatable

ADVICE_CPU_S = 300
"""Limit of processor time of the simulation. The kernel kills the process at the limit."""
ADVICE_MEMORY_BYTES = 4 << 30
"""Limit of address space. An allocation beyond it fails."""
NICE = 15


def answer(question: Question) -> Advice:
    """Raises `InvalidInput` as `advise` does, and if the present pool can hold none of the jobs."""
    pool = question.pool
    jobs = simulatable(pool, question.jobs)
    if not jobs:
        raise InvalidInput(
            f"pool '{pool.name}' as it is configured can hold none of the {len(question.jobs)} jobs of its history"
        )
    return advise(
        pool,
        jobs,
        question.catalogue,
        boot_s=question.boot_s,
        days=question.days,
        left_out=len(question.jobs) - len(jobs),
    )


def limit() -> None:
    """Sets the limits of this process."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (ADVICE_CPU_S, ADVICE_CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_AS, (ADVICE_MEMORY_BYTES, ADVICE_MEMORY_BYTES))


def main() -> None:
    limit()
    question: Question = pickle.load(sys.stdin.buffer)
    found: Advice | str
    try:
        found = answer(question)
    except InvalidInput as error:
        found = str(error)
    sys.stdout.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
