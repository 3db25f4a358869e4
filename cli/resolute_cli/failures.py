"""Why an experiment failed, in words, from what the master keeps of its trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resolute.client.api import Api
    from resolute.wire.rest.extensions import TrialFailure
    from resolute.wire.rest.trials import Trial


def last_failed(trials: Iterable[Trial]) -> Trial | None:
    """The trial that ended last with state ERROR. None: no trial did."""
    failed = [trial for trial in trials if trial.state.name == "ERROR" and trial.end_time is not None]
    return max(failed, key=lambda trial: (trial.end_time, trial.id), default=None)


def in_one_line(failure: TrialFailure) -> str:
    """The reason, the error's own line, and how often it was the same."""
    error = failure.error.rsplit("\n", 1)[-1].strip()
    often = f" ({failure.times} times in a row with the same error)" if failure.times > 1 else ""
    return f"{failure.reason}{f': {error}' if error else ''}{often}"


def explained(trial: Trial) -> Iterator[str]:
    """All of it: the reason, the traceback, what it mostly means, and where the log is."""
    failure = trial.failure
    if failure is None:
        return
    often = f", {failure.times} times in a row with the same error" if failure.times > 1 else ""
    now = "ended as ERROR" if trial.state.name == "ERROR" else "failed and was restarted"
    yield f"Trial {trial.id} {now}: {failure.reason}{often}"
    yield from (f"  {line}" for line in failure.error.split("\n") if line)
    if failure.hint:
        yield f"  Hint: {failure.hint}"
    yield f"  Its log: det trial logs {trial.id}"


def why_it_ended(api: Api, experiment_id: int, state: str) -> str:
    """One sentence on an experiment that is over."""
    said = f"Experiment {experiment_id} ended as {state}"
    trial = last_failed(api.experiments.trials(experiment_id)) if state == "ERROR" else None
    if trial is None or trial.failure is None:
        return said
    return f"{said}: trial {trial.id}: {in_one_line(trial.failure)}"
