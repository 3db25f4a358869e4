"""The boot script, run as a machine would run it, where things go wrong: in namespaces, against a master of scripted answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from resolute_master.agents.wheel import Wheel, agent_wheel
from resolute_provisioner.bootstrap import HostSetup, MachineBoot, render_boot_script
from resolute_provisioner.clouds.aws.boot import METADATA
from support.booted_machines import BootedMachine, Network
from support.live import until

pytestmark = pytest.mark.needs("machines")

INSTANCE_ID = "/latest/meta-data/instance-id"


@dataclass
class ScriptedMaster:
    """Serves a wheel, takes reports, and is no master to any agent."""

    wheel: Wheel
    port: int = 0
    reports: list[tuple[str, str, str]] = field(default_factory=list)
    """(path and query, token, text)."""


@contextmanager
def a_master(network: Network) -> Iterator[ScriptedMaster]:
    master = ScriptedMaster(agent_wheel("1.0"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == f"/agents/wheels/{master.wheel.name}"
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(master.wheel.data) if found else 0))
            self.end_headers()
            if found:
                self.wfile.write(master.wheel.data)

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            master.reports.append((self.path, self.headers["X-Resolute-Join-Token"], text))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer((network.host, 0), Handler)
    server.daemon_threads = True
    master.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield master
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network().up() as up:
        yield up


def a_boot(network: Network, port: int) -> MachineBoot:
    return MachineBoot(
        master_url=f"http://{network.host}:{port}",
        agent_id="m-1",
        resource_pool="default",
        instance_id="m-1",
        join_token="a-secret-token",
        slot_type="cpu",
    )


@contextmanager
def booted(directory: Path, network: Network, boot: MachineBoot, host: HostSetup) -> Iterator[BootedMachine]:
    script = render_boot_script(boot, host).encode()
    machine = BootedMachine(directory, network, script, {INSTANCE_ID: "i-0123"}, "support.imds_main")
    try:
        yield machine
        assert "a-secret-token" not in machine.log()
    finally:
        machine.remove()


def test_a_startup_script_that_fails_is_reported_and_ends_the_machine(tmp_path: Path, network: Network) -> None:
    with a_master(network) as master:
        host = HostSetup(
            metadata=METADATA,
            wheel=master.wheel.reference,
            startup_script="#!/bin/sh\necho the disk is missing\nexit 3\n",
        )
        with booted(tmp_path / "m", network, a_boot(network, master.port), host) as machine:
            until("it is off", lambda: machine.powered_itself_off)
        ((path, token, text),) = master.reports
    assert path == "/agents/boot/m-1?stage=startup_script" and token == "a-secret-token"
    assert text.startswith("machine i-0123\n") and "the disk is missing" in text


def test_a_wheel_that_is_not_the_masters_is_not_run(tmp_path: Path, network: Network) -> None:
    with a_master(network) as master:
        host = HostSetup(metadata=METADATA, wheel=replace(master.wheel.reference, sha256="0" * 64))
        with booted(tmp_path / "m", network, a_boot(network, master.port), host) as machine:
            until("it is off", lambda: machine.powered_itself_off)
            assert not (machine.directory / "lib" / "resolute" / "package").exists()
        ((path, _, text),) = master.reports
    assert path.endswith("stage=wheel") and "is not what the master has" in text


def test_an_agent_that_cannot_run_is_reported(tmp_path: Path, network: Network) -> None:
    with a_master(network) as master:
        told = {"container_runtime": "process", "slot_tipe": "cpu"}
        host = HostSetup(metadata=METADATA, wheel=master.wheel.reference, agent_config=told)
        with booted(tmp_path / "m", network, a_boot(network, master.port), host) as machine:
            until("it is off", lambda: machine.powered_itself_off)
        ((path, _, text),) = master.reports
    assert path.endswith("stage=agent") and "slot_tipe" in text


@pytest.mark.parametrize("serves", [True, False])
def test_a_machine_without_its_master_ends_itself(tmp_path: Path, network: Network, serves: bool) -> None:
    """The agent runs and finds no master, or was never even fetched: the watchdog needs neither."""
    with a_master(network) as master:
        host = HostSetup(
            metadata=METADATA,
            wheel=master.wheel.reference,
            agent_config={"container_runtime": "process"},
            boot_timeout_s=15.0 if serves else 2.0,
        )
        boot = a_boot(network, master.port if serves else 9)
        with booted(tmp_path / "m", network, boot, host) as machine:
            until("it is off", lambda: machine.powered_itself_off)
            assert "no word from the master" in machine.log()
            assert (machine.directory / "lib" / "resolute" / "agent.log").exists() is serves
        assert master.reports == []
