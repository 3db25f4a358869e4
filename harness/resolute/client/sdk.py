"""Objects for scripts and notebooks.

master = Resolute()                                  # address and login as the command line finds them
experiment = master.create_experiment("const.yaml", model_dir=".")
if experiment.wait() == "COMPLETED":
    experiment.list_checkpoints()[0].download("best")
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from resolute.client.address import address_from
from resolute.client.api import Api
from resolute.client.authentication import authenticated_session
from resolute.client.checkpoints import Mode
from resolute.client.context import pack
from resolute.client.session import Progress, Session
from resolute.errors import FailedPrecondition, InvalidInput, NotFound, Unavailable
from resolute.wire.rest import checkpoints as checkpoint_shapes
from resolute.wire.rest import experiments as experiment_shapes
from resolute.wire.rest import trials as trial_shapes
from resolute.wire.rest.checkpoints import GetCheckpointsQuery
from resolute.wire.rest.enums import CheckpointSortBy, OrderBy, WireCheckpointState, WireExperimentState
from resolute.wire.rest.experiment_changes import CreateExperimentRequest, PatchExperiment
from resolute.wire.rest.experiments import GetExperimentsQuery
from resolute.wire.rest.extensions import TrialAllocation
from resolute.wire.rest.logs import LogsQuery
from resolute.wire.rest.metrics import MetricsReport

TERMINAL = frozenset({"COMPLETED", "CANCELED", "ERROR", "DELETED", "DELETE_FAILED"})
"""States in which nothing of an experiment runs any more."""


class Resolute(Api):
    """One login at one master.

    Without arguments the address comes from `DET_MASTER`, user and password from `DET_USER` and `DET_PASS`, from the
    stored login of the command line, or are those of a fresh cluster. Raises `Unauthenticated` or `MasterUnreachable`.
    """

    def __init__(
        self,
        master: str | None = None,
        user: str | None = None,
        password: str | None = None,
        *,
        session: Session | None = None,
    ) -> None:
        if session is None:
            session = authenticated_session(address_from(os.environ, master), user=user, password=password)
        super().__init__(session)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the login stays."""
        self.session.close()

    def create_experiment(
        self,
        config: str | Path | Mapping[str, Any],
        model_dir: str | Path | None = None,
        includes: Sequence[str | Path] = (),
        *,
        activate: bool = True,
        progress: Progress | None = None,
    ) -> Experiment:
        """Submits an experiment. `config` is the path of a YAML file, or the configuration itself."""
        if isinstance(config, Mapping):
            text = json.dumps(config)
        else:
            try:
                text = Path(config).read_text(encoding="utf-8")
            except OSError as error:
                raise InvalidInput(f"cannot read the configuration {str(config)!r}: {error.strerror}") from None
        packed = pack(Path(model_dir) if model_dir is not None else None, [Path(path) for path in includes])
        request = CreateExperimentRequest(config=text, model_definition=packed.files, activate=activate)
        return Experiment(self, self.experiments.create(request, progress).experiment)

    def get_experiment(self, experiment_id: int) -> Experiment:
        return Experiment(self, self.experiments.get(experiment_id).experiment)

    def list_experiments(self, query: GetExperimentsQuery | None = None) -> list[Experiment]:
        return [Experiment(self, found) for found in self.experiments.list(query or GetExperimentsQuery())]

    def get_trial(self, trial_id: int) -> Trial:
        return Trial(self, self.trials.get(trial_id))

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        return Checkpoint(self, self.checkpoints.get(uuid))


