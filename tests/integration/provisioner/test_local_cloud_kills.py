"""The local cloud's promises when processes die: nothing is launched twice, nothing is leaked, nothing stays behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from resolute.clock import SystemClock
from resolute_provisioner.clouds.base import CloudInstance
from resolute_provisioner.clouds.local.files import MachineFiles, process_lives
from resolute_provisioner.clouds.records import read_json
from resolute_provisioner.model import Observed
from support.provisioner import a_request
from support.provisioner_worlds import STAND_IN_MACHINE, LocalWorld, processes_of, run_now, wait_until

TESTS = Path(__file__).resolve().parents[2]

LAUNCHER = f"""
import asyncio, os, signal, sys
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
from support.provisioner import a_request
from support.provisioner_worlds import LocalWorld

root, names, die_at = Path(sys.argv[1]), sys.argv[2].split(","), int(sys.argv[3])
cloud = LocalWorld(root).cloud
seen = 0
armed = False

def die(event, arguments):
    global seen
    if armed and (event == "subprocess.Popen" or any(str(root) in str(each) for each in arguments)):
        seen += 1
        if seen == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
print("ready", flush=True)
armed = True
for name in names:
    asyncio.run(cloud.launch(a_request(name)))
    print(name, flush=True)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path / "cloud", boot_delay_s=0.0)
    yield world
    world.close()
    no_process_is_left(world)


def launcher(root: Path, names: list[str], *, die_at: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(root), ",".join(names), str(die_at)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def launch(world: LocalWorld, name: str = "i-1") -> MachineFiles:
    run_now(world.cloud.launch(a_request(name)))
    files = MachineFiles(world.root / "instances" / name)
    wait_until(files.started.exists, what=f"{name} has started")
    return files


def listed(world: LocalWorld, name: str = "i-1") -> CloudInstance:
    return next(each for each in world.local.list_now("cluster-1") if each.instance_id == name)


def until_gone(world: LocalWorld, name: str = "i-1") -> CloudInstance:
    wait_until(lambda: listed(world, name).observed is Observed.GONE, what=f"{name} is gone")
    return listed(world, name)


def pid_in(path: Path) -> int:
    record = read_json(path)
    assert record is not None
    return int(record["pid"])


def one_machine_each(world: LocalWorld, names: list[str]) -> None:
    machines = world.local.list_now("cluster-1")
    assert Counter(each.token for each in machines) == Counter(f"token-{name}" for name in names)
    wait_until(
        lambda: all(each.observed is Observed.RUNNING for each in world.local.list_now("cluster-1")),
        what="all of them run",
    )
    # Of several hosts that were started for one machine all but one leave, after a look at its files.
    wait_until(lambda: len(_hosts_of(world)) == len(names), what="each machine has one host")


def _hosts_of(world: LocalWorld) -> list[int]:
    """A host's child shows the host's command line between fork and exec: it is not counted."""
    found = {
        process.pid: parent for process in psutil.process_iter() if (parent := _parent_of_host(process, world.root))
    }
    return [pid for pid, parent in found.items() if parent not in found]


def _parent_of_host(process: psutil.Process, root: Path) -> int | None:
    """The parent of a living host of a machine below `root`; None for any other process."""
    try:
        words, parent, status = process.cmdline(), process.ppid(), process.status()
    except psutil.NoSuchProcess:
        return None
    host = "resolute_provisioner.clouds.local.host" in words and words[-1].startswith(str(root))
    return parent if host and status != psutil.STATUS_ZOMBIE else None


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def no_process_is_left(world: LocalWorld) -> None:
    """A host writes down the end of its machine, and then ends itself."""
    wait_until(lambda: not processes_of(world.root), what="no process is left")


def test_a_launch_killed_at_each_of_its_steps_leaves_nothing_or_one_machine(tmp_path: Path) -> None:
    """Every touch of the cloud's folder is a place to die; the test ends when a launch gets through alive."""
    survived_at = None
    for die_at in range(1, 100):
        world = LocalWorld(tmp_path / f"cloud-{die_at}", boot_delay_s=0.0)
        try:
            child = launcher(world.root, ["i-1"], die_at=die_at)
            child.communicate(timeout=60)
            assert child.returncode in (0, -signal.SIGKILL)
            traces = world.local.list_now("cluster-1")
            assert [each.token for each in traces] in ([], ["token-i-1"])
            assert run_now(world.cloud.launch(a_request())).provider_id == "i-1"
            one_machine_each(world, ["i-1"])
        finally:
            world.close()
        if child.returncode == 0:
            survived_at = die_at
            break
    assert survived_at is not None and survived_at > 10, "the launch was never cut, or never completed"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_launch_loop_killed_at_random_launches_each_token_once(world: LocalWorld, seed: int) -> None:
    rng = random.Random(seed)
    names = [f"i-{number}" for number in range(6)]
    for _ in range(10):
        child = launcher(world.root, names)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.5))
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate(timeout=60)
    child = launcher(world.root, names)
    child.communicate(timeout=60)
    assert child.returncode == 0
    one_machine_each(world, names)


