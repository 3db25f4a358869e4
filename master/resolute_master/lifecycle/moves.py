"""The legal state transitions of experiments and trials, in one table each."""

from __future__ import annotations

from collections.abc import Mapping

from resolute.errors import FailedPrecondition
from resolute.wire.states import STOPPING_ENDS, ExperimentState

S = ExperimentState

_STOPPING = frozenset(STOPPING_ENDS)

EXPERIMENT_MOVES: Mapping[ExperimentState, frozenset[ExperimentState]] = {
    S.ACTIVE: frozenset({S.PAUSED, S.ERROR, *_STOPPING}),
    S.PAUSED: frozenset({S.ACTIVE, S.ERROR, *_STOPPING}),
    S.STOPPING_CANCELED: frozenset({S.CANCELED, S.STOPPING_KILLED, S.STOPPING_ERROR, S.ERROR}),
    S.STOPPING_KILLED: frozenset({S.CANCELED, S.STOPPING_ERROR, S.ERROR}),
    S.STOPPING_COMPLETED: frozenset({S.COMPLETED, S.STOPPING_ERROR, S.ERROR}),
    S.STOPPING_ERROR: frozenset({S.ERROR}),
    S.CANCELED: frozenset({S.DELETING}),
    S.COMPLETED: frozenset({S.DELETING}),
    S.ERROR: frozenset({S.DELETING}),
    S.DELETING: frozenset({S.DELETED, S.DELETE_FAILED}),
    S.DELETE_FAILED: frozenset({S.DELETING}),
    S.DELETED: frozenset(),
}

SEVERITY: Mapping[ExperimentState, int] = {
    S.STOPPING_COMPLETED: 1,
    S.STOPPING_CANCELED: 2,
    S.STOPPING_KILLED: 3,
    S.STOPPING_ERROR: 4,
}
"""Order of the stopping states: a stopping trial moves only to a state with a larger value."""


def check_experiment_move(experiment: int, current: ExperimentState, wanted: ExperimentState) -> bool:
    """True if the experiment has to move, False if it has the state already. Raises `FailedPrecondition` for an illegal
    transition."""
    if current is wanted:
        return False
    if wanted not in EXPERIMENT_MOVES[current]:
        allowed = ", ".join(sorted(EXPERIMENT_MOVES[current])) or "none"
        raise FailedPrecondition(
            f"experiment {experiment} is {current} and cannot become {wanted} (possible from here: {allowed})"
        )
    return True
