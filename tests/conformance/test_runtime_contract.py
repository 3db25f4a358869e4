"""The contract of the runtime port, over every implementation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from resolute.errors import FailedPrecondition
from resolute.wire.agent_link import Exit, NoticeFile
from resolute.wire.states import FailureKind, NoticeKind
from resolute_agent import processes
from resolute_agent.reach import Reach
from resolute_agent.runtimes.base import STREAMS, LaunchFailed, LaunchRefused, Runtime
from resolute_agent.runtimes.process import PrivateRoots, ProcessRuntime
from resolute_agent.runtimes.scripted import ScriptedRuntime
from support.agent_scripts import a_container, a_context
from support.docker_agents import agents_of

Reopen = Callable[[], Awaitable[Runtime]]
"""The runtime as the next agent process on the same machine gets it."""

RUNTIMES = [
    "scripted",
    "process, plain",
    pytest.param("process, private", marks=pytest.mark.needs("namespaces")),
    pytest.param("process, private, as an ordinary user", marks=pytest.mark.needs("namespaces")),
    pytest.param("docker", marks=pytest.mark.needs("docker")),
]


@pytest.fixture(params=RUNTIMES)
async def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Reopen]:
    if request.param == "scripted":
        machine = ScriptedRuntime()

        async def same() -> Runtime:
            return machine

        yield same
        await machine.power_off()
        return
    if request.param == "docker":
        async with agents_of(request.getfixturevalue("docker"), tmp_path / "agent") as agents:
            yield agents.next
        return
    opened: list[Runtime] = []

    async def anew() -> Runtime:
        private = "private" in request.param
        runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=private)
        assert (runtime.private_roots.mode != "none") is private, runtime.private_roots.reason
        if "user" in request.param:
            runtime = ProcessRuntime(tmp_path / "containers", PrivateRoots(mode="user"))
        opened.append(runtime)
        return runtime

    yield anew
    for found in await (await anew()).adopt():
        await opened[-1].kill(found.container_id, 0.0)
        await opened[-1].wait(found.container_id)


@pytest.fixture
async def runtime(reopen: Reopen) -> Runtime:
    return await reopen()


async def end_of(runtime: Runtime, container_id: str = "c1") -> Exit:
    async with asyncio.timeout(30):
        return await runtime.wait(container_id)


async def test_an_end_is_told_as_often_as_it_is_asked(runtime: Runtime) -> None:
    await runtime.start(a_container("exit 0"), a_context())
    assert await end_of(runtime) == Exit(code=0)
    assert await end_of(runtime) == Exit(code=0)


async def test_an_exit_code_is_a_failure_with_that_code(runtime: Runtime) -> None:
    await runtime.start(a_container("run 0.1s; exit 42"), a_context())
    end = await end_of(runtime)
    assert (end.code, end.failure) == (42, FailureKind.CONTAINER_FAILED)
    assert end.message == "", "the code speaks for itself"


async def test_an_id_is_used_once(runtime: Runtime) -> None:
    await runtime.start(a_container("exit 0"), a_context())
    with pytest.raises(LaunchFailed, match="exists already"):
        await runtime.start(a_container("exit 0"), a_context())


async def test_a_kill_without_grace_ends_at_once_and_is_repeatable(runtime: Runtime) -> None:
    await runtime.start(a_container("run 600s"), a_context())
    await runtime.kill("c1", 0.0)
    await runtime.kill("c1", 0.0)
    end = await end_of(runtime)
    assert (end.code, end.failure) == (137, FailureKind.CONTAINER_FAILED)
    await runtime.kill("c1", 0.0)


async def test_who_does_not_obey_is_ended_after_the_grace(runtime: Runtime) -> None:
    await runtime.start(a_container("ignore kill; say deaf; run 600s"), a_context())
    await output_of(runtime, 5)
    await runtime.kill("c1", 600.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await runtime.wait("c1")
    await runtime.kill("c1", 0.2)  # a shorter grace wins
    await runtime.kill("c1", 600.0)
    assert (await end_of(runtime)).code == 137


async def test_killing_what_is_not_there_is_success(runtime: Runtime) -> None:
    await runtime.kill("nobody", 0.0)


async def test_a_lease_ends_what_nobody_renews(runtime: Runtime) -> None:
    # Long enough that a busy machine has started the container before it is over.
    await runtime.start(a_container("run 600s"), a_context(lease_s=6.0))
    assert (await end_of(runtime)).failure is FailureKind.AGENT_FAILED


async def test_a_renewed_lease_goes_on_and_is_never_shortened(runtime: Runtime) -> None:
    await runtime.start(a_container("run 11s; exit 6"), a_context(lease_s=10.0))
    runtime.renew("c1", 600.0)
    runtime.renew("c1", 0.1)
    assert (await end_of(runtime)).code == 6


async def test_what_runs_is_adopted_and_so_is_what_has_ended(runtime: Runtime, reopen: Reopen) -> None:
    await runtime.start(a_container("run 600s", "living", slots=(1, 0)), a_context())
    await runtime.start(a_container("exit 3", "ended"), a_context())
    await end_of(runtime, "ended")
    successor = await reopen()
    ended, living = await successor.adopt()
    assert (living.container_id, living.slots, living.exit) == ("living", (0, 1), None)
    assert (living.allocation_id, living.task_id) == ("1.living.1", "1.living")
    assert ended.container_id == "ended"
    assert ended.exit is not None and ended.exit.code == 3
    await successor.kill("living", 0.0)
    assert (await end_of(successor, "living")).code == 137


async def test_a_forgotten_container_is_not_adopted_and_its_id_is_free(runtime: Runtime, reopen: Reopen) -> None:
    await runtime.start(a_container("exit 0"), a_context())
    await end_of(runtime)
    await runtime.forget("c1")
    await runtime.forget("c1")
    successor = await reopen()
    assert await successor.adopt() == ()
    await successor.start(a_container("exit 2"), a_context())
    assert (await end_of(successor)).code == 2


async def test_a_living_container_is_not_forgotten(runtime: Runtime) -> None:
    await runtime.start(a_container("run 600s"), a_context())
    with pytest.raises(FailedPrecondition, match="still runs"):
        await runtime.forget("c1")


async def output_of(runtime: Runtime, length: int, container_id: str = "c1") -> bytes:
    """Output from its beginning until there is so much of it."""
    data = b""
    async with asyncio.timeout(30):
        while len(data) < length:
            await runtime.output_grown(container_id, {"stdout": len(data)})
            data += runtime.read_output(container_id, "stdout", len(data), 1000)
    return data


async def test_output_is_read_while_it_grows_and_ends_with_the_container(runtime: Runtime) -> None:
    await runtime.start(a_container("say first; run 8s; log 3 lines"), a_context())
    assert await output_of(runtime, 6) == b"first\n"
    assert not runtime.output_ended("c1")
    await end_of(runtime)
    assert runtime.output_ended("c1")
    await runtime.output_grown("c1", {"stdout": 10**6, "stderr": 10**6})  # an ended container keeps nobody waiting
    assert runtime.read_output("c1", "stdout", 6, 1000) == b"line 0\nline 1\nline 2\n"
    assert runtime.read_output("c1", "stdout", 6, 4) == b"line"
    assert runtime.read_output("c1", "stdout", 10**6, 4) == b""


async def test_offsets_begin_at_nothing_and_survive_the_agent(runtime: Runtime, reopen: Reopen) -> None:
    await runtime.start(a_container("exit 0"), a_context())
    assert all(runtime.offsets("c1").get(stream, 0) == 0 for stream in STREAMS)
    runtime.save_offsets("c1", {"stdout": 12, "stderr": 3})
    assert dict((await reopen()).offsets("c1")) == {"stdout": 12, "stderr": 3}


async def test_a_container_that_nobody_knows_has_no_output_and_a_restore_error(runtime: Runtime) -> None:
    assert runtime.read_output("nobody", "stdout", 0, 10) == b""
    assert runtime.output_ended("nobody")
    assert (await end_of(runtime, "nobody")).failure is FailureKind.RESTORE_ERROR
    runtime.renew("nobody", 10.0)
    runtime.save_offsets("nobody", {"stdout": 1, "stderr": 1})
    runtime.notify("nobody", NoticeFile(kind=NoticeKind.REBALANCE, deadline=None, reason="x"))


async def test_a_start_cut_off_before_its_supervisor_is_undone(tmp_path: Path) -> None:
    """What a process runtime finds of an agent that died while it prepared a start."""
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    half = tmp_path / "containers" / "half"
    (half / "run").mkdir(parents=True)
    assert await runtime.adopt() == ()
    assert not half.exists()


async def test_names_that_are_no_directories_are_refused(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    for name in ("../c1", ".hidden", "a/b", ""):
        with pytest.raises(LaunchRefused, match="cannot be the name"):
            await runtime.start(a_container("exit 0", name), a_context())


async def test_no_process_is_left_when_the_end_is_told(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    mark = f"nothing-left-{os.getpid()}"
    command = ("sh", "-c", "setsid sleep 600 & (sleep 600 &) ; exit 4")
    await runtime.start(replace(a_container("exit 0", mark), command=command), a_context())
    assert (await end_of(runtime, mark)).code == 4
    assert processes.marked("DET_CONTAINER_ID", mark) == []


async def output_after(runtime: Runtime, command: str, **changes: object) -> tuple[Exit, str, str]:
    """Run a shell command to its end: how it ended, what it wrote."""
    await runtime.start(a_container("exit 0", "c9", command=("sh", "-c", command), **changes), a_context())
    end = await end_of(runtime, "c9")
    told = [runtime.read_output("c9", stream, 0, 10_000).decode() for stream in STREAMS]
    return end, told[0], told[1]


@pytest.mark.needs("namespaces")
async def test_a_private_root_keeps_what_lies_under_tmp_and_hides_the_rest(tmp_path: Path) -> None:
    software = tmp_path / "software"
    software.mkdir()
    (software / "tool").write_text("here")
    (tmp_path / "other").mkdir()
    runtime = await ProcessRuntime.open(tmp_path / "containers", reach=Reach(keep=(str(software),)))
    end, out, err = await output_after(runtime, f"cat {software}/tool; ls {tmp_path}; touch /tmp/own")
    assert (end.code, out, err) == (0, "heresoftware\n", "")
    assert "own" not in os.listdir("/tmp")


@pytest.mark.needs("namespaces")
async def test_a_private_root_has_shared_memory_of_the_size_asked_for(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers")
    _, out, _ = await output_after(runtime, "df --output=size -k /dev/shm | tail -1", shm_bytes=8 * 1024 * 1024)
    assert out.strip() == "8192"


@pytest.mark.needs("namespaces")
async def test_a_mount_point_that_cannot_be_made_refuses_the_task_and_leaves_nothing(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers")
    mounts = ((str(tmp_path / "shared"), "/usr/no-such-place"),)
    with pytest.raises(LaunchRefused, match="/usr/no-such-place"):
        await runtime.start(a_container("exit 0", shared_directories=mounts), a_context())
    assert await runtime.adopt() == ()
    assert not os.path.lexists("/usr/no-such-place")  # noqa: ASYNC240


async def test_a_shared_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    with pytest.raises(LaunchRefused, match="file/shared"):
        mounts = ((str(tmp_path / "file" / "shared"), "/determined_shared_fs"),)
        await runtime.start(a_container("exit 0", shared_directories=mounts), a_context())
    assert await runtime.adopt() == ()


async def test_streams_reopened_by_name_are_not_truncated_and_an_ignored_image_is_told(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    command = "echo one; echo two > /dev/stdout; echo three > $DET_RUN_DIR/train/logs/stdout.log"
    _, out, err = await output_after(runtime, command, image="pytorch:2")
    assert out == "one\ntwo\nthree\n"
    assert err.startswith("WARNING: image 'pytorch:2' is not used")


async def test_output_keeps_the_time_at_which_it_was_written(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    await output_after(runtime, "echo one; sleep 0.3; echo two; sleep 0.3; echo three >&2; sleep 0.3; echo four")
    order = [("stdout", 0), ("stdout", 4), ("stderr", 0), ("stdout", 8)]
    for reader in (runtime, ProcessRuntime(tmp_path / "containers", PrivateRoots(mode="none"))):
        times = [reader.output_time("c9", stream, offset) for stream, offset in order]
        assert None not in times
        gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(filter(None, times))]
        assert all(gap > 0.2 for gap in gaps), gaps
    later = ProcessRuntime(tmp_path / "containers", PrivateRoots(mode="none"))
    assert later.output_time("c9", "stdout", 8) == times[3]
    assert later.output_time("nobody", "stdout", 0) is None
