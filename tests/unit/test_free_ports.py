"""Ports for servers of tests are not given twice."""

from __future__ import annotations

import itertools
import socket

import pytest

from support import ports


def test_a_port_is_not_given_again_while_its_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "_places", itertools.count(first - ports.FIRST))  # as another process may begin
    second = ports.free_port()
    assert second != first
    assert all(ports.FIRST <= port < ports.FIRST + ports.COUNT for port in (first, second))
    with socket.create_server(("127.0.0.1", first)):
        pass  # the reservation leaves the port to the server


def test_a_port_that_is_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST", taken)
        monkeypatch.setattr(ports, "_places", itertools.count(0))
        assert ports.free_port() != taken
