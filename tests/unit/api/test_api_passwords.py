"""Passwords at rest."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from resolute.ids import SeededIds
from resolute_master.api.auth.authenticate import CONCURRENT_HASHES, Cost, Passwords

FAST = Cost(log2_n=4)


async def test_a_password_matches_its_hash_and_nothing_else() -> None:
    passwords = Passwords(SeededIds(1), FAST)
    stored = await passwords.hash("a" * 128)
    assert await passwords.matches("a" * 128, stored)
    # All of the 128 characters count, not only the first 72.
    assert not await passwords.matches("a" * 127 + "b", stored)
    assert not await passwords.matches("", stored)


async def test_equal_passwords_have_different_hashes() -> None:
    passwords = Passwords(SeededIds(1), FAST)
    assert await passwords.hash("x") != await passwords.hash("x")


async def test_parameters_travel_with_the_hash() -> None:
    stored = await Passwords(SeededIds(1), Cost(log2_n=5, r=4)).hash("x")
    assert stored.startswith("scrypt$5$4$1$")
    assert await Passwords(SeededIds(2), FAST).matches("x", stored)


def test_the_default_cost_is_that_of_a_password() -> None:
    assert Cost().log2_n >= 15 and Cost().r >= 8


@pytest.mark.parametrize("stored", ["", "x", "scrypt$x$8$1$a$b", "bcrypt$4$8$1$AAAA$AAAA", "scrypt$4$8$1$*$*"])
async def test_a_broken_hash_matches_nothing(stored: str) -> None:
    assert not await Passwords(SeededIds(1), FAST).matches("", stored)


async def test_nobody_is_checked_like_somebody() -> None:
    assert not await Passwords(SeededIds(1), FAST).matches("", None)


async def test_so_many_are_hashed_at_once_and_the_others_wait_in_line() -> None:
    crowd, inside, most = 2 * CONCURRENT_HASHES, 0, 0
    counting, go_on = threading.Lock(), threading.Event()

    class Held(Cost):
        def derive(self, password: str, salt: bytes) -> bytes:
            nonlocal inside, most
            with counting:
                inside += 1
                most = max(most, inside)
            assert go_on.wait(60)
            with counting:
                inside -= 1
            return super().derive(password, salt)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(crowd + 1))
    passwords = Passwords(SeededIds(1), Held(log2_n=4))
    hashing = [asyncio.create_task(passwords.hash("x")) for _ in range(crowd)]
    async with asyncio.timeout(60):
        while inside < CONCURRENT_HASHES:
            await asyncio.to_thread(time.sleep, 0.01)  # behind whoever else was given to a thread
    go_on.set()
    assert len(set(await asyncio.gather(*hashing))) == crowd
    assert most == CONCURRENT_HASHES
