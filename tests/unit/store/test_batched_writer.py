"""The batched writer: what it gathers, what it promises, and how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from resolute.errors import FailedPrecondition
from resolute_master.store import writers
from resolute_master.store.base import Unstorable
from resolute_master.store.writers import BatchedWriter


class Disk:
    """Writes batches when it is let to; answers each item with its upper case."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.started = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail_on: str | None = None

    async def write(self, items: Sequence[str]) -> list[str]:
        self.started += 1
        await self.gate.wait()
        if self.fail_on in items:
            raise OSError(f"no space for {self.fail_on}")
        self.batches.append(list(items))
        return [item.upper() for item in items]


async def settle() -> None:
    """Lets everything that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def busy_with(writer: BatchedWriter[str, str], items: list[str]) -> list[asyncio.Task[tuple[str, ...]]]:
    """The writer is writing these items; what comes now waits for the next batch."""
    call = asyncio.create_task(writer.append(items))
    await settle()
    return [call]


async def test_what_arrives_together_is_one_batch() -> None:
    disk = Disk()
    writer = BatchedWriter(disk.write)
    assert await asyncio.gather(*(writer.append([name]) for name in "abc")) == [("A",), ("B",), ("C",)]
    assert disk.batches == [["a", "b", "c"]]


async def test_a_lone_append_is_written_at_once_and_answered() -> None:
    disk = Disk()
    writer = BatchedWriter(disk.write)
    assert await writer.append(["a", "b"]) == ("A", "B")
    assert await writer.append(["c"]) == ("C",)
    assert await writer.append([]) == ()
    assert disk.batches == [["a", "b"], ["c"]]


async def test_nothing_is_acknowledged_before_it_is_written() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    call = asyncio.create_task(writer.append(["a"]))
    await settle()
    assert disk.started == 1 and not call.done()
    disk.gate.set()
    assert await call == ("A",)


async def test_what_waits_during_a_write_is_the_next_batch_in_order() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    calls = await busy_with(writer, ["a", "aa"])
    calls += [asyncio.create_task(writer.append([name, name * 2])) for name in "bcd"]
    await settle()
    assert disk.started == 1
    disk.gate.set()
    assert await asyncio.gather(*calls) == [("A", "AA"), ("B", "BB"), ("C", "CC"), ("D", "DD")]
    assert disk.batches == [["a", "aa"], ["b", "bb", "c", "cc", "d", "dd"]]


async def test_one_full_batch_is_given_to_the_store_while_another_is_written() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    calls = await busy_with(writer, ["first"])
    calls += await busy_with(writer, ["x"] * (writers.MAX_BATCH_ITEMS - 1))
    assert disk.started == 1, "what waits is not full yet"
    for number in range(3):
        calls += await busy_with(writer, [f"full {number}"] * writers.MAX_BATCH_ITEMS)
        assert disk.started == 2, "one is written and one made ready; all others wait"
    disk.gate.set()
    answers = await asyncio.gather(*calls)
    assert [answer[0] for answer in answers] == ["FIRST", "X", "FULL 0", "FULL 1", "FULL 2"]
    assert [batch[0] for batch in disk.batches] == ["first", "x", "full 0", "full 1", "full 2"]
    assert writer.unstored == 0


async def test_a_cancelled_writer_answers_nobody_of_the_two_batches_that_the_store_has() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    calls = await busy_with(writer, ["first"])
    calls += await busy_with(writer, ["x"] * writers.MAX_BATCH_ITEMS)
    calls += await busy_with(writer, ["last"])
    assert disk.started == 2 and writer._flushing is not None
    writer._flushing.cancel()
    await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls) and writer.unstored == 0
    disk.gate.set()
    assert await writer.append(["d"]) == ("D",)
    assert disk.batches == [["d"]]


async def test_a_batch_ends_at_the_limit_of_items_and_never_inside_a_call() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    calls = await busy_with(writer, ["x"])
    sizes = [300, 200, 1, writers.MAX_BATCH_ITEMS + 7, 2]
    calls += [asyncio.create_task(writer.append(["x"] * size)) for size in sizes]
    await settle()
    disk.gate.set()
    await asyncio.gather(*calls)
    assert [len(batch) for batch in disk.batches] == [1, 500, 1, 507, 2]


async def test_a_batch_ends_at_the_limit_of_bytes() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write, size_of=len)
    half = "x" * (writers.MAX_BATCH_BYTES // 2)
    calls = await busy_with(writer, ["first"])
    items = [half, half, "y", half * 3, "z"]
    calls += [asyncio.create_task(writer.append([item])) for item in items]
    await settle()
    disk.gate.set()
    await asyncio.gather(*calls)
    assert disk.batches == [["first"], [half, half], ["y"], [half * 3], ["z"]]


async def test_an_error_reaches_the_callers_of_its_batch_and_no_one_else() -> None:
    disk = Disk()
    disk.gate.clear()
    disk.fail_on = "bad"
    writer = BatchedWriter(disk.write)
    first = asyncio.create_task(writer.append(["first"]))
    await settle()
    failing = [asyncio.create_task(writer.append([name])) for name in ("good", "bad")]
    await settle()
    disk.gate.set()
    assert await first == ("FIRST",)
    outcomes = await asyncio.gather(*failing, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["no space for bad"] * 2
    assert await writer.append(["later"]) == ("LATER",)
    assert disk.batches == [["first"], ["later"]]


async def test_a_stream_without_outcomes() -> None:
    stored: list[str] = []

    async def write(items: Sequence[str]) -> None:
        stored.extend(items)

    writer: BatchedWriter[str, str] = BatchedWriter(write)
    assert await writer.append(["a"]) == ()
    assert stored == ["a"]


async def test_a_write_that_miscounts_is_an_error() -> None:
    async def write(items: Sequence[str]) -> list[str]:
        return []

    with pytest.raises(RuntimeError, match="1 items were written, but 0 outcomes"):
        await BatchedWriter(write).append(["a"])


async def test_a_full_writer_makes_its_callers_wait_in_order() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    full = asyncio.create_task(writer.append(["x"] * writers.MAX_UNSTORED_ITEMS))
    await settle()
    waiting = [asyncio.create_task(writer.append([name])) for name in "abc"]
    await settle()
    assert writer.unstored == writers.MAX_UNSTORED_ITEMS, "a call was taken in although there was no room"
    disk.gate.set()
    await asyncio.gather(full, *waiting)
    assert [item for batch in disk.batches[1:] for item in batch] == ["a", "b", "c"]


async def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    calls = [asyncio.create_task(writer.append([name])) for name in "abc"]
    await settle()
    calls[0].cancel()
    calls[1].cancel()
    await settle()
    disk.gate.set()
    assert await calls[2] == ("C",)
    assert calls[0].cancelled() and calls[1].cancelled()
    assert await writer.append(["d"]) == ("D",)


async def test_close_writes_all_that_was_taken_and_refuses_the_rest() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    taken = await busy_with(writer, ["a"])
    taken += [asyncio.create_task(writer.append(["b"]))]
    await settle()
    closing = asyncio.create_task(writer.close())
    await settle()
    assert not closing.done()
    with pytest.raises(FailedPrecondition, match="closed"):
        await writer.append(["late"])
    disk.gate.set()
    await closing
    assert await asyncio.gather(*taken) == [("A",), ("B",)]
    await writer.close()
    assert disk.batches == [["a"], ["b"]]


async def test_close_lets_go_of_callers_for_whom_there_was_no_room() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    full = asyncio.create_task(writer.append(["x"] * writers.MAX_UNSTORED_ITEMS))
    await settle()
    waiting = asyncio.create_task(writer.append(["a"]))
    await settle()
    closing = asyncio.create_task(writer.close())
    with pytest.raises(FailedPrecondition, match="closed"):
        await waiting
    disk.gate.set()
    await asyncio.gather(full, closing)
    assert len(disk.batches) == 1


async def test_a_cancelled_flush_leaves_no_caller_waiting() -> None:
    disk = Disk()
    disk.gate.clear()
    writer = BatchedWriter(disk.write)
    calls = [asyncio.create_task(writer.append([name])) for name in "abc"]
    await settle()
    assert writer._flushing is not None
    writer._flushing.cancel()
    await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)
    disk.gate.set()
    assert await writer.append(["d"]) == ("D",)


# ------------------------------------------------------------------------------------------------------------- shares


async def test_shares_are_written_in_turn_and_each_in_its_order() -> None:
    disk = Disk()
    writer = BatchedWriter(disk.write)
    disk.gate.clear()
    calls = await busy_with(writer, ["first"])
    large = [f"noisy {n}" for n in range(writers.MAX_BATCH_ITEMS)]
    for number in range(3):
        calls.append(asyncio.create_task(writer.append([*large, str(number)], share="noisy")))
    await settle()
    for number in range(2):
        calls.append(asyncio.create_task(writer.append([f"quiet {number}"], share="quiet")))
    await settle()
    disk.gate.set()
    await asyncio.gather(*calls)
    # The disk was given "0" before anybody else came, and then it was once more the turn of who was there first.
    assert [batch[-1] for batch in disk.batches] == ["first", "0", "1", "quiet 0", "2", "quiet 1"]


async def test_who_has_nothing_unstored_need_not_wait_for_those_who_have_much() -> None:
    disk = Disk()
    writer = BatchedWriter(disk.write)
    disk.gate.clear()
    full = ["x"] * writers.MAX_UNSTORED_ITEMS
    calls = [asyncio.create_task(writer.append(full, share="noisy")) for _ in range(4)]
    await settle()
    assert writer.unstored == len(full)
    calls.append(asyncio.create_task(writer.append(["quiet"], share="quiet")))
    await settle()
    assert writer.unstored == len(full) + 1
    calls.append(asyncio.create_task(writer.append(["more"], share="quiet")))
    await settle()
    assert writer.unstored == len(full) + 1  # it has something unstored now: it waits as everybody does
    disk.gate.set()
    await asyncio.gather(*calls)
    assert disk.batches[1] == ["quiet"] and writer.unstored == 0


async def test_the_reserve_for_newcomers_ends_too() -> None:
    disk = Disk()
    writer = BatchedWriter(disk.write)
    disk.gate.clear()
    full = ["x"] * writers.MAX_UNSTORED_ITEMS
    shares = writers.RESERVED_ITEMS // writers.MAX_UNSTORED_ITEMS + 3
    calls = [asyncio.create_task(writer.append(full, share=f"task {n}")) for n in range(shares)]
    await settle()
    assert writer.unstored == writers.RESERVED_ITEMS
    disk.gate.set()
    await asyncio.gather(*calls)
    assert len(disk.batches) == shares and writer.unstored == 0


class Rules:
    """Are told of each batch when they are let to be."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        self.gate = asyncio.Event()

    async def tell(self, items: Sequence[str], outcomes: Sequence[str] | None) -> None:
        await self.gate.wait()
        self.told.append(list(items))


