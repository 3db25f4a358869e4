"""The stored state of a search: one row of its own, and one row per trial. An event writes only the rows that it changes.

`Boards` holds results in order, so that a method can ask for the place of one among ten thousand. It is derived from the rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from resolute_master.domain.ids import ExperimentId, TaskId
from resolute_master.domain.worth import ORDINARY, Worth

WHOLE = 1_000_000
"""Units of progress: millionths, so that a sum over trials is exact whatever the order of its changes."""


class Standing(Struct, frozen=True, kw_only=True, gc=False):
    """A result on a board of the search; the smallest score is the first place."""

    board: str
    score: float
    """Never NaN."""
    order: int
    """Among equal scores the smaller one is placed first."""


class SearchTrial(Struct, frozen=True, kw_only=True, gc=False):
    """One trial as its search sees it.

    A trial of a search that hands out lengths trains until `length`, reports it as completed, and then gets another length, or is
    stopped, or waits without slots until it gets one or the other.
    """

    id: TaskId
    search: ExperimentId
    request_id: str
    number: int
    """Trials are counted from 0 in the order in which they were requested."""
    progress: int = 0
    """Its own progress, in millionths."""
    open: bool = True
    """Whether it has not ended."""
    stopped: bool = False
    """Whether the search needs no more of it."""
    length: int | None = None
    """Length to train to, in the unit of `searcher.max_length`; None where its own code decides."""
    completed: bool = False
    """Whether it has reported that length as completed."""
    completed_metric: float | None = None
    """The metric that it reported with its last completed length."""
    completed_length: int | None = None
    standings: tuple[Standing, ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    """Data of the search method about the trial: JSON of a bounded size."""
    worth: Worth = ORDINARY
    """Its worth to the search, by the results so far."""
    reason: str = ""
    """Why it was stopped, continues or waits, in words."""

    @property
    def idle(self) -> bool:
        """Whether it waits for the search to decide about it, and needs no slots meanwhile."""
        return self.length is not None and self.completed and not self.stopped


class Search(Struct, frozen=True, kw_only=True, gc=False):
    """One search, of the experiment with the same number; its size does not grow with its trials."""

    id: ExperimentId
    generator: tuple[int, ...]
    """Seed, and random words drawn so far."""
    requested: int = 0
    open: int = 0
    failed: int = 0
    canceled: int = 0
    invalid: int = 0
    progress: int = 0
    """Sum of the progress of the open trials, in millionths of a trial."""
    results: int = 0
    """Number of results so far, which orders them."""
    over: bool = False
    own: Mapping[str, Any] = field(default_factory=dict)
    """Further data of the search method: JSON of a bounded size."""

    @property
    def valid(self) -> int:
        """Number of requested trials whose hyperparameters were not rejected as invalid."""
        return self.requested - self.invalid

    def key(self, request_id: str) -> TaskId:
        """The key of the row of one of its trials."""
        return TaskId(f"{self.id}.{request_id}")


Board = tuple[ExperimentId, str]
"""A search, and a board of it."""

Place = tuple[float, int, str]
"""Score, order, request id: what boards are sorted by."""

_NOTHING: list[Place] = []


def places_of(trial: SearchTrial) -> list[tuple[Board, Place]]:
    """The places of the trial on boards."""
    return [((trial.search, s.board), (s.score, s.order, trial.request_id)) for s in trial.standings]


class Boards:
    """Places by board, in order."""

    def __init__(self) -> None:
        self._places: dict[Board, list[Place]] = {}

    def move(self, before: SearchTrial | None, after: SearchTrial | None) -> None:
        """A row was changed, added or removed."""
        old = [] if before is None else places_of(before)
        new = [] if after is None else places_of(after)
        if old == new:
            return
        for board, place in old:
            if (board, place) not in new:
                self._remove(board, place)
        for board, place in new:
            if (board, place) not in old:
                insort(self._places.setdefault(board, []), place)

    def _remove(self, board: Board, place: Place) -> None:
        places = self._places[board]
        del places[bisect_left(places, place)]
        if not places:
            del self._places[board]

    def places(self, board: Board) -> Sequence[Place]:
        """The places on a board, live; not to be changed."""
        return self._places.get(board, _NOTHING)


class ChangedBoards:
    """Boards with uncommitted changes: those of one cycle, which are few."""

    def __init__(self, boards: Boards) -> None:
        self._boards = boards
        self._gone: dict[Board, list[Place]] = {}
        """Removed places of the underlying boards."""
        self._come: dict[Board, list[Place]] = {}
        """Added places."""

    def move(self, before: SearchTrial | None, after: SearchTrial | None) -> None:
        """A row was changed, added or removed."""
        old = [] if before is None else places_of(before)
        new = [] if after is None else places_of(after)
        if old == new:
            return
        for slot in old:
            if slot not in new:
                self._exchange(self._come, self._gone, *slot)
        for slot in new:
            if slot not in old:
                self._exchange(self._gone, self._come, *slot)

    @staticmethod
    def _exchange(one: dict[Board, list[Place]], other: dict[Board, list[Place]], board: Board, place: Place) -> None:
        """Remove the place from `one`; if it is not there, add it to `other`."""
        places = one.get(board, _NOTHING)
        at = bisect_left(places, place)
        if at < len(places) and places[at] == place:
            del places[at]
        else:
            insort(other.setdefault(board, []), place)

    def size(self, board: Board) -> int:
        return (
            len(self._boards.places(board))
            - len(self._gone.get(board, _NOTHING))
            + len(self._come.get(board, _NOTHING))
        )

    def below(self, board: Board, place: Place) -> int:
        """Number of places before it."""
        return (
            bisect_left(self._boards.places(board), place)
            - bisect_left(self._gone.get(board, _NOTHING), place)
            + bisect_left(self._come.get(board, _NOTHING), place)
        )

    def at(self, board: Board, index: int) -> Place:
        """The place at a rank. Raises `IndexError` when there is none."""
        for place in self._come.get(board, _NOTHING):
            if self.below(board, place) == index:
                return place
        places = self._boards.places(board)
        # Of equal counts the last place is the one that is still taken.
        found = bisect_left(range(len(places)), index + 1, key=lambda at: self.below(board, places[at])) - 1
        if found < 0 or self.below(board, places[found]) != index or index >= self.size(board):
            raise IndexError(index)
        return places[found]


def boards_of(trials: Iterable[SearchTrial]) -> Boards:
    boards = Boards()
    for trial in trials:
        boards.move(None, trial)
    return boards
