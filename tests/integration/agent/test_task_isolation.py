"""An agent that is root: whom its tasks run as, and what they see of the machine."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from resolute.host_paths import HostPathRules
from resolute.storage.directory import IN_USE, DirectoryStorage
from resolute.wire.agent_link import BindMount, ContainerOptions, Exit, NoticeFile, TaskUser
from resolute.wire.states import FailureKind, NoticeKind
from resolute_agent import kernel, processes, supervisor
from resolute_agent.reach import REMEDY, Reach
from resolute_agent.runtimes.base import LaunchRefused
from resolute_agent.runtimes.process import ProcessRuntime
from support.agent_master import TASK_USER
from support.agent_processes import eventually
from support.agent_scripts import a_container, a_context
from support.reachable import open_to_everybody

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.needs("root")]

OTHER = TaskUser(uid=2_100_000_008, gid=2_100_000_008, user="bob", group="bob", derived=True)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    state = tmp_path / "state"
    nested = {str(state): "the state of the machine", str(state / "containers"): "the state of the agent"}
    rules = HostPathRules(state=nested, remedy=REMEDY)
    runtime = await ProcessRuntime.open(tmp_path / "state" / "containers", reach=Reach(rules=rules))
    assert runtime.private_roots.mode == kernel.ISOLATED, runtime.private_roots.reason
    yield runtime
    for found in await runtime.adopt():
        await runtime.kill(found.container_id, 0.0)
        await runtime.wait(found.container_id)
    await runtime.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that every user of the machine may enter, below one that is hidden from nobody."""
    open_to_everybody(tmp_path)
    return tmp_path


async def told(runtime: ProcessRuntime, command: str, name: str = "c1", **changes: object) -> str:
    """What a shell command says, on both streams; it has to succeed."""
    await runtime.start(a_container("exit 0", name, command=("sh", "-c", command), **changes), a_context())
    async with asyncio.timeout(60):
        end = await runtime.wait(name)
    said = [runtime.read_output(name, stream, 0, 100_000).decode() for stream in ("stdout", "stderr")]
    assert end == Exit(code=0), said
    return "".join(said)


async def test_a_task_runs_as_its_user_without_capabilities(runtime: ProcessRuntime) -> None:
    status = await told(runtime, "cat /proc/self/status; id -un; whoami; echo $USER $LOGNAME; umask")
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(lines["Uid"].split()) == set(lines["Gid"].split()) == {str(TASK_USER.uid)}
    assert lines["Groups"].split() == [str(TASK_USER.gid)]
    assert {name: int(lines[name], 16) for name in lines if name.startswith("Cap")} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert lines["NoNewPrivs"] == "1"
    assert status.splitlines()[-4:] == ["ada", "ada", "ada ada", "0022"], "programs find a name for the number"


async def test_a_task_sees_no_process_but_its_own(runtime: ProcessRuntime) -> None:
    await runtime.start(a_container("run 60s", "beside"), a_context())
    code = "sleep 60 & ls -d /proc/[0-9]*; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -9 1 2>&1; kill -9 -1; true"
    shown = await told(runtime, f"trap '' TERM; {code}")
    numbers = {int(line.removeprefix("/proc/")) for line in shown.splitlines() if line.startswith("/proc/")}
    assert min(numbers) == 1 and len(numbers) <= 5, shown
    assert shown.count("sleep") >= 1 and "sleep 0.05" not in shown, "the task beside is not among them"
    assert not (await runtime.adopt())[0].exit, "and it lives"


async def test_a_kill_without_grace_ends_the_namespace_of_the_task(runtime: ProcessRuntime) -> None:
    for number in range(5):
        await runtime.start(a_container("run 600s", f"c{number}"), a_context())
        await runtime.kill(f"c{number}", 0.0)
        async with asyncio.timeout(60):
            end = await runtime.wait(f"c{number}")
        assert (end.code, end.message) == (137, "killed"), "no word of processes that do not end"


