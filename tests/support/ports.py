"""Ports for servers of tests.

A server of a test gets its port before it starts, and keeps it while it is killed and started again. A port that the kernel chose
(`bind` to 0) does not fit: between two starts the kernel gives the same port to a connection or server of another test.
"""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import suppress

FIRST, COUNT = 20_000, 9_000
"""Below the ports that the kernel chooses from (32768 and up), and below those that the master gives to tasks (29400 and up)."""

_places = itertools.count(os.getpid() * 97)


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port without a listener. No other call returns it while this process runs, in this process or another one.

    A UDP socket on the same number is the reservation: it ends with the process, and leaves the TCP port free.
    """
    for place in itertools.islice(_places, COUNT):
        port = FIRST + place % COUNT
        reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError), socket.socket() as probe:
            reservation.bind((address, port))
            probe.bind((address, port))
            reservation.detach()  # open until this process ends
            return port
        reservation.close()
    raise AssertionError(f"no free port of {address} from {FIRST} to {FIRST + COUNT - 1}")