class Experiment:
    """An experiment as it was when last loaded (`details`)."""

    def __init__(self, master: Resolute, details: experiment_shapes.Experiment) -> None:
        self._master = master
        self.details = details

    @property
    def id(self) -> int:
        return self.details.id

    @property
    def state(self) -> str:
        """The state when last loaded, like "RUNNING" or "COMPLETED"."""
        return self.details.state.name

    @property
    def config(self) -> Mapping[str, Any]:
        return self.details.config

    def reload(self) -> None:
        self.details = self._master.experiments.get(self.id).experiment

    def activate(self) -> None:
        self._master.experiments.act(self.id, "activate")

    def pause(self) -> None:
        self._master.experiments.act(self.id, "pause")

    def cancel(self) -> None:
        """Ends the experiment after a last checkpoint."""
        self._master.experiments.act(self.id, "cancel")

    def kill(self) -> None:
        """Ends the experiment at once."""
        self._master.experiments.act(self.id, "kill")

    def archive(self) -> None:
        self._master.experiments.act(self.id, "archive")

    def unarchive(self) -> None:
        self._master.experiments.act(self.id, "unarchive")

    def delete(self) -> None:
        """Begins the deletion; it continues after the return."""
        self._master.experiments.delete(self.id)

    def set_name(self, name: str) -> None:
        self._patch(PatchExperiment(id=self.id, name=name))

    def set_description(self, description: str) -> None:
        self._patch(PatchExperiment(id=self.id, description=description))

    def set_notes(self, notes: str) -> None:
        self._patch(PatchExperiment(id=self.id, notes=notes))

    def set_labels(self, labels: Sequence[str]) -> None:
        self._patch(PatchExperiment(id=self.id, labels=tuple(labels)))

    def add_label(self, label: str) -> None:
        self._master.experiments.add_label(self.id, label)

    def remove_label(self, label: str) -> None:
        self._master.experiments.remove_label(self.id, label)

    def _patch(self, patch: PatchExperiment) -> None:
        changed = self._master.experiments.patch(patch)
        if changed is not None:
            self.details = changed

    def download_code(self, output_dir: str | Path = ".") -> Path:
        """Writes the model definition as `experiment_<id>_model_def.tgz`."""
        path = Path(output_dir, f"experiment_{self.id}_model_def.tgz")
        path.write_bytes(self._master.experiments.model_definition(self.id))
        return path

    def list_trials(self) -> list[Trial]:
        return [Trial(self._master, found) for found in self._master.experiments.trials(self.id)]

    def await_first_trial(self, interval_s: float = 0.1, pause: Callable[[float], object] = time.sleep) -> Trial:
        """The first trial, as soon as there is one. Raises `FailedPrecondition` when it ended without any."""
        while True:
            trials = self.list_trials()
            if trials:
                return trials[0]
            self.reload()
            if self.state in TERMINAL:
                raise FailedPrecondition(f"experiment {self.id} ended as {self.state} before it had a trial")
            pause(interval_s)

    def wait(
        self,
        interval_s: float = 5.0,
        *,
        timeout_s: float | None = None,
        through_pauses: bool = False,
        pause: Callable[[float], object] = time.sleep,
    ) -> str:
        """Waits until the experiment has ended and returns the final state.

        A paused experiment raises `FailedPrecondition` unless `through_pauses`; `Unavailable` after `timeout_s`.
        """
        waited = 0.0
        while True:
            self.reload()
            if self.state in TERMINAL:
                return self.state
            if self.details.state == WireExperimentState.PAUSED and not through_pauses:
                raise FailedPrecondition(f"experiment {self.id} is paused; activate it, then wait")
            if timeout_s is not None and waited >= timeout_s:
                raise Unavailable(f"experiment {self.id} is still {self.state} after {waited:.0f} s")
            pause(interval_s)
            waited += interval_s

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy = CheckpointSortBy.SEARCHER_METRIC,
        order_by: OrderBy = OrderBy.UNSPECIFIED,
        max_results: int = 0,
    ) -> list[Checkpoint]:
        """Completed checkpoints, best first unless asked otherwise."""
        query = _completed(sort_by, order_by, max_results)
        return [Checkpoint(self._master, found) for found in self._master.experiments.checkpoints(self.id, query)]

    def best_trial(self) -> Trial:
        """The trial with the best searcher's metric so far. Raises `NotFound` while none has reported it."""
        self.reload()
        if self.details.best_trial_id is None:
            why = self.details.warning or f"no validation has reported '{self.details.searcher_metric}' yet"
            raise NotFound("best trial of experiment", self.id, why)
        return Trial(self._master, self._master.trials.get(self.details.best_trial_id))

    def best_checkpoint(self) -> Checkpoint:
        """The completed checkpoint with the best searcher's metric. Raises `NotFound` while there is none."""
        return _best(self.list_checkpoints(max_results=1), "experiment", self.id)


