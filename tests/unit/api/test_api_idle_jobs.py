"""What is said of a job of which nothing waits or runs."""

from __future__ import annotations

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.api.resources.why import reason_to_idle
from support.pools import a_job
from support.stores import an_experiment


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (ExperimentState.ACTIVE, "It is between two runs: none of its allocations is pending or running."),
        (ExperimentState.PAUSED, "Its experiment is paused; `det experiment activate 3` continues it."),
        (ExperimentState.STOPPING_KILLED, "Its experiment is STOPPING_KILLED: no further allocation of it starts."),
    ],
)
def test_a_job_that_asks_for_nothing_says_what_its_experiment_does(state: ExperimentState, told: str) -> None:
    assert reason_to_idle(a_job("j"), an_experiment(3, state=state)) == told
    assert reason_to_idle(a_job("j", ended=True), an_experiment(3, state=state)) == "It has ended."


@pytest.mark.parametrize("state", [ExperimentState.ACTIVE, ExperimentState.PAUSED])
def test_of_an_experiment_that_runs_elsewhere_it_is_not_said_that_it_has_ended(state: ExperimentState) -> None:
    elsewhere = an_experiment(3, state=state, unmanaged=True)
    assert reason_to_idle(a_job("j", ended=True), elsewhere) == (
        "Its trials run outside of the cluster: it is in no queue."
    )
    over = an_experiment(3, state=ExperimentState.COMPLETED, unmanaged=True)
    assert reason_to_idle(a_job("j", ended=True), over) == "It has ended."
