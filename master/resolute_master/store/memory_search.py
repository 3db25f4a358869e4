"""The part of the store in memory that searches experiments and runs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_master.store.base import Page
from resolute_master.store.metric_chunks import Chunk, names_in, to_text
from resolute_master.store.result_ranges import Ranges, ranges_of
from resolute_master.store.search_filter import SearchQuery, flat_hyperparameters
from resolute_master.store.search_rows import SearchRow, searched


class MemorySearch:
    """Looks at everything that the store holds."""

    @abstractmethod
    def _all(self, type_: Any) -> list[Any]:
        """All entities of one type, by key."""

    @abstractmethod
    def _chunks_of(self, trial: int) -> Mapping[tuple[int, str], tuple[Chunk, ...]]:
        """What the trial has reported."""

    async def search_experiments(self, query: SearchQuery) -> Page[Experiment]:
        rows = [self._search_row(each, None) for each in self._all(Experiment)]
        page = searched(rows, query)
        return Page(rows=tuple(row.experiment for row in page.rows), offset=page.offset, total=page.total)

    async def search_trials(self, query: SearchQuery) -> Page[Trial]:
        experiments = {each.id: each for each in self._all(Experiment)}
        rows = [self._search_row(experiments[each.experiment_id], each) for each in self._all(Trial)]
        page = searched(rows, query)
        found = tuple(row.trial for row in page.rows if row.trial is not None)
        return Page(rows=found, offset=page.offset, total=page.total)

    def _search_row(self, experiment: Experiment, trial: Trial | None) -> SearchRow:
        of_it = [each for each in self._all(Trial) if each.experiment_id == experiment.id]
        whose = experiment.best_trial if trial is None else trial.id
        checkpoints = [each for each in self._all(Checkpoint) if each.experiment_id == experiment.id]
        return SearchRow(
            experiment=experiment,
            trial=trial,
            trials=of_it if trial is None else [trial],
            checkpoints=[each for each in checkpoints if trial is None or each.trial_id == trial.id],
            job=next((job for job in self._all(Job) if job.experiment_id == experiment.id), None),
            chunks={} if whose is None else {group: chunks for (_, group), chunks in self._chunks_of(whose).items()},
        )

    async def trials(self, ids: Sequence[int]) -> tuple[Trial, ...]:
        return tuple(each for each in self._all(Trial) if each.id in ids)

    async def experiments(self, ids: Sequence[int]) -> tuple[Experiment, ...]:
        return tuple(each for each in self._all(Experiment) if each.id in ids)

    def _of_project(self, project_id: int | None) -> dict[int, Experiment]:
        return {each.id: each for each in self._all(Experiment) if project_id in (None, each.project_id)}

    async def hyperparameter_names(self, project_id: int | None) -> Mapping[str, bool]:
        found: dict[str, bool] = {}
        experiments = self._of_project(project_id)
        for trial in self._all(Trial):
            if trial.experiment_id in experiments:
                for name, (number, _) in flat_hyperparameters(trial.hparams).items():
                    found[name] = found.get(name, True) and number is not None
        return dict(sorted(found.items()))

    async def metric_names(self, project_id: int | None) -> tuple[tuple[str, str, str], ...]:
        experiments = self._of_project(project_id)
        trials = [each.id for each in self._all(Trial) if each.experiment_id in experiments]
        found = (item for trial in trials for item in self._chunks_of(trial).items())
        return names_in((group, to_text(chunks[-1].names)) for (_, group), chunks in found)

    async def result_ranges(self, project_id: int) -> Ranges:
        experiments = self._of_project(project_id).values()
        best = sorted({each.best_trial for each in experiments if each.best_trial is not None})
        rows = [
            (trial, group, to_text(chunk.names))
            for trial in best
            for (_, group), chunks in sorted(self._chunks_of(trial).items())
            for chunk in chunks
        ]
        values = [each.best_validation for each in experiments if each.best_validation is not None]
        finite = [value for value in values if math.isfinite(value)]
        return ranges_of(rows, (min(finite), max(finite)) if finite else None)

    async def run_metadata(self, project_id: int, key: str) -> tuple[Mapping[str, Any], ...]:
        experiments = self._of_project(project_id)
        found = (each.metadata for each in self._all(Trial) if each.experiment_id in experiments)
        return tuple(metadata for metadata in found if metadata.get(key) is not None)

    async def labels(self, project_id: int | None) -> tuple[str, ...]:
        every = Counter(label for each in self._of_project(project_id).values() for label in set(each.labels))
        return tuple(sorted(every, key=lambda label: (-every[label], label)))
