"""Batches whose content and order are functions of (seed, epoch, position in the epoch) and of nothing else.

So a loader can begin at any step at once, with any number of workers, and gives what an uninterrupted run would have
been given; batches that workers prepared ahead and that were not used do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, default_collate

from resolute.errors import InvalidInput
from resolute.pytorch.rng import apart, mixed


class DataLoader:
    """How to make batches of a map-style dataset; the Trainer builds the real loader from it.

    `batch_size` is per slot. With `shuffle`, each epoch has an order of its own. Random augmentation in the dataset
    or in `collate_fn` may use Python's, NumPy's or torch's global generators: they are seeded for each batch.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | None = None,
        prefetch_factor: int | None = None,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise InvalidInput(
                f"the dataset {type(dataset).__name__} has no length and positions; exact resuming needs a dataset "
                "with __len__ and __getitem__"
            )
        if batch_size < 1:
            raise InvalidInput(f"batch_size is {batch_size}; it must be at least 1")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.num_workers = num_workers
        self._collate = collate_fn or default_collate
        self._options: dict[str, Any] = {
            "num_workers": num_workers,
            "pin_memory": pin_memory and torch.cuda.is_available(),
            "timeout": timeout,
            "worker_init_fn": worker_init_fn,
            "multiprocessing_context": multiprocessing_context if num_workers else None,
            "prefetch_factor": prefetch_factor if num_workers else None,
        }

    def __len__(self) -> int:
        """Number of batches of an epoch in one process."""
        return self.plan(seed=0, rank=0, size=1).batches_per_epoch

    def plan(self, *, seed: int, rank: int, size: int, ragged: bool = False) -> BatchPlan:
        """The order of batches for one rank. `ragged` keeps the last samples also where ranks get unequal shares."""
        length = len(cast(Sized, self.dataset))
        plan = BatchPlan(
            samples=length,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            keep_last=(size == 1 or ragged) and not self.drop_last,
            seed=seed,
            rank=rank,
            size=size,
        )
        if plan.batches_per_epoch < 1:
            raise InvalidInput(
                f"the dataset has {length} samples, fewer than one global batch of {plan.global_batch_size}; "
                "use a smaller batch size or fewer slots"
            )
        return plan

    def training_batches(self, plan: BatchPlan, start_step: int) -> Iterator[Any]:
        """Batches of step `start_step` (0 is the first) and all that follow, epoch after epoch, without end."""
        return iter(self._loader(plan, _EndlessSteps(plan, start_step)))

    def epoch_batches(self, plan: BatchPlan) -> Iterator[Any]:
        """The batches of one pass, of this rank's share; ranks with nothing in a ragged last batch skip it."""
        return iter(self._loader(plan, _OnePass(plan)))

    def _loader(self, plan: BatchPlan, steps: Any) -> TorchLoader[Any]:
        # The loader draws one number for its workers: from a generator of its own, never from the user's.
        generator = torch.Generator()
        generator.manual_seed(mixed(plan.seed, "workers"))
        return TorchLoader(
            _SeededBatches(self.dataset, self._collate),
            batch_size=None,
            sampler=steps,
            collate_fn=_as_it_is,
            generator=generator,
            **self._options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Which samples make up which batch. A global batch is split over ranks; the order does not depend on ranks."""

    samples: int
    batch_size: int
    shuffle: bool
    keep_last: bool
    seed: int
    rank: int
    size: int

    @property
    def global_batch_size(self) -> int:
        return self.batch_size * self.size

    @property
    def batches_per_epoch(self) -> int:
        full, rest = divmod(self.samples, self.global_batch_size)
        return full + (1 if rest and self.keep_last else 0)

    def order(self, epoch: int) -> list[int]:
        """All samples in the order of this epoch."""
        if not self.shuffle:
            return list(range(self.samples))
        generator = torch.Generator()
        generator.manual_seed(mixed(self.seed, "order", epoch))
        return torch.randperm(self.samples, generator=generator).tolist()

    def batch(self, order: list[int], epoch: int, index: int) -> BatchRef:
        """This rank's part of the index-th global batch of an epoch with that order."""
        begin = index * self.global_batch_size
        mine = order[begin : begin + self.global_batch_size][self.rank :: self.size]
        return BatchRef(indices=tuple(mine), seed=mixed(self.seed, "batch", epoch, index, self.rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRef:
    """What a worker needs to make one batch."""

    indices: tuple[int, ...]
    seed: int


class _EndlessSteps:
    def __init__(self, plan: BatchPlan, start_step: int) -> None:
        self._plan = plan
        self._start_step = start_step

    def __iter__(self) -> Iterator[BatchRef]:
        epoch, index = divmod(self._start_step, self._plan.batches_per_epoch)
        while True:
            order = self._plan.order(epoch)
            for position in range(index, self._plan.batches_per_epoch):
                yield self._plan.batch(order, epoch, position)
            epoch, index = epoch + 1, 0


class _OnePass:
    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan

    def __iter__(self) -> Iterator[BatchRef]:
        order = self._plan.order(0)
        for position in range(self._plan.batches_per_epoch):
            batch = self._plan.batch(order, 0, position)
            if batch.indices:
                yield batch


class _SeededBatches(Dataset[Any]):
    """A dataset of whole batches, each made under its own seed, so that it is independent of the worker and the time."""

    def __init__(self, dataset: Dataset[Any], collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._collate = collate

    def __getitem__(self, ref: BatchRef) -> Any:
        with apart(ref.seed):
            return self._collate([self._dataset[index] for index in ref.indices])


def _as_it_is(batch: Any) -> Any:
    return batch