def test_a_machine_outlives_whoever_launched_it(world: LocalWorld) -> None:
    child = launcher(world.root, ["i-1"])
    child.communicate(timeout=60)
    wait_until(lambda: listed(world).observed is Observed.RUNNING, what="it runs")
    host = psutil.Process(pid_in(MachineFiles(world.root / "instances" / "i-1").host))
    assert os.getsid(host.pid) != os.getsid(0)
    assert host.ppid() != os.getpid()


def test_a_killed_machine_takes_everything_in_it_along(tmp_path: Path) -> None:
    # The machine's child leaves its session and its parent, as a supervisor does.
    command = ("/bin/sh", "-c", "(setsid sleep 1000 &) ; sleep 1000 & wait", "stand-in-machine")
    world = LocalWorld(tmp_path / "cloud", boot_delay_s=0.0, machine_command=command)
    try:
        files = launch(world)
        wait_until(lambda: len(processes_of(world.root)) >= 4, what="host, shell and both children are there")
        inside = [psutil.Process(pid) for pid in processes_of(world.root)]
        os.kill(pid_in(files.started), signal.SIGKILL)
        gone = until_gone(world)
        assert "SIGKILL" in gone.message and gone.paid_until is not None
        wait_until(lambda: not any(_lives(each) for each in inside), what="everything in it has ended")
    finally:
        world.close()


def test_a_machine_dies_with_its_host_and_its_end_is_still_written(world: LocalWorld) -> None:
    files = launch(world)
    machine = read_json(files.started)
    os.kill(pid_in(files.host), signal.SIGKILL)
    gone = until_gone(world)
    assert gone.paid_from is not None and gone.paid_until is not None and gone.paid_from <= gone.paid_until
    assert not process_lives(machine)
    assert until_gone(world).paid_until == gone.paid_until, "the end does not move"


def test_a_machine_that_does_not_listen_is_killed_after_its_grace(tmp_path: Path) -> None:
    command = ("/bin/sh", "-c", "trap '' TERM; touch \"$0/deaf\"; while :; do sleep 1; done")
    world = LocalWorld(tmp_path / "cloud", boot_delay_s=0.0, machine_command=command, stop_grace_s=0.3)
    try:
        files = launch(world)
        wait_until((files.directory / "deaf").exists, what="the shell has set its trap")
        run_now(world.cloud.terminate(["i-1"]))
        assert listed(world).observed in (Observed.STOPPING, Observed.GONE)
        until_gone(world)
        no_process_is_left(world)
    finally:
        world.close()


def test_a_notice_is_there_before_the_machine_is_killed(world: LocalWorld) -> None:
    files = launch(world)
    run_now(world.interrupt("i-1", 1.0))
    wait_until(files.notice.exists, what="the notice is there")
    notice = json.loads(files.notice.read_text())
    assert notice["kind"] == "interruption"
    noticed_at = datetime.fromtimestamp(files.notice.stat().st_mtime, UTC)
    gone = until_gone(world)
    assert gone.paid_until is not None and gone.paid_until.isoformat() >= notice["deadline"]
    assert noticed_at < gone.paid_until