class Trial:
    """A trial as it was when last loaded (`details`)."""

    def __init__(self, master: Resolute, details: trial_shapes.Trial) -> None:
        self._master = master
        self.details = details

    @property
    def id(self) -> int:
        return self.details.id

    @property
    def state(self) -> str:
        return self.details.state.name

    @property
    def hparams(self) -> Mapping[str, Any]:
        return self.details.hparams

    def reload(self) -> None:
        self.details = self._master.trials.get(self.id)

    def kill(self) -> None:
        self._master.trials.kill(self.id)

    def get_experiment(self) -> Experiment:
        return self._master.get_experiment(self.details.experiment_id)

    def iter_logs(self, query: LogsQuery | None = None) -> Iterator[str]:
        """Log lines for display, each with its line end."""
        for line in self._master.trials.logs(self.id, query or LogsQuery()):
            yield line.message

    def iter_metrics(self, group: str) -> Iterator[MetricsReport]:
        return self._master.trials.metrics([self.id], group)

    def list_allocations(self) -> tuple[TrialAllocation, ...]:
        """Every attempt at this trial, oldest first."""
        return self._master.trials.allocations(self.id)

    def list_checkpoints(
        self,
        sort_by: CheckpointSortBy = CheckpointSortBy.SEARCHER_METRIC,
        order_by: OrderBy = OrderBy.UNSPECIFIED,
        max_results: int = 0,
    ) -> list[Checkpoint]:
        """Completed checkpoints, best first unless asked otherwise."""
        query = _completed(sort_by, order_by, max_results)
        return [Checkpoint(self._master, found) for found in self._master.trials.checkpoints(self.id, query)]

    def best_checkpoint(self) -> Checkpoint:
        """The completed checkpoint with the best searcher's metric. Raises `NotFound` while there is none."""
        return _best(self.list_checkpoints(max_results=1), "trial", self.id)


class Checkpoint:
    """A checkpoint as it was when last loaded (`details`)."""

    def __init__(self, master: Resolute, details: checkpoint_shapes.Checkpoint) -> None:
        self._master = master
        self.details = details

    @property
    def uuid(self) -> str:
        return self.details.uuid

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.details.metadata

    def reload(self) -> None:
        self.details = self._master.checkpoints.get(self.uuid)

    def download(self, path: str | Path | None = None, mode: Mode = "auto", progress: Progress | None = None) -> Path:
        """Fetches the files into `path`, by default `checkpoints/<uuid>`; complete or not at all."""
        target = Path(path) if path is not None else Path("checkpoints", self.uuid)
        return self._master.checkpoints.download(self.uuid, target, mode=mode, progress=progress)

    def delete(self) -> None:
        """Begins the deletion; it continues after the return."""
        self._master.checkpoints.delete((self.uuid,))


def _best(found: Sequence[Checkpoint], kind: str, id_: int) -> Checkpoint:
    """The first of checkpoints sorted by metric; those without a metric come last and do not count. Raises `NotFound`."""
    if not found or found[0].details.training.searcher_metric is None:
        raise NotFound(
            f"checkpoint with the searcher's metric of {kind}", id_, "validate at the steps at which you save"
        )
    return found[0]


def _completed(sort_by: CheckpointSortBy, order_by: OrderBy, limit: int) -> GetCheckpointsQuery:
    return GetCheckpointsQuery(
        sort_by_attr=sort_by, order_by=order_by, limit=limit, states=(WireCheckpointState.COMPLETED,)
    )
