"""The lengths to train, given by the search: one after the other, until it needs no more of the trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

from resolute.core.distributed import DistributedContext
from resolute.core.session import Session
from resolute.core.train import TrainContext
from resolute.core.values import encodable
from resolute.errors import FailedPrecondition, InvalidInput


class Unit(Enum):
    """The unit of a length."""

    BATCHES = "batches"
    RECORDS = "records"
    EPOCHS = "epochs"


class SearcherMode(Enum):
    """The ranks that request lengths: all in step, with the answer of the chief; or the chief alone."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"


def parse_length(value: Any, key: str) -> tuple[int, Unit | None]:
    """A length of the configuration: a whole number, or an object with exactly one unit."""
    if isinstance(value, bool) or not isinstance(value, (int, Mapping)):
        raise InvalidInput(f"{key} is {value!r}; it must be a whole number or an object such as {{batches: 100}}")
    if isinstance(value, int):
        return value, None
    if len(value) != 1:
        raise InvalidInput(f"{key} is {dict(value)!r}; it must have exactly one of batches, records, epochs")
    name, amount = next(iter(value.items()))
    try:
        unit = Unit(name)
    except ValueError:
        raise InvalidInput(f"{key} has the unknown unit {name!r}; use batches, records or epochs") from None
    if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
        raise InvalidInput(f"{key}.{name} is {amount!r}; it must be a whole number of at least 0")
    return amount, unit


class Operations(Protocol):
    """A source of the lengths of a trial. Lengths count from the beginning of the trial."""

    def current(self) -> int | None:
        """The length to train to; None if there is none at present."""
        ...

    def complete(self, length: int, metric: float) -> None:
        """Reports the metric of a completed length. Repeated calls are harmless."""
        ...

    def acknowledge(self) -> None:
        """Reports that this process ends because there is no length to train."""
        ...


class OneOperation:
    """The lengths off-cluster: the configured length, once."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._completed = False

    def current(self) -> int | None:
        return None if self._completed else self._length

    def complete(self, length: int, metric: float) -> None:
        self._completed = True

    def acknowledge(self) -> None:
        """Nothing to do: no search waits for it."""


class MasterOperations:
    """The lengths that the search of this trial's experiment assigns."""

    def __init__(self, session: Session, *, trial_id: int, allocation_id: str) -> None:
        self._session = session
        self._trial = f"/api/v1/trials/{trial_id}/searcher"
        self._acknowledgement = f"/api/v1/allocations/{allocation_id}/signals/ack_preemption"

    def current(self) -> int | None:
        answer = self._session.get(f"{self._trial}/operation")
        return None if answer["completed"] else int(answer["op"]["validateAfter"]["length"])

    def complete(self, length: int, metric: float) -> None:
        body = {"op": {"length": str(length)}, "searcherMetric": encodable(metric)}
        self._session.post(f"{self._trial}/completed_operation", body)

    def acknowledge(self) -> None:
        self._session.post(self._acknowledgement, {})


class SearcherOperation:
    """Train until `length` in all, then report the searcher's metric as completed."""

    def __init__(self, length: int, whole: int, train: TrainContext, operations: Operations, *, chief: bool) -> None:
        """`whole`: `searcher.max_length`, of which progress is a share."""
        self.length = length
        self._whole = whole
        self._train = train
        self._operations = operations
        self._chief = chief
        self._completed = False

    def report_progress(self, length: float) -> None:
        """Reports how much of the length is done, in its own unit. Chief only."""
        self._require_chief()
        self._train.report_progress(max(0.0, min(1.0, length / self._whole)) if self._whole else 1.0)

    def report_completed(self, searcher_metric: float) -> None:
        """Reports the metric by which the search ranks the trial. Chief only, once. Earlier reports are stored first."""
        self._require_chief()
        if self._completed:
            raise FailedPrecondition("this operation has already been reported as completed")
        self._train.flush()
        self._operations.complete(self.length, float(searcher_metric))
        self._completed = True

    @property
    def completed(self) -> bool:
        return self._completed

    def _require_chief(self) -> None:
        if not self._chief:
            raise FailedPrecondition("only the chief (rank 0) reports on a searcher operation")


class SearcherContext:
    """The lengths that the search assigns to this trial; without a master, the configured one."""

    def __init__(
        self,
        config: Mapping[str, Any],
        train: TrainContext,
        *,
        distributed: DistributedContext | None = None,
        operations: Operations | None = None,
        chief: bool = True,
    ) -> None:
        self._searcher: Mapping[str, Any] = config.get("searcher") or {}
        self._train = train
        self._distributed = distributed
        self._operations = operations
        self._chief = chief if distributed is None else distributed.rank == 0

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """The lengths, one after the other. At the end the trial has nothing to train at present, and should save and exit with
        0.

        It may be started again later: then it resumes from its checkpoint, with the open length. `auto_ack` reports this to the
        master at the end; without it `acknowledge_out_of_ops` must be called, or the trial counts as done. Raises
        `InvalidInput` when the configuration has no `searcher.max_length`.
        """
        if searcher_mode is SearcherMode.ChiefOnly and not self._chief:
            raise FailedPrecondition("with SearcherMode.ChiefOnly only the chief (rank 0) gets operations")
        whole, _ = self._max_length()
        if self._operations is None:
            self._operations = OneOperation(whole)
        alone = searcher_mode is SearcherMode.ChiefOnly or self._distributed is None
        while True:
            length = self._operations.current() if self._chief or alone else None
            if not alone and self._distributed is not None:
                length = self._distributed.broadcast(length)
            if length is None:
                break
            operation = SearcherOperation(length, whole, self._train, self._operations, chief=self._chief)
            yield operation
            if self._chief and not operation.completed:
                raise FailedPrecondition("the chief must call report_completed() before the next operation")
            if not self._chief and alone:
                return  # no other rank reports more to this one
        if auto_ack:
            self.acknowledge_out_of_ops()

    def get_configured_units(self) -> Unit | None:
        """The unit of the configured length; None when it is a bare number."""
        return self._max_length()[1]

    def acknowledge_out_of_ops(self) -> None:
        """Report to the master that this process will end because it has no operation."""
        if self._chief and self._operations is not None:
            self._operations.acknowledge()

    def _max_length(self) -> tuple[int, Unit | None]:
        value = self._searcher.get("max_length") or self._searcher.get("length_per_round")
        if value is None:
            raise InvalidInput("the configuration has no searcher.max_length; set it, or train to a length of your own")
        return parse_length(value, "searcher.max_length")
