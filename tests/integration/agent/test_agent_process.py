"""The agent as a process, against a master that speaks the link over a socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from resolute.wire.agent_link import ContainerOptions, Shutdown
from resolute.wire.states import ContainerState, FailureKind, NoticeKind
from resolute_agent import processes, supervisor
from resolute_agent.exit_codes import EXIT_MACHINE_ENDS
from support.agent_master import LinkMaster, a_spec
from support.agent_processes import AgentProcess, container_home, eventually, living_task, write_settings


@pytest.fixture
async def master() -> AsyncIterator[LinkMaster]:
    master = LinkMaster()
    await master.start()
    yield master
    await master.stop()


@pytest.fixture
def agent(master: LinkMaster, tmp_path: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(write_settings(tmp_path / "machine-1", master_url=master.url))
    yield agent
    agent.end_all()


def python(code: str) -> tuple[str, ...]:
    return ("python3", "-c", code)


async def test_a_task_runs_and_its_output_and_exit_code_arrive(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    code = "import sys; print('[rank=1] WARNING: to out'); print('to err', file=sys.stderr); sys.exit(3)"
    await master.run(a_spec(command=python(code), slots=(1,)))
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None
    assert (report.exit.code, report.exit.failure) == (3, FailureKind.CONTAINER_FAILED)
    # The end is reported after the output is stored: whoever sees the one has the other.
    line = master.lines[("c1", "stdout", 0)]
    assert (line.log, line.level, line.rank) == ("to out\n", "WARNING", 1)
    assert master.output("c1", "stderr") == ["to err"]
    states = [r.state for r in master.reports if r.container_id == "c1"]
    assert states == sorted(states, key=lambda state: state.order)
    await eventually(lambda: not container_home(agent.settings, "c1").exists())


async def test_a_killed_agent_is_followed_by_one_that_adopts(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=python("import time; print('begin'); time.sleep(4); print('end')")))
    await master.until_state("c1", ContainerState.RUNNING)
    await agent.kill_9()
    assert living_task(container_home(agent.settings, "c1"))
    agent.start()
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 0
    assert master.output("c1") == ["begin", "end"]
    first, second = master.hellos[0], master.hellos[-1]
    assert first.incarnation != second.incarnation
    assert [known.container_id for known in second.containers] == ["c1"]
    sequences = [r.sequence for r in master.reports]
    assert max(sequences) == sequences[-1], "sequences must not start again with a new agent"


async def test_an_exit_while_the_agent_was_away_is_credited(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=python("import time; time.sleep(1); print('done'); raise SystemExit(9)")))
    await master.until_state("c1", ContainerState.RUNNING)
    await agent.kill_9()
    home = container_home(agent.settings, "c1")
    await eventually((home / supervisor.EXIT).exists)
    agent.start()
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 9
    assert master.output("c1") == ["done"]


@pytest.mark.timeout(150)
async def test_master_and_agent_are_both_dead_for_thirty_seconds(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    code = """
import sys, time
for number in range(10_000):
    print(f"line {number}")
    if number % 1000 == 999:
        time.sleep(1)
sys.exit(7)
"""
    await master.run(a_spec(command=python(code)))
    await master.until(lambda: len(master.lines) > 1000)
    await master.stop()
    await agent.kill_9()
    assert len(master.lines) < 10_000
    await asyncio.sleep(30)
    assert (container_home(agent.settings, "c1") / supervisor.EXIT).exists(), "the task did not wait for anybody"
    await master.start()
    agent.start()
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None
    assert report.exit.code == 7
    assert master.output("c1") == [f"line {number}" for number in range(10_000)]
    written = [master.lines[key].at for key in sorted(master.lines)]
    assert written == sorted(written)
    assert (written[-1] - written[0]).total_seconds() < 20, "lines keep their time however late they are stored"


@pytest.mark.needs("namespaces")
async def test_two_tasks_side_by_side_have_their_own_run_directory(
    master: LinkMaster, agent: AgentProcess, tmp_path: Path
) -> None:
    agent.start()
    await master.until_connected()
    shared = tmp_path / "shared"
    code = """
import os, pathlib, time
me = os.environ["DET_CONTAINER_ID"]
assert os.environ["DET_PRIVATE_ROOT"] == "1" and os.environ["DET_RUN_DIR"] == "/run/determined"
assert os.getcwd() == "/run/determined/workdir", os.getcwd()
pathlib.Path("/run/determined/info/cluster.json").write_text(me)
pathlib.Path("/tmp/mine").write_text(me)
pathlib.Path("/determined_shared_fs", me).write_text(me)
time.sleep(1.5)
assert pathlib.Path("/run/determined/info/cluster.json").read_text() == me
assert pathlib.Path("/tmp/mine").read_text() == me
with open("/run/determined/train/logs/stdout.log", "w") as by_name:
    by_name.write("by name\\n")
