"""A search in the cluster's working copy: its rows are entities, and are stored in the same commit as its requests."""

from __future__ import annotations

from functools import lru_cache

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment, settings_of
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import Place, Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.step import Step
from resolute_master.searcher import method as search_method
from resolute_master.searcher.events import SearchAction, SearchEvent
from resolute_master.searcher.methods import make

METHODS_KEPT = 256
"""A method is a function of its configuration, so the methods of the searches with the latest events are cached."""


class StepRecords:
    """The rows of one search, read and written through a working copy."""

    def __init__(self, step: Step, search: ExperimentId) -> None:
        self._step = step
        self._search = search

    def get(self, request_id: str) -> SearchTrial | None:
        return self._step.get(SearchTrial, f"{self._search}.{request_id}")

    def put(self, trial: SearchTrial) -> None:
        before = self._step.get(SearchTrial, trial.id)
        self._step.put(trial)
        if before is not None and before.worth != trial.worth:
            for allocation in self._step.find(Allocation, "allocations_of_task", trial.id):
                if not allocation.ended:
                    self._step.put(replace(allocation, worth=trial.worth))

    def size(self, board: str) -> int:
        return self._step.boards.size((self._search, board))

    def below(self, board: str, place: Place) -> int:
        return self._step.boards.below((self._search, board), place)

    def at(self, board: str, index: int) -> SearchTrial:
        _, _, request_id = self._step.boards.at((self._search, board), index)
        return self._step.need(SearchTrial, f"{self._search}.{request_id}")


def method_of(experiment: Experiment) -> search_method.SearchMethod:
    return _method(bytes(experiment.configuration))


@lru_cache(maxsize=METHODS_KEPT)
def _method(configuration: bytes) -> search_method.SearchMethod:
    settings = settings_of(configuration)
    return make(settings.searcher, settings.hyperparameters)


def begin(step: Step, experiment: Experiment, seed: int) -> tuple[SearchAction, ...]:
    """Begins a search; returns its requests."""
    search, actions = search_method.start(method_of(experiment), experiment.id, seed, StepRecords(step, experiment.id))
    step.put(search)
    return actions


def tell(step: Step, experiment: Experiment, event: SearchEvent) -> tuple[float, tuple[SearchAction, ...]]:
    """Passes an event to the search; returns the completed share of the search, and its requests.

    A search gets no events of an experiment that is ending: none of its requests would be carried out.
    """
    search = step.need(Search, experiment.id)
    if experiment.state.stopping and not search.over:
        return experiment.progress, ()
    records, method = StepRecords(step, experiment.id), method_of(experiment)
    search, actions = search_method.tell(method, search, records, event)
    step.put(search)
    return method.progress(search, records), actions


def row_of(step: Step, trial: Trial) -> SearchTrial | None:
    """The search's row of the trial; None for a trial that no search has requested."""
    return step.get(SearchTrial, trial.task_id)


def forget(step: Step, id_: ExperimentId) -> None:
    """Deletes the rows of an experiment's search."""
    for row in step.find(SearchTrial, "trials_of_search", id_):
        step.delete(row)
    search = step.get(Search, id_)
    if search is not None:
        step.delete(search)
