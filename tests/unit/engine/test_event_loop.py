"""When everybody speaks at once, each is heard in order, and others have their turn between."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from resolute_master.event_loop import SOCKETS_A_TURN, BatchSelector, loop_idle, new_event_loop, yielding

MANY = 3 * SOCKETS_A_TURN + 5


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(MANY)]
        for pair in made:
            for one in pair:
                one.setblocking(False)
                stack.enter_context(one)
        yield made


def all_speak(selector: BatchSelector, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """Each pair is read from under its number, and has something to read."""
    for number, (ours, theirs) in enumerate(pairs):
        selector.register(ours, selectors.EVENT_READ, number)
        theirs.send(b"x")


def numbers(found: list[tuple[selectors.SelectorKey, int]]) -> list[int]:
    return [key.data for key, _ in found]


def test_all_that_are_ready_are_told_a_few_at_a_time(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    with BatchSelector() as selector:
        all_speak(selector, pairs)
        told: list[int] = []
        while len(told) < MANY:
            few = numbers(selector.select(0))
            assert 0 < len(few) <= SOCKETS_A_TURN
            for number in few:
                pairs[number][0].recv(1)
            told += few
        assert sorted(told) == list(range(MANY)), "each once"
        assert selector.select(0) == []


def test_who_speaks_again_waits_for_those_who_have_not_been_heard(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    with BatchSelector() as selector:
        all_speak(selector, pairs)
        told: list[int] = []
        while len(told) < MANY:  # nobody is read: all stay ready
            told += numbers(selector.select(0))
        assert sorted(told) == list(range(MANY))


def test_who_left_or_asked_for_something_else_is_not_told_of_before(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    with BatchSelector() as selector:
        all_speak(selector, pairs)
        first = numbers(selector.select(0))
        gone, changed = [number for number in range(MANY) if number not in first][:2]
        selector.unregister(pairs[gone][0])
        selector.modify(pairs[changed][0], selectors.EVENT_WRITE, changed)
        found: list[tuple[selectors.SelectorKey, int]] = []
        for _ in range(2 * MANY // SOCKETS_A_TURN):
            found += selector.select(0)
        assert gone not in numbers(found)
        assert {events for key, events in found if key.data == changed} == {selectors.EVENT_WRITE}


def test_a_loop_gives_others_a_turn_between_the_few(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    heard: list[int] = []
    most = 0

    def hear(number: int) -> None:
        pairs[number][0].recv(1)
        heard.append(number)

    async def run() -> None:
        nonlocal most
        loop = asyncio.get_running_loop()
        for number, (ours, theirs) in enumerate(pairs):
            loop.add_reader(ours, hear, number)
            theirs.send(b"x")
        seen = 0
        while len(heard) < MANY:
            await asyncio.sleep(0)
            most, seen = max(most, len(heard) - seen), len(heard)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 30))
    assert sorted(heard) == list(range(MANY))
    assert most <= SOCKETS_A_TURN


class Rest(threading.Event):
    """Counts how often it was waited for."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "a loop that never rests must not hold a list up for ever"
        self.waits += 1
        return super().wait(0.0)


def test_a_thread_gives_way_while_the_loop_computes() -> None:
    rest = Rest()
    assert list(yielding(range(10), idle=rest, piece_s=0.0)) == list(range(10))
    assert rest.waits == 10, "after each piece"


def test_a_thread_goes_on_while_the_loop_waits_for_events() -> None:
    rest = Rest()
    rest.set()
    assert list(yielding(range(10), idle=rest, piece_s=0.0)) == list(range(10))
    assert rest.waits == 0


def test_a_short_piece_is_done_at_one_go() -> None:
    rest = Rest()
    assert list(yielding(range(10), idle=rest, piece_s=1e9)) == list(range(10))
    assert rest.waits == 0


def test_a_loop_says_when_it_rests() -> None:
    async def run() -> None:
        assert not loop_idle.is_set(), "this is a turn"
        assert await asyncio.to_thread(loop_idle.wait, 20), "while nothing is ready"
        assert not loop_idle.is_set()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())
    assert loop_idle.is_set(), "there is no loop any more"
