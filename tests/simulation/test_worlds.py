"""Seeded worlds: the production code under virtual time, with every fault that we know, and no rule broken.

Each world's journal is replayed as well, over all restarts of its master, with equal digests.
"""

from __future__ import annotations

from collections import Counter

import pytest

from resolute_sim.fault_plan import NO_FAULTS, Fault
from resolute_sim.simulation import Outcome, simulate, simulate_many
from support.sim_seeds import SEEDS

ENOUGH_FOR_EVERYTHING = 60
"""So many worlds together know every kind of fault."""


@pytest.mark.timeout(900)  # three minutes of two processors
def test_no_rule_is_broken_in_any_world() -> None:
    outcomes = list(simulate_many(range(SEEDS), processes=2))
    broken = [f"python -m resolute_sim --seed {o.seed}  # {o.violations[0]}" for o in outcomes if o.violations]
    assert not broken, "\n".join(broken)
    assert all(outcome.replayed >= outcome.commits > 0 for outcome in outcomes)
    if len(outcomes) >= ENOUGH_FOR_EVERYTHING:
        _everything_happened(outcomes)


def _everything_happened(outcomes: list[Outcome]) -> None:
    """Worlds in which nothing happens break no rule either."""
    tally: Counter[str] = Counter()
    for outcome in outcomes:
        tally.update(outcome.tally)
    wanted = [f"fault: {fault.value}" for fault in Fault]
    decisions = ("place", "preempt", "launch", "refused", "terminate", "drain", "lost", "notice", "budget", "stray")
    wanted += [f"decision: {kind}" for kind in decisions]
    wanted += ["task: goes on from a checkpoint", "task: is a member of a gang"]
    missing = [what for what in wanted if tally[what] < 5]
    assert not missing, f"hardly ever seen: {missing}"
    assert any(outcome.deadlines for outcome in outcomes), "no deadline was judged"
    assert sum(outcome.masters > 1 for outcome in outcomes) > len(outcomes) / 4


def test_without_faults_every_experiment_completes_with_one_master() -> None:
    outcome = simulate(3, fault_plan=NO_FAULTS, with_replay=True, snapshot_every=1)
    assert not outcome.violations
    assert outcome.masters == 1
    assert not any(what.startswith("fault") for what in outcome.tally)