def test_a_scripted_interruption_needs_nobody(tmp_path: Path) -> None:
    from support.provisioner_worlds import every

    root = tmp_path / "cloud"
    world = LocalWorld(root, boot_delay_s=0.0, interruptions=(every(0.3, instance=2, notice_s=0.2),))
    try:
        launch(world, "i-1")
        files = launch(world, "i-2")
        wait_until(files.gone.exists, what="the second machine is gone, though nobody lists")
        assert files.notice.exists() and "scripted" in until_gone(world, "i-2").message
        assert listed(world, "i-1").observed is Observed.RUNNING
    finally:
        world.close()


def test_secrets_and_environment_stay_where_they_belong(tmp_path: Path) -> None:
    from resolute_provisioner.clouds.local.cloud import machine_environment

    kept = machine_environment(
        {"PATH": "/bin", "PYTHONPATH": "/p", "DET_DB_PASSWORD": "s", "AWS_SECRET_ACCESS_KEY": "s"}
    )
    assert kept == {"PATH": "/bin", "PYTHONPATH": "/p"}
    world = LocalWorld(tmp_path / "cloud")
    try:
        run_now(world.cloud.launch(a_request()))
        files = MachineFiles(world.root / "instances" / "i-1")
        assert files.agent.stat().st_mode & 0o077 == 0
        told = json.loads(files.agent.read_text())
        assert told["join_token"] == "secret" and told["notice_file"] == str(files.notice)
        assert "secret" not in files.instance.read_text()
    finally:
        world.close()


def test_the_command_line_lists_interrupts_and_stops(world: LocalWorld) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "resolute_provisioner.clouds.local", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    for name in ("i-1", "i-2"):
        launch(world, name)
    assert [line.split("\t")[::2][:2] for line in call("list", str(world.root)).stdout.splitlines()] == [
        ["i-1", "running"],
        ["i-2", "running"],
    ]
    assert call("interrupt", str(world.root), "i-1", "--notice", "0.2", "--reason", "rehearsal").returncode == 0
    assert "rehearsal" in until_gone(world, "i-1").message
    again = call("interrupt", str(world.root), "i-1")
    assert again.returncode == 1 and "'i-1' not found" in again.stderr
    assert call("stop-all", str(world.root)).returncode == 0
    assert listed(world, "i-2").observed is Observed.GONE
    no_process_is_left(world)
    assert STAND_IN_MACHINE[0] not in call("list", str(world.root)).stderr


def test_a_machine_long_gone_is_forgotten(tmp_path: Path) -> None:
    from resolute.clock import FixedClock
    from resolute_provisioner.clouds.local.cloud import LocalCloud, LocalCloudSettings

    world = LocalWorld(tmp_path / "cloud")
    run_now(world.cloud.launch(a_request()))
    world.close()
    later = FixedClock(SystemClock().now() + timedelta(hours=23))
    cloud = LocalCloud(LocalCloudSettings(root=world.root, environment={}), clock=later)
    assert len(cloud.list_now(None)) == 1
    later.advance(2 * 3600.0)
    assert cloud.list_now(None) == ()
    assert not (world.root / "instances" / "i-1").exists()


def test_a_folder_that_cannot_be_used_is_a_transient_error(tmp_path: Path) -> None:
    from resolute_provisioner.clouds.base import Transient

    (tmp_path / "cloud").write_text("a file, no folder")
    with pytest.raises(Transient, match="folder could not be used"):
        run_now(LocalWorld(tmp_path / "cloud").cloud.launch(a_request()))


def test_a_script_that_cannot_be_meant_is_refused() -> None:
    from resolute.errors import InvalidInput
    from resolute_provisioner.clouds.local.cloud import ScriptedInterruption, ScriptedRefusal

    with pytest.raises(InvalidInput, match="counted from 1"):
        ScriptedRefusal(launch=0)
    with pytest.raises(InvalidInput, match="exactly one of after"):
        ScriptedInterruption(instance=1)
    with pytest.raises(InvalidInput, match="exactly one of after"):
        ScriptedInterruption(instance=1, after_s=1.0, after_steps=5)
    with pytest.raises(InvalidInput, match="notice is -1"):
        ScriptedInterruption(instance=1, after_s=1.0, notice_s=-1.0)