async def test_a_task_reads_no_file_of_agent_or_master_and_writes_none(runtime: ProcessRuntime, place: Path) -> None:
    state = place / "state"
    (state / "agent-state.json").write_text("secret")
    (state / "agent-state.json").chmod(0o644)
    state.chmod(0o755)  # hidden whatever its rights are
    (place / "agent.yaml").write_text("secret")
    (place / "agent.yaml").chmod(0o600)
    keep = Reach(rules=runtime._reach.rules, keep=(str(place),))
    lending = ProcessRuntime(state / "containers", runtime.private_roots, reach=keep)
    shown = await told(
        lending, f"ls {place}; ls -A {state}; cat {place}/agent.yaml 2>&1; touch /etc/x /usr/x {place}/x 2>&1; id -u"
    )
    assert shown.startswith("agent.yaml\nstate\n") and "secret" not in shown
    assert shown.count("Permission denied") == 4, shown
    await lending.close()


async def test_what_only_root_may_enter_is_empty_but_for_what_the_task_was_lent(runtime: ProcessRuntime) -> None:
    home = pwd.getpwuid(0).pw_dir
    code = f"import resolute, sys, os; print(resolute.__file__, sys.prefix, os.path.exists('{home}/.ssh'))"
    shown = await told(runtime, f'python3 -c "{code}"; touch {home}/x 2>&1; true')
    assert "resolute/__init__.py" in shown and "False" in shown
    assert "Permission denied" in shown or "Read-only" in shown, shown


PROBE = """
import asyncio, sys
from pathlib import Path
from resolute_agent.runtimes.process import ProcessRuntime
async def main():
    runtime = await ProcessRuntime.open(Path(sys.argv[1]))
    print(runtime.private_roots)
    await runtime.close()
asyncio.run(main())
"""


def test_tasks_are_isolated_where_the_agents_python_is_below_tmp_whatever_its_umask() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        Path(home).chmod(0o755)
        venv.create(home, symlinks=True)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [f"{home}/bin/python", "-c", PROBE, f"{home}/containers"]
        done = subprocess.run(
            command, env=environ, umask=0o077, capture_output=True, text=True, check=False, timeout=120
        )
        assert f"mode='{kernel.ISOLATED}'" in done.stdout, done.stdout + done.stderr


async def test_memory_and_temporary_files_are_the_tasks_own(runtime: ProcessRuntime) -> None:
    Path("/dev/shm/of-the-machine").write_text("x")  # noqa: ASYNC240
    try:
        shown = await told(runtime, "ls -A /dev/shm /tmp; touch /dev/shm/mine /tmp/mine; df --output=target /dev/shm")
    finally:
        Path("/dev/shm/of-the-machine").unlink()  # noqa: ASYNC240
    assert shown.startswith("/dev/shm:\n\n/tmp:\n") and shown.endswith("/dev/shm\n")
    assert not Path("/dev/shm/mine").exists() and not Path("/tmp/mine").exists()  # noqa: ASYNC240


async def test_streams_are_opened_by_name(runtime: ProcessRuntime) -> None:
    command = "echo one; echo two > /dev/stdout; echo three > $DET_RUN_DIR/train/logs/stdout.log; echo four >&2"
    assert await told(runtime, command) == "one\ntwo\nthree\nfour\n"


