"""Each run resumes exactly where the last checkpoint left off, and no step is missing in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from resolute.wire.states import ExperimentState
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_sim.event_log import Entry, Event, EventLog


def resumed(
    event_log: EventLog, checkpoints: Mapping[str, int], *, trial: int, run: int, told: int, uuid: str
) -> Iterator[str]:
    """`told` is the step that the master named with the checkpoint `uuid` ("" for none)."""
    held = checkpoints.get(uuid) if uuid else 0
    if held != told:
        yield f"run {run} of trial {trial} is ordered to resume from step {told}, and checkpoint '{uuid}' holds step {held}"
    earlier = [e for e in event_log.of_trial[trial] if e.run < run]
    acknowledged = max((e.step for e in earlier if e.event is Event.SAVED), default=0)
    if told < acknowledged:
        yield f"run {run} of trial {trial} goes on from step {told}, although step {acknowledged} was acknowledged"
    if told and told not in {e.step for e in earlier if e.event is Event.SAVE}:
        yield f"run {run} of trial {trial} goes on from step {told}, which no earlier run has saved"
    if any(e.run > run for e in event_log.of_trial[trial]):
        yield f"run {run} of trial {trial} starts after a newer one"


def steps_are_contiguous(event_log: EventLog, trial: int) -> Iterator[str]:
    """Within each run, and from each run to the next."""
    reached = 0
    for run, entries in sorted(_by_run(event_log.of_trial[trial]).items()):
        start = next((e.step for e in entries if e.event is Event.START), None)
        if start is None:
            yield f"run {run} of trial {trial} wrote without having started"
            continue
        if start > reached:
            yield f"run {run} of trial {trial} starts at step {start}, and only {reached} had been done"
        steps = [e.step for e in entries if e.event is Event.STEP]
        if steps != list(range(start + 1, start + 1 + len(steps))):
            yield f"run {run} of trial {trial} started at {start} and did steps {steps}"
        reached = max([reached, *steps])


def _by_run(entries: Sequence[Entry]) -> dict[int, list[Entry]]:
    runs: dict[int, list[Entry]] = {}
    for entry in entries:
        runs.setdefault(entry.run, []).append(entry)
    return runs


def completed_trials_are_complete(
    trial: Trial, steps: int, event_log: EventLog, reports: Sequence[MetricReport]
) -> Iterator[str]:
    """A trial that counts as COMPLETED has done every step, or as many as its search requested, and each step is reported once."""
    if trial.state is not ExperimentState.COMPLETED or trial.invalid_hparams:
        return
    last = max(_by_run(event_log.of_trial[trial.id]), default=None)
    ends = [e for e in event_log.of_trial[trial.id] if e.event is Event.END and e.run == last]
    if trial.searcher_done and ends:
        steps = trial.steps_completed
    elif not ends or ends[-1].step != steps:
        done = ends[-1].step if ends else "none"
        yield f"trial {trial.id} counts as completed after {done} of {steps} steps"
    counted = [r.steps_completed for r in reports if r.group == "training"]
    if sorted(each for each in counted if each is not None) != list(range(1, steps + 1)):
        yield f"trial {trial.id} has training reports of the steps {counted} instead of 1 to {steps}"