async def test_what_comes_while_a_batch_is_made_known_shares_the_next() -> None:
    disk, rules = Disk(), Rules()
    writer = BatchedWriter(disk.write, publish=rules.tell)
    calls = await busy_with(writer, ["a"])
    for name in "bc":
        calls += await busy_with(writer, [name])
    assert disk.batches == [["a"]] and not any(call.done() for call in calls)
    rules.gate.set()
    assert await asyncio.gather(*calls) == [("A",), ("B",), ("C",)]
    assert disk.batches == rules.told == [["a"], ["b", "c"]]


async def test_a_large_batch_does_not_wait_for_the_last_to_be_known() -> None:
    disk, rules = Disk(), Rules()
    writer = BatchedWriter(disk.write, publish=rules.tell)
    calls = await busy_with(writer, ["a"])
    calls += await busy_with(writer, ["b"] * (writers.SMALL_BATCH_ITEMS - 1))
    assert len(disk.batches) == 1
    calls += await busy_with(writer, ["c"])
    assert [len(batch) for batch in disk.batches] == [1, writers.SMALL_BATCH_ITEMS]
    rules.gate.set()
    await asyncio.gather(*calls)
    assert [len(batch) for batch in rules.told] == [1, writers.SMALL_BATCH_ITEMS]


async def test_a_writer_that_closes_stores_what_waits_for_the_last_batch_to_be_known() -> None:
    disk, rules = Disk(), Rules()
    writer = BatchedWriter(disk.write, publish=rules.tell)
    calls = [*await busy_with(writer, ["a"]), *await busy_with(writer, ["b"])]
    closing = asyncio.create_task(writer.close())
    await settle()
    rules.gate.set()
    await closing
    assert [call.result() for call in calls] == [("A",), ("B",)]


