"""Experiments. Modules that only some calls need are imported by them, because a command line starts again each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from resolute.client.paging import all_pages, segment
from resolute.client.session import Progress, Session
from resolute.wire.rest.experiments import (
    Experiment,
    GetExperimentResponse,
    GetExperimentsQuery,
    GetExperimentsResponse,
)

if TYPE_CHECKING:
    from resolute.wire.rest.checkpoints import Checkpoint, GetCheckpointsQuery
    from resolute.wire.rest.costs import GetExperimentCostResponse
    from resolute.wire.rest.experiment_changes import (
        CreateExperimentRequest,
        CreateExperimentResponse,
        PatchCheckpointStorage,
        PatchExperiment,
    )
    from resolute.wire.rest.paging import Pagination
    from resolute.wire.rest.searching import GetSearchResponse
    from resolute.wire.rest.trials import GetExperimentTrialsQuery, GetExperimentTrialsResponse, Trial


@dataclass(frozen=True, slots=True)
class Experiments:
    """Calls about experiments."""

    session: Session

    def create(self, request: CreateExperimentRequest, progress: Progress | None = None) -> CreateExperimentResponse:
        """Submits an experiment. `progress` is called with the progress of the upload."""
        from resolute.wire.rest.experiment_changes import CreateExperimentResponse

        return self.session.post("api/v1/experiments", CreateExperimentResponse, request, progress)

    def get(self, experiment_id: int) -> GetExperimentResponse:
        return self.session.get(_path(experiment_id), GetExperimentResponse)

    def page(self, query: GetExperimentsQuery) -> GetExperimentsResponse:
        """One page of experiments."""
        return self.session.get("api/v1/experiments", GetExperimentsResponse, query)

    def list(self, query: GetExperimentsQuery) -> tuple[Experiment, ...]:
        """Every experiment that matches, from the query's offset on. The query's limit is the size of the pages."""

        def fetch(offset: int) -> tuple[tuple[Experiment, ...], Pagination]:
            answer = self.page(replace(query, offset=offset))
            return answer.experiments, answer.pagination

        return tuple(all_pages(fetch, query.offset))

    def act(self, experiment_id: int, verb: str) -> None:
        """Controls an experiment. `verb` is activate, pause, cancel, kill, archive or unarchive."""
        from resolute.wire.rest.empty import Empty

        self.session.post(f"{_path(experiment_id)}/{verb}", Empty)

    def delete(self, experiment_id: int) -> None:
        """Begins the deletion; it continues after the answer."""
        from resolute.wire.rest.empty import Empty

        self.session.delete(_path(experiment_id), Empty)

    def patch(self, patch: PatchExperiment) -> Experiment | None:
        from resolute.wire.rest.experiment_changes import PatchExperimentResponse

        return self.session.patch(_path(patch.id), PatchExperimentResponse, patch).experiment

    def move(self, experiment_id: int, project_id: int) -> None:
        from resolute.wire.rest.empty import Empty
        from resolute.wire.rest.experiment_changes import MoveExperimentRequest

        request = MoveExperimentRequest(experiment_id=experiment_id, destination_project_id=project_id)
        self.session.post(f"{_path(experiment_id)}/move", Empty, request)

    def retain_logs(self, experiment_id: int, days: int) -> None:
        """Sets the days that the logs of all its trials are kept; -1 keeps them without a limit."""
        from resolute.wire.rest.empty import Empty
        from resolute.wire.rest.experiment_changes import PutExperimentRetainLogsRequest

        request = PutExperimentRetainLogsRequest(experiment_id=experiment_id, num_days=days)
        self.session.put(f"{_path(experiment_id)}/retain_logs", Empty, request)

    def delete_tensorboard_files(self, experiment_id: int) -> None:
        """Begins the removal; it continues after the answer."""
        from resolute.wire.rest.empty import Empty

        self.session.delete(f"{_path(experiment_id)}/tensorboard-files", Empty)

    def not_kept_by(self, experiment_id: int, counts: PatchCheckpointStorage) -> tuple[Mapping[str, Any], ...]:
        """The checkpoints that would be removed with these counts, as records with the original's names."""
        answer = self.session.request("GET", f"experiments/{experiment_id}/preview_gc", query=counts)
        return tuple(answer["checkpoints"])

    def cost(self, experiment_id: int) -> GetExperimentCostResponse:
        """Cost of the experiment, by trial."""
        from resolute.wire.rest.costs import GetExperimentCostResponse

        return self.session.get(f"{_path(experiment_id)}/cost", GetExperimentCostResponse)

    def set_max_cost(self, experiment_id: int, amount: float | None) -> GetExperimentCostResponse:
        """Sets the limit on the cost of the experiment; None is no limit."""
        from resolute.wire.rest.costs import GetExperimentCostResponse, MaxCost

        path = f"{_path(experiment_id)}/max_cost"
        return self.session.put(path, GetExperimentCostResponse, MaxCost(max_cost=amount))

    def search(self, experiment_id: int) -> GetSearchResponse:
        """The state of its trials in the search, with reasons. Raises `FailedPrecondition` for an unmanaged one."""
        from resolute.wire.rest.searching import GetSearchResponse

        return self.session.get(f"{_path(experiment_id)}/search", GetSearchResponse)

    def add_label(self, experiment_id: int, label: str) -> tuple[str, ...]:
        from resolute.wire.rest.experiment_changes import PutExperimentLabelResponse

        path = f"{_path(experiment_id)}/labels/{segment(label)}"
        return self.session.put(path, PutExperimentLabelResponse).labels

    def remove_label(self, experiment_id: int, label: str) -> tuple[str, ...]:
        from resolute.wire.rest.experiment_changes import DeleteExperimentLabelResponse

        path = f"{_path(experiment_id)}/labels/{segment(label)}"
        return self.session.delete(path, DeleteExperimentLabelResponse).labels

    def trials_page(self, experiment_id: int, query: GetExperimentTrialsQuery) -> GetExperimentTrialsResponse:
        """One page of trials."""
        from resolute.wire.rest.trials import GetExperimentTrialsResponse

        return self.session.get(f"{_path(experiment_id)}/trials", GetExperimentTrialsResponse, query)

    def trials(self, experiment_id: int, query: GetExperimentTrialsQuery | None = None) -> tuple[Trial, ...]:
        """Every trial, by id unless the query has another order."""
        from resolute.wire.rest.trials import GetExperimentTrialsQuery

        asked = query or GetExperimentTrialsQuery()

        def fetch(offset: int) -> tuple[tuple[Trial, ...], Pagination]:
            answer = self.trials_page(experiment_id, replace(asked, offset=offset))
            return answer.trials, answer.pagination

        return tuple(all_pages(fetch, asked.offset))

    def checkpoints(self, experiment_id: int, query: GetCheckpointsQuery) -> tuple[Checkpoint, ...]:
        """One page of checkpoints: all of them unless the query limits it."""
        from resolute.wire.rest.checkpoints import GetExperimentCheckpointsResponse

        path = f"{_path(experiment_id)}/checkpoints"
        return self.session.get(path, GetExperimentCheckpointsResponse, query).checkpoints

    def model_definition(self, experiment_id: int) -> bytes:
        """The model definition as a gzip tar; empty when there is none."""
        from resolute.wire.rest.experiment_changes import GetModelDefResponse

        return self.session.get(f"{_path(experiment_id)}/model_def", GetModelDefResponse).b64_tgz


def _path(experiment_id: int) -> str:
    return f"api/v1/experiments/{experiment_id}"
