"""The same seed gives the same world, event by event, whatever the order of sets and dictionaries."""

from __future__ import annotations

import os
import subprocess
import sys

from resolute_sim.simulation import simulate
from support.effort import repeated

SEEDS = (0, 7, 14, 39, 90)[: repeated(push=2, night=5)]
PROGRAM = (
    "import sys; from resolute_sim.simulation import simulate; print(*(simulate(int(s)).trace for s in sys.argv[1:]))"
)


def traces_of_another_process(hash_seed: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, *(str(seed) for seed in SEEDS)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_the_same_seed_gives_the_same_trace() -> None:
    here = [simulate(seed).trace for seed in SEEDS]
    assert len(set(here)) == len(SEEDS)
    assert traces_of_another_process("1") == here
    assert traces_of_another_process("2") == here


def test_the_story_is_the_same_when_nobody_listens() -> None:
    lines: list[str] = []
    assert simulate(7, tell=lines.append).trace == simulate(7).trace
    assert lines