import resolute
print(sorted(os.listdir("/determined_shared_fs")), os.environ["DET_SLOT_IDS"])
"""
    for slot, name in enumerate(("c1", "c2")):
        mounts = ((str(shared), "/determined_shared_fs"),)
        given = ContainerOptions(configured_paths=(str(shared),))
        await master.run(a_spec(name, command=python(code), slots=(slot,), shared_directories=mounts, options=given))
    for slot, name in enumerate(("c1", "c2")):
        report = await master.until_state(name, ContainerState.TERMINATED)
        assert report.exit is not None and report.exit.code == 0, master.output(name, "stderr")
        assert master.output(name) == ["by name", f"['c1', 'c2'] [{slot}]"]
    assert sorted(path.name for path in shared.iterdir()) == ["c1", "c2"]
    assert "mine" not in os.listdir("/tmp"), "a private folder is not the machine's"


async def test_a_task_finds_what_its_launcher_need_not_ask_for(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    show = python("print(open('/run/determined/handed.json').read())")
    for name, changes in (("alone", {"alone": True, "code": "Y29kZQ==", "slots": (0,)}), ("member", {})):
        await master.run(a_spec(name, command=show, **changes))
        report = await master.until_state(name, ContainerState.TERMINATED)
        assert report.exit is not None and report.exit.code == 0, master.output(name, "stderr")
        (line,) = master.output(name)
        handed = json.loads(line)
        if name == "member":
            assert handed == {"code": None, "container_addrs": [], "container_slot_counts": []}
        else:
            assert (handed["code"], handed["container_slot_counts"]) == ("Y29kZQ==", [1])
            assert handed["container_addrs"] == [report.address], "what the master would answer"


async def test_without_private_roots_the_run_directory_comes_from_the_environment(
    master: LinkMaster, tmp_path: Path
) -> None:
    agent = AgentProcess(write_settings(tmp_path / "plain", master_url=master.url, private_root=False))
    try:
        agent.start()
        await master.until_connected()
        code = (
            "import os; e = os.environ; here = os.path.realpath(e['DET_RUN_DIR'] + '/workdir') == os.getcwd();"
            "print(e['DET_PRIVATE_ROOT'], here)"
        )
        await master.run(a_spec(command=python(code)))
        report = await master.until_state("c1", ContainerState.TERMINATED)
        assert report.exit is not None and report.exit.code == 0
        assert master.output("c1") == ["0 True"]
        assert "no private /run/determined" in agent.log
    finally:
        agent.end_all()


async def test_a_task_ends_with_its_lease_when_no_master_answers(master: LinkMaster, agent: AgentProcess) -> None:
    master.lease_s = 3.0
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=python("import time; time.sleep(600)")))
    await master.until_state("c1", ContainerState.RUNNING)
    home = container_home(agent.settings, "c1")
    await asyncio.sleep(4)
    assert living_task(home), "answered heartbeats must prolong the lease"
    await master.stop()
    await agent.kill_9()
    await eventually((home / supervisor.EXIT).exists)
    assert json.loads((home / supervisor.EXIT).read_text())["reason"] == supervisor.LEASE_OVER
    await master.start()
    agent.start()
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.failure is FailureKind.AGENT_FAILED


async def test_a_notice_reaches_master_and_task_and_signals_who_registered(
    master: LinkMaster, agent: AgentProcess, tmp_path: Path
) -> None:
    agent.start()
    await master.until_connected()
    code = """
import json, os, pathlib, signal, sys, time
run = pathlib.Path(os.environ["DET_RUN_DIR"])
if os.environ["REGISTERS"] == "yes":
    signal.signal(signal.SIGTERM, lambda *_: print("signalled"))
    (run / "notice.pid").write_text(str(os.getpid()))
print("ready")
while not (run / "notice.json").exists():
    time.sleep(0.02)
time.sleep(0.5)
print(json.loads((run / "notice.json").read_text())["reason"])
"""
    for name, registers in (("c1", "yes"), ("c2", "no")):
        await master.run(a_spec(name, command=python(code), environment={"REGISTERS": registers}))
    await master.until(lambda: master.output("c1") == ["ready"] and master.output("c2") == ["ready"])
    notice = {"kind": "interruption", "deadline": "2031-01-01T00:00:00Z", "reason": "taken back"}
    partial = tmp_path / "partial.json"
    partial.write_text(json.dumps(notice))
    partial.rename(agent.settings.parent / "cloud-notice.json")
    for name in ("c1", "c2"):
        await master.until_state(name, ContainerState.TERMINATED)
    assert master.output("c1") == ["ready", "signalled", "taken back"]
    assert master.output("c2") == ["ready", "taken back"]
    told = master.notices[0]
    assert (told.kind, told.reason) == (NoticeKind.INTERRUPTION, "taken back")
    assert told.deadline is not None and told.deadline.year == 2031


async def test_a_kill_with_grace_lets_the_task_say_goodbye_and_takes_its_children(
    master: LinkMaster, agent: AgentProcess
) -> None:
    name = f"goodbye-{os.getpid()}"  # what is looked for on the whole machine
    agent.start()
    await master.until_connected()
    code = """