async def test_checkpoints_are_read_by_all_and_changed_by_their_owner_alone(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    storage = tmp_path / "checkpoints"  # neither made nor opened yet
    options = ContainerOptions(configured_paths=(str(storage),))
    shared = {"options": options, "shared_directories": ((str(storage), "/determined_shared_fs"),)}
    inside = "cd /determined_shared_fs;"
    await told(runtime, f"{inside} mkdir ck; echo weights > ck/w", "save", **shared)
    assert (storage.stat().st_mode & 0o7777, (storage / "ck").stat().st_uid) == (0o1777, TASK_USER.uid)
    await told(
        runtime,
        f"{inside} grep weights ck/w; echo more >> ck/w; mv ck ck.partial; mv ck.partial ck",
        "resume",
        **shared,
    )
    hostile = f"{inside} cat ck/w; echo bad >> ck/w; rm -rf ck; mv ck mine; touch ck/x; ln -s /etc ck/l; true"
    shown = await told(runtime, f"exec 2>&1; {hostile}", "other", **shared, run_as=OTHER)
    assert shown.startswith("weights\nmore\n"), "everybody may read"
    assert sorted(path.name for path in (storage / "ck").iterdir()) == ["w"]
    assert (storage / "ck" / "w").read_text() == "weights\nmore\n"
    DirectoryStorage(storage).delete("ck")
    assert [path.name for path in storage.iterdir()] == [IN_USE], "and root removes it"


async def test_a_storage_of_the_operator_is_opened_to_tasks_and_one_of_an_experiment_is_not(
    runtime: ProcessRuntime, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configured, named = place / "configured", place / "named"
    for each in (configured, named):
        each.mkdir(mode=0o755)
    options = ContainerOptions(configured_paths=(str(configured),))
    write = "touch /determined_shared_fs/x 2>&1; true"
    mounted = ((str(configured), "/determined_shared_fs"),)
    assert await told(runtime, write, "c1", options=options, shared_directories=mounted) == ""
    assert f"checkpoint storage {configured} had the mode 755" in caplog.text
    mounted = ((str(named), "/determined_shared_fs"),)
    assert "Permission denied" in await told(runtime, write, "c2", options=options, shared_directories=mounted)
    assert named.stat().st_mode & 0o7777 == 0o755


async def test_what_an_experiment_names_is_opened_with_the_rights_of_its_user(
    runtime: ProcessRuntime, place: Path
) -> None:
    """Else the agent would carry a task over a door that is closed to it, or make directories for it anywhere."""
    home = place / "home"
    (home / "data").mkdir(parents=True)
    (home / "data" / "file").write_text("x")
    home.chmod(0o700)
    asked: tuple[dict[str, Any], ...] = (
        {"options": ContainerOptions(mounts=(BindMount(host_path=str(home / "data"), container_path="/data"),))},
        {"shared_directories": ((str(home / "data"), "/determined_shared_fs"),)},
        {"shared_directories": ((str(place / "made"), "/determined_shared_fs"),)},
        {"shared_directories": (("/var/lib/made", "/determined_shared_fs"),)},
    )
    for mounts in asked:
        with pytest.raises(LaunchRefused, match="Permission denied"):
            await runtime.start(a_container("exit 0", **mounts), a_context())
    assert not (place / "made").exists() and not Path("/var/lib/made").exists()  # noqa: ASYNC240
    place.chmod(0o1777)  # noqa: ASYNC240
    mounted = ((str(place / "made"), "/determined_shared_fs"),)
    assert "/determined_shared_fs" in await told(
        runtime, "touch /determined_shared_fs/x; echo /determined_shared_fs/*", shared_directories=mounted
    )
    assert (place / "made").stat().st_uid == TASK_USER.uid


async def test_a_program_path_of_the_experiment_opens_nothing(runtime: ProcessRuntime, place: Path) -> None:
    hidden = place / "closed" / "env"
    (hidden / "bin").mkdir(parents=True)
    (place / "closed").chmod(0o700)
    shown = await told(runtime, f"ls -d {hidden} 2>&1; true", environment={"PATH": f"{hidden}/bin:/usr/bin:/bin"})
    assert "No such file" in shown or "Permission denied" in shown


async def test_no_directory_is_made_through_a_link_in_something_that_was_bound(
    runtime: ProcessRuntime, place: Path
) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "etc").symlink_to("/etc")
    mounts = (
        BindMount(host_path=str(place / "mine"), container_path="/tmp/a"),
        BindMount(host_path=str(place / "mine"), container_path="/tmp/a/etc/made-by-a-task"),
    )
    with pytest.raises(LaunchRefused, match="Permission denied"):
        await runtime.start(a_container("exit 0", options=ContainerOptions(mounts=mounts)), a_context())
    assert not os.path.lexists("/etc/made-by-a-task")  # noqa: ASYNC240


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (None, "the master named no user"),
        (TaskUser(uid=0, gid=5, user="root", group="g"), "never run as root"),
        (TaskUser(uid=5, gid=0, user="u", group="root"), "never run as root"),
        (
            TaskUser(uid=1, gid=2_100_000_001, user="ada", group="ada", derived=True),
            "belongs to 'daemon' of this machine",
        ),
        (TaskUser(uid=2_100_000_001, gid=1, user="ada", group="ada", derived=True), "security.task_users.first_uid"),
    ],
)
async def test_a_user_that_tasks_do_not_run_as_is_refused(
    runtime: ProcessRuntime, user: TaskUser | None, said: str
) -> None:
    with pytest.raises(LaunchRefused, match=said):
        await runtime.start(a_container("exit 0", run_as=user), a_context())
    assert await runtime.adopt() == ()


