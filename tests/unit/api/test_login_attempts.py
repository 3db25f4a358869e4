"""The pauses after failed logins: their growth, their end, and whom they do not concern."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from resolute.clock import FixedClock
from resolute.errors import LimitExceeded
from resolute_master.api.auth.fair_turns import FairTurns
from resolute_master.api.auth.login_attempts import LoginAttempts
from resolute_master.api.http import limits
from resolute_master.api.http.addresses import Addresses, counted


class Guesser:
    """Tries passwords under a clock that stands still."""

    def __init__(self) -> None:
        self.clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.logins = LoginAttempts()

    async def attempt(self, name: str, address: str, *, right: bool = False) -> None:
        attempt = await self.logins.begin(name, address, self.clock)
        attempt.end(right=right, now=self.clock.monotonic())

    async def pause(self, name: str, address: str) -> float:
        """What is said to one more; 0 when it is let in (and ended as if nothing had been seen)."""
        try:
            attempt = await self.logins.begin(name, address, self.clock)
        except LimitExceeded as error:
            assert error.retry_after_s is not None
            return error.retry_after_s
        attempt.end(right=None, now=self.clock.monotonic())
        return 0.0


async def test_the_pause_doubles_up_to_a_minute_and_is_forgotten() -> None:
    guesser = Guesser()
    for _ in range(limits.FAILED_LOGINS):
        assert await guesser.pause("ada", "a") == 0
        await guesser.attempt("ada", "a")
    expected = limits.FIRST_LOGIN_PAUSE_S
    for _ in range(10):
        assert await guesser.pause("ada", "a") == expected
        guesser.clock.advance(expected)
        await guesser.attempt("ada", "a")
        expected = min(limits.LONGEST_LOGIN_PAUSE_S, expected * 2)
    assert await guesser.pause("ada", "a") == limits.LONGEST_LOGIN_PAUSE_S
    assert await guesser.pause("ada", "b") == await guesser.pause("bob", "a") == 0
    guesser.clock.advance(limits.FORGET_FAILURES_S + 1)
    await guesser.attempt("ada", "a")
    assert await guesser.pause("ada", "a") == 0


async def test_an_address_that_tries_many_names_waits_but_for_those_who_have_been_in() -> None:
    guesser = Guesser()
    await guesser.attempt("ada", "a", right=True)
    for number in range(limits.FAILED_LOGINS_OF_ADDRESS):
        await guesser.attempt(f"user-{number}", "a")
    assert await guesser.pause("bob", "a") == limits.FIRST_LOGIN_PAUSE_S
    assert await guesser.pause("ada", "a") == 0
    assert await guesser.pause("bob", "b") == 0


async def test_a_user_who_is_attacked_from_everywhere_still_gets_in_from_a_clean_address() -> None:
    guesser = Guesser()
    for number in range(limits.FAILED_LOGINS_OF_USER):
        await guesser.attempt("ada", f"address-{number}")
    await guesser.attempt("ada", "clean", right=True)
    for _ in range(limits.FAILED_LOGINS_ATTACKED):
        await guesser.attempt("ada", "other")
    assert await guesser.pause("ada", "other") > 0
    assert await guesser.pause("bob", "other") == 0


async def test_what_is_remembered_has_an_end() -> None:
    guesser = Guesser()
    for number in range(limits.REMEMBERED_LOGINS + 10):
        await guesser.attempt(f"user-{number}", f"address-{number}", right=number % 2 == 0)
    assert guesser.logins.remembered == limits.REMEMBERED_LOGINS


async def test_the_queue_of_one_address_does_not_hold_up_another() -> None:
    turns, order = FairTurns(1), list[str]()

    async def work(key: str, name: str) -> None:
        async with turns.turn(key):
            order.append(name)
            await asyncio.sleep(0)

    crowd = [asyncio.create_task(work("crowd", f"crowd {number}")) for number in range(20)]
    await asyncio.sleep(0)
    await asyncio.create_task(work("clean", "clean"))
    assert order.index("clean") < 5
    crowd[-1].cancel()  # who leaves the queue takes no turn along
    await asyncio.gather(*crowd, return_exceptions=True)
    await work("clean", "again")
    assert order[-1] == "again" and "crowd 19" not in order


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_addresses_of_one_network_count_as_one(address: str, same: str) -> None:
    assert counted(address) == counted(same)
    assert counted("2001:db8:0:1::1") != counted("2001:db8:0:2::1")


def test_a_proxy_is_one_of_those_that_are_named() -> None:
    addresses = Addresses(["10.0.0.0/8", "fd00::1"])
    assert addresses.is_proxy("10.1.2.3") and addresses.is_proxy("fd00::1")
    assert not addresses.is_proxy("11.0.0.1") and not Addresses().is_proxy("10.0.0.1")
