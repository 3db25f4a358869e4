"""The checkers notice: each bug that is put in on purpose is caught, and by the rule that it breaks."""

from __future__ import annotations

import pytest

from resolute_sim.simulation import Outcome, simulate
from support.effort import repeated
from support.sim_mutations import (
    BRIEF_MACHINES,
    CRASHES,
    LATE_WORDS,
    LOST_REPLIES,
    MOVING_MARKET,
    MUTATIONS,
    NO_SPOT,
    Mutation,
)


def first_caught(mutation: Mutation) -> Outcome | None:
    for seed in sorted(range(mutation.seeds), key=lambda seed: seed != mutation.first):
        outcome = simulate(seed, fault_plan=mutation.fault_plan, snapshot_every=1, deadlines=mutation.deadlines)
        if outcome.violations:
            return outcome
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_mutation_is_caught(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    outcome = first_caught(mutation)
    assert outcome is not None, f"{mutation.seeds} worlds did not notice: {mutation.name}"
    first = outcome.violations[0]
    print(f"{mutation.name}: seed {outcome.seed}, {first}")
    assert first.rule in mutation.caught_by, f"seed {outcome.seed}: {first}"


@pytest.mark.parametrize(
    "fault_plan",
    [CRASHES, LOST_REPLIES, LATE_WORDS, BRIEF_MACHINES, MOVING_MARKET, NO_SPOT],
    ids=["crashes", "lost replies", "late words", "brief machines", "a restless market", "no spot"],
)
def test_the_faults_that_provoke_a_mutation_break_nothing_by_themselves(fault_plan: object) -> None:
    for seed in range(repeated(push=3, night=6)):
        outcome = simulate(seed, fault_plan=fault_plan, deadlines=fault_plan is NO_SPOT)  # type: ignore[arg-type]
        assert not outcome.violations, f"seed {seed}: {outcome.violations[0]}"