import signal, subprocess, sys, time
def goodbye(*_):
    print("goodbye")
    sys.exit(5)
signal.signal(signal.SIGTERM, goodbye)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("ready")
time.sleep(600)
"""
    await master.run(a_spec(name, command=python(code)))
    await master.until(lambda: len(master.output(name)) == 1)
    await master.kill(name, grace_s=20.0)
    report = await master.until_state(name, ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 5
    assert master.output(name)[-1] == "goodbye"
    left = processes.marked("DET_CONTAINER_ID", name)
    assert left == [], "a process that left the session must end with its task"


async def test_a_deaf_task_is_killed_after_the_grace(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=("sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 1; done")))
    await master.until(lambda: master.output("c1") == ["deaf"])
    await master.kill("c1", grace_s=0.5)
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 137


async def test_a_killed_supervisor_takes_its_task_along_and_is_told(master: LinkMaster, agent: AgentProcess) -> None:
    name = f"killed-{os.getpid()}"  # what is looked for on the whole machine
    agent.start()
    await master.until_connected()
    await master.run(a_spec(name, command=("sh", "-c", "sleep 600 & echo $!; sleep 600")))
    await master.until(lambda: len(master.output(name)) == 1)
    home = container_home(agent.settings, name)
    written = json.loads((home / supervisor.SUPERVISOR).read_text())
    os.kill(written["pid"], signal.SIGKILL)
    report = await master.until_state(name, ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.failure is FailureKind.TASK_ERROR
    assert processes.marked("DET_CONTAINER_ID", name) == []


async def test_what_cannot_be_started_is_answered(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec("missing", command=("no-such-command",)))
    report = await master.until_state("missing", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 127
    assert "no-such-command" in master.output("missing", "stderr")[0]
    await master.run(a_spec("nowhere", working_directory="/no/such/directory"))
    report = await master.until_state("nowhere", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.failure is FailureKind.LAUNCH_REFUSED
    assert "/no/such/directory" in report.exit.message
    await master.run(a_spec("slots", slots=(7,)))
    report = await master.until_state("slots", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.failure is FailureKind.AGENT_ERROR


async def test_containers_that_the_master_does_not_expect_are_ended(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=("sleep", "600")))
    await master.until_state("c1", ContainerState.RUNNING)
    home = container_home(agent.settings, "c1")
    await master.stop()
    master.expected.clear()
    await master.start()
    await eventually(lambda: not home.exists())


async def test_shutdown_ends_everything_with_a_code_of_its_own(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=("sleep", "600")))
    await master.until_state("c1", ContainerState.RUNNING)
    await master.send(Shutdown(reason="not needed any more"))
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 137
    assert await agent.ended() == EXIT_MACHINE_ENDS


async def test_a_stopped_agent_leaves_its_tasks_running(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=("sleep", "600")))
    await master.until_state("c1", ContainerState.RUNNING)
    agent.signal(signal.SIGTERM)
    assert await agent.ended() == 0
    assert living_task(container_home(agent.settings, "c1"))


async def test_a_machine_without_master_ends_itself(master: LinkMaster, tmp_path: Path) -> None:
    settings = write_settings(tmp_path / "elastic", master_url=master.url, master_timeout_s=2.0)
    agent = AgentProcess(settings)
    try:
        agent.start()
        await master.until_connected()
        await master.run(a_spec(command=("sleep", "600")))
        await master.until_state("c1", ContainerState.RUNNING)
        home = container_home(settings, "c1")
        await asyncio.sleep(3)
        assert living_task(home), "a master that answers keeps the machine"
        await master.stop()
        assert await agent.ended() == EXIT_MACHINE_ENDS
        assert not living_task(home)
    finally:
        agent.end_all()


async def test_two_agents_cannot_share_a_state_directory(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    second = AgentProcess(agent.settings)
    second.start()
    assert await second.ended() == 78
    assert "is in use by another agent" in agent.log


async def test_output_is_readable_while_the_task_runs(master: LinkMaster, agent: AgentProcess) -> None:
    agent.start()
    await master.until_connected()
    started = time.monotonic()
    await master.run(a_spec(command=(sys.executable, "-c", "import time; print('early'); time.sleep(600)")))
    await master.until(lambda: master.output("c1") == ["early"], limit_s=20)
    assert time.monotonic() - started < 20
    assert master.latest["c1"].state is ContainerState.RUNNING
