"""How far a training is: its step, the metric, the rate and when it will be done. Shown while its log is followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resolute_cli.render import duration_text, state_text

if TYPE_CHECKING:
    from resolute.client.api import Api
    from resolute.wire.rest.trials import Trial
    from resolute_cli.invocation import Invocation

LOOK_EVERY_S = 1.0

PRINT_EVERY_S = 15.0
"""Where no terminal is: a line on the error stream."""

WINDOW_S = 60.0
"""Period of the rate, in seconds."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An observation (seconds of a steady clock): steps done, and the fraction that the search reports."""

    at_s: float
    steps: int
    fraction: float


def length_in_steps(config: Mapping[str, Any]) -> int | None:
    """Number of steps of the trial, if the configuration gives it in steps."""
    length = (config.get("searcher") or {}).get("max_length")
    if isinstance(length, Mapping):
        length = length.get("batches")
    return length if isinstance(length, int) and not isinstance(length, bool) else None


def progress_text(samples: Sequence[Sample], *, length: int | None, state: str, metric: str = "") -> str:
    """`step 120 of 200, val_loss 0.31 at step 100, 12.3 steps/s, 6.5s left`"""
    newest = samples[-1]
    if not newest.steps:
        return f"{state.lower()}, no step yet"
    parts = [f"step {newest.steps}" + (f" of {length}" if length is not None else ""), *([metric] if metric else [])]
    if (rate := _rate([(sample.at_s, float(sample.steps)) for sample in samples])) is not None:
        parts.append(f"{rate:.3g} steps/s")
    left_s = _left_s(samples, rate, length)
    if left_s is not None and left_s > 0:
        parts.append(f"{duration_text(left_s)} left")
    return ", ".join(parts)


def _rate(points: Sequence[tuple[float, float]]) -> float | None:
    """Mean growth per second over the last `WINDOW_S`. The time before the first step (waiting and starting) is left out. None
    while nothing has grown."""
    points = [point for point in points if point[1]] or points
    began = next((at for at, value in reversed(points) if value != points[-1][1]), None)
    if began is None:
        return None
    grown = [point for point in points if point[0] >= points[-1][0] - WINDOW_S]
    (first_at, first), (last_at, last) = grown[0], grown[-1]
    return (last - first) / (last_at - first_at) if last > first and last_at > first_at else None


def _left_s(samples: Sequence[Sample], rate: float | None, length: int | None) -> float | None:
    if length is not None:
        return max(0.0, (length - samples[-1].steps) / rate) if rate else None
    grows = _rate([(sample.at_s, sample.fraction) for sample in samples])
    return max(0.0, (1.0 - samples[-1].fraction) / grows) if grows else None


def metric_text(trial: Trial, name: str) -> str:
    """The newest validation of the searcher's metric."""
    latest = trial.latest_validation
    value = latest.metrics.avg_metrics.get(name) if latest is not None else None
    if latest is None or value is None:
        return ""
    return f"{name} {f'{value:.4g}' if isinstance(value, float) else value} at step {latest.total_batches}"


class Watcher:
    """Polls a trial and shows its progress."""

    def __init__(self, api: Api, experiment_id: int, trial_id: int) -> None:
        self._api = api
        self._experiment_id = experiment_id
        self._trial_id = trial_id
        self._samples: list[Sample] = []

    def look(self, at_s: float) -> str:
        """Raises `ResoluteError` when the master does not answer."""
        experiment = self._api.experiments.get(self._experiment_id).experiment
        trial = self._api.trials.get(self._trial_id)
        steps = trial.total_batches_processed
        if self._samples and steps < self._samples[-1].steps:
            self._samples.clear()  # a new run resumes from an earlier step
        self._samples.append(Sample(at_s, steps, experiment.progress or 0.0))
        del self._samples[: -int(2 * WINDOW_S / LOOK_EVERY_S)]
        name = experiment.searcher_metric or ""
        return progress_text(
            self._samples,
            length=length_in_steps(experiment.config or {}),
            state=state_text(trial.state),
            metric=metric_text(trial, name),
        )


@contextmanager
def shown_progress(
    cli: Invocation, experiment_id: int, trial_id: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """While the body runs: a line below what scrolls on a terminal, elsewhere a line now and then on the error stream."""
    from resolute.errors import ResoluteError

    watcher, over = Watcher(cli.api(), experiment_id, trial_id), threading.Event()
    pinned = cli.render.can_pin

    def watch() -> None:
        told, said = clock(), ""
        while not over.wait(LOOK_EVERY_S):
            try:
                text = watcher.look(clock())
            except ResoluteError:
                continue  # the log says it, or the next look succeeds
            if over.is_set():
                return
            if pinned:
                cli.render.pin(text)
            elif clock() - told >= PRINT_EVERY_S and text != said:
                told, said = clock(), text
                cli.render.status(f"Progress: {text}")

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5.0)
        cli.render.pin("")