def large(name: str) -> list[str]:
    return [name] * writers.SMALL_BATCH_ITEMS


async def busy_with_large(
    writer: BatchedWriter[str, str], disk: Disk, names: str
) -> list[asyncio.Task[tuple[str, ...]]]:
    """The first is being written, and the others wait, each to be a batch of its own."""
    disk.gate.clear()
    return [call for name in names for call in await busy_with(writer, large(name) * 5)]


async def test_small_batches_that_follow_each_other_are_made_known_by_two_and_one_alone_at_once() -> None:
    disk, rules = OneByOne(), Rules()
    rules.gate.set()
    writer = BatchedWriter(disk.write, publish=rules.tell, known_together=2)
    calls = await busy_with(writer, ["a"])
    for waiting in "bcd":
        calls += await busy_with(writer, [waiting])
        disk.turns.release()
        await settle()
    assert disk.batches == [["a"], ["b"], ["c"]] and rules.told == [["a", "b"]]
    assert [call.done() for call in calls] == [True, True, False, False]
    disk.turns.release()
    assert await asyncio.gather(*calls) == [("A",), ("B",), ("C",), ("D",)]
    assert rules.told == [["a", "b"], ["c", "d"]]
    disk.turns.release()
    assert await writer.append(["e"]) == ("E",)
    assert rules.told[-1] == ["e"]