async def test_a_linked_account_is_the_machines_own(runtime: ProcessRuntime) -> None:
    daemon = pwd.getpwnam("daemon")
    linked = TaskUser(uid=daemon.pw_uid, gid=daemon.pw_gid, user="whatever", group="whatever")
    shown = await told(runtime, "id -un; id -gn; touch mine; stat -c %U mine; echo $USER", run_as=linked)
    assert shown == "daemon\ndaemon\ndaemon\ndaemon\n"


async def test_a_notice_reaches_the_process_that_asked_for_it(runtime: ProcessRuntime) -> None:
    act = 'trap "echo told; cat /run/determined/notice.json; exit 0" TERM; echo $$ > /run/determined/notice.pid; echo ready'
    command = f"sh -c '{act}; while true; do sleep 0.1; done'"
    await runtime.start(a_container("exit 0", command=("sh", "-c", f"{command}; true")), a_context())
    await eventually(lambda: b"ready" in runtime.read_output("c1", "stdout", 0, 100))
    runtime.notify("c1", NoticeFile(kind=NoticeKind.REBALANCE, deadline=None, reason="soon"))
    async with asyncio.timeout(30):
        assert (await runtime.wait("c1")).code == 0
    assert b"told" in runtime.read_output("c1", "stdout", 0, 1000)
    assert b"soon" in runtime.read_output("c1", "stdout", 0, 1000)


async def test_what_a_task_puts_in_the_place_of_a_notice_leads_nowhere(runtime: ProcessRuntime, place: Path) -> None:
    victim = place / "victim"
    victim.write_text("untouched")
    links = " ".join(f"ln -s {victim} notice.json{end};" for end in ("", ".partial", ".new"))
    await runtime.start(
        a_container(
            "exit 0", command=("sh", "-c", f"cd /run/determined; {links} mkfifo notice.pid; echo ready; sleep 60")
        ),
        a_context(),
    )
    await eventually(lambda: b"ready" in runtime.read_output("c1", "stdout", 0, 100))
    await asyncio.wait_for(
        asyncio.to_thread(runtime.notify, "c1", NoticeFile(kind=NoticeKind.REBALANCE, deadline=None, reason="soon")), 20
    )
    assert victim.read_text() == "untouched"
    assert json.loads((runtime._home("c1") / "run" / "notice.json").read_bytes())["reason"] == "soon"


async def test_nothing_of_a_task_outlives_its_supervisor(runtime: ProcessRuntime) -> None:
    name = f"isolated-{os.getpid()}"
    command = ("sh", "-c", "setsid sleep 600 & (sleep 600 &) ; echo ready; sleep 600")
    await runtime.start(replace(a_container("exit 0", name), command=command), a_context())
    await eventually(lambda: b"ready" in runtime.read_output(name, "stdout", 0, 100))
    written = json.loads((runtime._home(name) / supervisor.SUPERVISOR).read_text())
    every = supervisor.descendants(written["pid"])
    assert len(every) >= 5
    os.kill(written["pid"], signal.SIGKILL)
    async with asyncio.timeout(30):
        assert (await runtime.wait(name)).failure is FailureKind.TASK_ERROR
    await eventually(lambda: not any(supervisor.start_time(pid) for pid in every))
    assert processes.marked("DET_CONTAINER_ID", name) == []
