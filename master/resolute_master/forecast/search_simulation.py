"""A search on one pool under virtual time: its method decides which trials continue, the production rules where they run.

Each trial reports when it reaches a length at which the search may decide about it. The driver provides the results (`Results`):
those of a planned search are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from resolute.wire.states import TaskType
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, ExperimentId, TaskId, allocation_id
from resolute_master.domain.job import Job
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.worth import ORDINARY
from resolute_master.forecast.pool_simulation import PoolSimulation
from resolute_master.forecast.work import Work
from resolute_master.searcher import method as search_method
from resolute_master.searcher.events import (
    Create,
    OperationCompleted,
    PointsProposed,
    SearchAction,
    SearchEvent,
    Stop,
    TrialExited,
    ValidationCompleted,
)
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import sample
from resolute_master.searcher.records import MemoryRecords

Results = Callable[[Mapping[str, Any], int, int], float]
"""The metric of a trial after a number of units, by its hyperparameters and its number."""

SEARCH = ExperimentId(1)


@dataclass(slots=True)
class _Trial:
    """A trial of the search, with its progress."""

    row: str
    number: int
    hparams: Mapping[str, Any]
    units: int = 0
    """Reported units."""
    target: int = 0
    """Units that it trains for."""
    episode: int = 0
    """Number of times that it began to train, or resumed after a wait."""
    work: Work | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResult:
    """One result of a trial."""

    at_s: float
    trial: int
    units: int
    metric: float
    cost: float
    """Cost of the pool until then."""


@dataclass(slots=True, kw_only=True)
class SearchSimulation(PoolSimulation):
    """Begin with `begin`, then `run`; `results` are the reports of trials, in order."""

    method: search_method.SearchMethod
    job: Job
    template: Allocation
    """The request of each trial."""
    unit_s: float
    """Seconds of a trial per unit."""
    metric: Results
    ranked: bool = True
    """Whether scheduler and planner use the worth of trials."""
    results: list[SimulatedResult] = field(default_factory=list)
    trials: int = 0
    """Number of trials that have begun."""
    _search: Search | None = None
    _records: MemoryRecords = field(default_factory=lambda: MemoryRecords(SEARCH))
    _trials: dict[str, _Trial] = field(default_factory=dict)
    _of_task: dict[TaskId, _Trial] = field(default_factory=dict)
    _lengths: tuple[int, ...] = ()
    _points: Generator | None = None

    def begin(self, seed: int) -> None:
        """Requests slots for the first trials."""
        self._lengths = tuple(sorted({each.units for each in self.method.plan() if each.units is not None}))
        self._points = Generator(seed + 1)
        self._search, actions = search_method.start(self.method, SEARCH, seed, self._records)
        self._act(actions)

    def cost(self) -> float:
        """Cost of all machines until now."""
        for id_, bill in self.bills.items():
            if id_ in self.pool.machines:
                self.cost_until(bill, self.now_s)
        return sum(bill.cost for bill in self.bills.values())

    @property
    def over(self) -> bool:
        """Whether the search has ended, and none of its trials trains."""
        return self._search is not None and self._search.over and not self.works and not self._unsubmitted

    # -- what trials do ----------------------------------------------------------------------------------------

    def _ended(self, id_: AllocationId) -> bool:
        work = self.works.get(id_)
        if work is None or work.started_s is None or self.pool.snapshot.allocations[id_].leaving:
            return False
        trial = self._of_task[work.first.task_id]
        before = trial.target
        if self._report(trial):
            # It keeps its slots.
            work.length_s += self.unit_s * (trial.target - before)
            self._expect_end(id_, work)
        else:
            trial.work = None
            self._finish(id_, work)
            self._leave_search(trial)
        return True

    def _conclude(self, work: Work) -> None:
        """The job continues. The others have reported while they held slots; one that was preempted at that moment reports now."""
        trial = self._of_task[work.first.task_id]
        if trial.work is not work:
            return
        goes_on = self._report(trial)
        trial.work = None
        if goes_on:
            self._submit(trial)
        else:
            self._leave_search(trial)

    def _report(self, trial: _Trial) -> bool:
        """Reports the result of a trial; returns whether it continues at once."""
        trial.units = trial.target
        row = self._row(trial)
        value = self.metric(trial.hparams, trial.number, trial.units)
        told = SimulatedResult(at_s=self.now_s, trial=trial.number, units=trial.units, metric=value, cost=self.cost())
        self.results.append(told)
        if row.length == trial.units:
            self._tell(OperationCompleted(request_id=trial.row, length=trial.units, metric=value))
        else:
            self._tell(
                ValidationCompleted(
                    request_id=trial.row, metric=value, steps_completed=trial.units, time=float(trial.units)
                )
            )
        return self._aim(trial)

    def _aim(self, trial: _Trial) -> bool:
        """Sets the next length of a trial; returns whether it has one."""
        row = self._row(trial)
        if row.stopped or row.idle:
            return False
        ahead = [length for length in self._lengths if length > trial.units]
        if row.length is not None:
            trial.target = row.length
        elif ahead:
            trial.target = ahead[0]
        return trial.target > trial.units

    def _leave_search(self, trial: _Trial) -> None:
        row = self._row(trial)
        if row.open and not row.idle:
            self._tell(TrialExited(request_id=trial.row, reason=None))

    def _submit(self, trial: _Trial) -> None:
        trial.episode += 1
        task = TaskId(f"{trial.number}.{trial.episode}")
        first = replace(
            self.template,
            id=allocation_id(task, 1),
            task_id=task,
            task_type=TaskType.TRIAL,
            job_id=self.job.id,
            requested_at=self.time(self.now_s),
            worth=self._row(trial).worth if self.ranked else ORDINARY,
        )
        trial.work = Work(
            job=self.job,
            first=first,
            submit_s=self.now_s,
            length_s=self.unit_s * (trial.target - trial.units),
            slots=first.slots_needed,
            # What resumes from a checkpoint restores it.
            runs=1 if trial.units else 0,
        )
        self._of_task[task] = trial
        self.submit([trial.work])

    # -- what the search does ------------------------------------------------------------------------------------

    def _row(self, trial: _Trial) -> SearchTrial:
        row = self._records.get(trial.row)
        assert row is not None, "trials are never forgotten"
        return row

    def _tell(self, event: SearchEvent) -> None:
        assert self._search is not None, "it has begun"
        self._records.written.clear()
        self._search, actions = search_method.tell(self.method, self._search, self._records, event)
        if self.ranked:
            self._rank()
        self._act(actions)
        self._propose()

    def _rank(self) -> None:
        """Updates the worth of trials in the pool."""
        for row in {row.request_id: row for row in self._records.written}.values():
            trial = self._trials.get(row.request_id)
            work = None if trial is None else trial.work
            if work is None or work.first.worth == row.worth:
                continue
            work.first = replace(work.first, worth=row.worth)
            present = next((id_ for id_, each in self.works.items() if each is work), None)
            if present is not None:
                self.pool.ranked(present, row.worth)

    def _propose(self) -> None:
        """Points for a method that waits for some: random ones, since its sampler's are unknown."""
        assert self._search is not None and self._points is not None, "it has begun"
        point_request = self.method.point_request(self._search)
        if point_request is not None:
            points = tuple(sample(point_request.space, self._points) for _ in range(point_request.points))
            self._search, actions = search_method.tell(
                self.method, self._search, self._records, PointsProposed(points=points)
            )
            self._act(actions)

    def _act(self, actions: tuple[SearchAction, ...]) -> None:
        for action in actions:
            match action:
                case Create(request_id=request_id, hparams=hparams):
                    trial = _Trial(request_id, self.trials, hparams)
                    self.trials += 1
                    self._trials[request_id] = trial
                    if self._aim(trial):
                        self._submit(trial)
                case Stop(request_id=request_id):
                    waiting = self._trials[request_id]
                    if waiting.work is None and waiting.units:
                        self._tell(TrialExited(request_id=request_id, reason=None))
                case _:
                    self._go_on(action)

    def _go_on(self, action: SearchAction) -> None:
        """Requests slots for a promoted trial that has waited."""
        request_id = getattr(action, "request_id", None)
        trial = None if request_id is None else self._trials[request_id]
        if trial is not None and trial.work is None and self._aim(trial):
            self._submit(trial)