async def test_large_batches_that_follow_each_other_are_made_known_together_and_the_last_at_once() -> None:
    disk, rules = Disk(), Rules()
    writer = BatchedWriter(disk.write, publish=rules.tell, known_together=2)
    calls = await busy_with_large(writer, disk, "abc")
    rules.gate.set()
    disk.gate.set()
    answers = await asyncio.gather(*calls)
    assert [batch[0] for batch in disk.batches] == ["a", "b", "c"]
    assert [(told[0], told[-1]) for told in rules.told] == [("a", "b"), ("c", "c")]
    assert [set(answer) for answer in answers] == [{"A"}, {"B"}, {"C"}]


async def test_a_stored_batch_is_made_known_although_the_next_one_fails() -> None:
    disk, rules = Disk(), Rules()
    writer = BatchedWriter(disk.write, publish=rules.tell, known_together=2)
    calls = await busy_with_large(writer, disk, "ab")
    disk.fail_on = "b"
    rules.gate.set()
    disk.gate.set()
    stored, refused = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(stored, tuple) and set(stored) == {"A"} and isinstance(refused, OSError)
    assert [set(told) for told in rules.told] == [{"a"}] and writer.unstored == 0


async def test_a_stored_batch_is_made_known_although_all_that_follow_fail() -> None:
    disk, rules = OneByOne(), Rules()
    rules.gate.set()
    writer = BatchedWriter(disk.write, publish=rules.tell, known_together=2)
    calls = await busy_with(writer, ["a"])
    disk.fail_on = "full"
    for _ in range(3):  # while one fails, another waits
        calls += await busy_with(writer, ["full"])
        disk.turns.release()
        await settle()
    assert disk.started >= 2 and rules.told == [["a"]] and calls[0].done()
    for _ in range(3):
        disk.turns.release()
    await asyncio.gather(*calls, return_exceptions=True)
    assert rules.told == [["a"]] and writer.unstored == 0


class OneByOne(Disk):
    """Takes one batch each time it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = asyncio.Semaphore(0)

    async def write(self, items: Sequence[str]) -> list[str]:
        await self.turns.acquire()
        return await super().write(items)


async def test_what_is_stored_and_not_known_is_answered_to_nobody_when_the_writer_is_cancelled() -> None:
    disk, rules = OneByOne(), Rules()
    writer = BatchedWriter(disk.write, publish=rules.tell, known_together=2)
    calls = [call for name in "ab" for call in await busy_with(writer, large(name) * 5)]
    disk.turns.release()
    await settle()
    assert [set(batch) for batch in disk.batches] == [{"a"}] and not writer._publishing
    assert writer._flushing is not None
    writer._flushing.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2 and writer.unstored == 0


# ---------------------------------------------------------------------------------------------- what cannot be stored


class PickyDisk(Disk):
    """Refuses a batch for what it holds."""

    async def write(self, items: Sequence[str]) -> list[str]:
        if any("bad" in item for item in items):
            raise Unstorable(f"a value cannot be stored: {items}")
        return await super().write(items)


async def test_a_call_that_cannot_be_stored_is_refused_alone() -> None:
    disk = PickyDisk()
    told: list[str] = []

    async def publish(items: Sequence[str], outcomes: Sequence[str] | None) -> None:
        assert outcomes is not None and len(outcomes) == len(items)
        told.extend(items)

    writer = BatchedWriter(disk.write, publish=publish)
    calls = [["a"], ["bad"], ["b", "c"], ["d", "also bad"], ["e"]]
    answers = await asyncio.gather(*map(writer.append, calls), return_exceptions=True)
    assert answers[0] == ("A",) and answers[2] == ("B", "C") and answers[4] == ("E",)
    assert isinstance(answers[1], Unstorable) and isinstance(answers[3], Unstorable)
    assert told == ["a", "b", "c", "e"] and disk.batches == [["a"], ["b", "c"], ["e"]]
    assert writer.unstored == 0
    assert await writer.append(["f"]) == ("F",)


async def test_a_batch_of_nothing_but_what_cannot_be_stored_blocks_nothing() -> None:
    writer = BatchedWriter(PickyDisk().write)
    answers = await asyncio.gather(*(writer.append([f"bad {n}"]) for n in range(3)), return_exceptions=True)
    assert all(isinstance(answer, Unstorable) for answer in answers) and writer.unstored == 0
    assert await writer.append(["a"]) == ("A",)


async def test_a_disk_that_fails_in_between_is_told_to_all_that_share_the_batch() -> None:
    disk = PickyDisk()
    disk.fail_on = "b"
    writer = BatchedWriter(disk.write)
    calls = [["a"], ["bad"], ["b"], ["c"]]
    answers = await asyncio.gather(*map(writer.append, calls), return_exceptions=True)
    assert [type(answer) for answer in answers] == [OSError, Unstorable, OSError, OSError] and writer.unstored == 0
