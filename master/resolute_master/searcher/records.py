"""The rows of a search's trials: the port, which the cluster's working copy implements, and an implementation in memory."""

from __future__ import annotations

from typing import Protocol

from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import Boards, ChangedBoards, Place, SearchTrial


class Records(Protocol):
    """The rows of one search. A written row is read back at once, and counts on the boards."""

    def get(self, request_id: str) -> SearchTrial | None: ...

    def put(self, trial: SearchTrial) -> None: ...

    def size(self, board: str) -> int:
        """Number of results on the board."""
        ...

    def below(self, board: str, place: Place) -> int:
        """Number of results before that place."""
        ...

    def at(self, board: str, index: int) -> SearchTrial:
        """The trial at a rank. Raises `IndexError` when there is none."""
        ...


class MemoryRecords:
    """Rows in a dict. `written` has every stored row, in order, until it is cleared."""

    def __init__(self, search: ExperimentId) -> None:
        self._search = search
        self.rows: dict[str, SearchTrial] = {}
        self.written: list[SearchTrial] = []
        self._boards = Boards()

    def get(self, request_id: str) -> SearchTrial | None:
        return self.rows.get(request_id)

    def put(self, trial: SearchTrial) -> None:
        self._boards.move(self.rows.get(trial.request_id), trial)
        self.rows[trial.request_id] = trial
        self.written.append(trial)

    def size(self, board: str) -> int:
        return len(self._boards.places((self._search, board)))

    def below(self, board: str, place: Place) -> int:
        return ChangedBoards(self._boards).below((self._search, board), place)

    def at(self, board: str, index: int) -> SearchTrial:
        if index < 0:
            raise IndexError(index)
        return self.rows[self._boards.places((self._search, board))[index][2]]
