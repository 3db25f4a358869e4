"""What a container of a real engine is given, and how its end is told."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from resolute.wire.agent_link import BindMount, ContainerOptions, Device, Exit, HostDevice, NoticeFile
from resolute.wire.states import FailureKind, NoticeKind, SlotKind
from resolute_agent.runtimes.base import STREAMS, LaunchFailed, LaunchRefused, TaskContext
from resolute_agent.runtimes.docker import DockerRuntime
from resolute_agent.runtimes.docker_engine import Engine, EngineGone
from resolute_agent.runtimes.docker_request import EngineOptions
from support.agent_processes import eventually
from support.agent_scripts import a_container, a_context
from support.docker import TASK, DockerEngine
from support.docker_agents import Agents, agents_of

pytestmark = pytest.mark.needs("docker")

HOST = ContainerOptions(network_mode="host")


async def ran(
    runtime: DockerRuntime, command: str, *, context: TaskContext | None = None, **changes: object
) -> tuple[Exit, str, str]:
    """Run a shell command to its end: how it ended, what it wrote."""
    fields = {"image": TASK, "options": HOST, **changes}
    await runtime.start(a_container("exit 0", "c1", command=("sh", "-c", command), **fields), context or a_context())
    async with asyncio.timeout(60):
        end = await runtime.wait("c1")
    out, err = (runtime.read_output("c1", stream, 0, 100_000).decode() for stream in STREAMS)
    await runtime.forget("c1")
    return end, out, err


async def test_a_task_finds_its_surroundings(runtime: DockerRuntime, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    command = """
        echo $DET_RUN_DIR $DET_WORKDIR $HOME $MADE_BY $PATH $(pwd)
        stat -c '%n %a %u' /run/determined /run/determined/workdir /run/determined/train/logs
        python3 -c 'import resolute, sys; print(resolute.__file__, sys.executable)'
        touch /opt/resolute/x || echo read-only
        echo kept > /determined_shared_fs/file
        echo by-name > /run/determined/train/logs/stderr.log
        df --output=size -k /dev/shm | tail -1
    """
    _, out, err = await ran(
        runtime,
        command,
        shared_directories=((str(shared), "/determined_shared_fs"),),
        shm_bytes=8 * 1024**2,
        environment={"SOME": "thing"},
    )
    lines = out.splitlines()
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    workdir = "/run/determined/workdir"
    assert lines[0] == f"/run/determined {workdir} {workdir} docker-build {path} {workdir}"
    assert lines[1:4] == [f"/run/determined{rest} 700 0" for rest in ("", "/workdir", "/train/logs")]
    assert lines[4].startswith("/opt/resolute/resolute/__init__.py /usr/bin/python3")
    assert [line.strip() for line in lines[5:]] == ["read-only", "8192"]
    assert "by-name" in err.splitlines()
    assert (shared / "file").read_text() == "kept\n"


async def test_what_was_asked_for_is_there(runtime: DockerRuntime, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("data")
    options = replace(
        HOST,
        mounts=(
            BindMount(host_path=str(tmp_path / "data"), container_path="/data", read_only=True),
            BindMount(host_path=str(tmp_path / "data"), container_path="here"),
        ),
        devices=(HostDevice(host_path="/dev/zero", container_path="/dev/nothing"),),
        add_capabilities=("SYS_PTRACE",),
        drop_capabilities=("KILL",),
        user="65534:65534",
    )
    command = """
        cat /data/file; touch /data/new || echo ' no'
        cat here/file; id -u; touch $HOME/mine && echo mine
        head -c 3 /dev/nothing | wc -c
        sed -n 's/^CapBnd:[[:space:]]*//p' /proc/self/status
    """
    _, out, _ = await ran(runtime, command, options=options)
    data, mine, own, size, capabilities = (out.splitlines()[index] for index in (0, 1, 2, 3, 4))
    assert (data, mine, own, size) == ("data no", "data65534", "mine", "3")
    assert int(capabilities, 16) >> 19 & 1, "SYS_PTRACE is added"
    assert not int(capabilities, 16) >> 5 & 1, "KILL is taken away"


async def test_networks_and_ports(runtime: DockerRuntime, docker: DockerEngine) -> None:
    _, out, _ = await ran(runtime, "ls /sys/class/net", options=ContainerOptions(network_mode="none"))
    assert out.split() == ["lo"]
    _, out, _ = await ran(runtime, "ls /sys/class/net", options=ContainerOptions(network_mode="bridge"))
    assert sorted(out.split()) == ["eth0", "lo"]
    spec = a_container("run 600s", "c2", image=TASK, options=ContainerOptions(network_mode="bridge", ports=(8123,)))
    await runtime.start(spec, a_context())
    with docker.client() as client:
        ports = client.inspect_container("resolute-c2")["NetworkSettings"]["Ports"]
    assert int(ports["8123/tcp"][0]["HostPort"]) > 0
    with pytest.raises(LaunchRefused, match="no-such-net"):
        await ran(runtime, "true", options=ContainerOptions(network_mode="no-such-net"))


async def test_an_image_that_is_nowhere_is_refused_by_name(runtime: DockerRuntime, agents: Agents) -> None:
    with pytest.raises(LaunchRefused, match=r"image '127.0.0.1:1/mine:1' cannot be pulled.*reaches the registry"):
        await ran(runtime, "true", image="127.0.0.1:1/mine:1")
    assert agents.containers() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (replace(HOST, mounts=(BindMount(host_path="/no/such", container_path="/d"),)), "/no/such"),
        (replace(HOST, devices=(HostDevice(host_path="/dev/no-such", container_path="/dev/x"),)), "/dev/no-such"),
        (replace(HOST, add_capabilities=("NO_SUCH",)), "NO_SUCH"),
        (replace(HOST, user="somebody"), "uid:gid"),
    ],
)
async def test_what_the_engine_cannot_do_is_refused_and_leaves_nothing(
    runtime: DockerRuntime, agents: Agents, options: ContainerOptions, said: str
) -> None:
    with pytest.raises(LaunchRefused, match=said):
        await ran(runtime, "true", options=options)
    assert agents.containers() == []
    assert await runtime.adopt() == ()


async def test_gpus_that_the_engine_cannot_give_are_refused(runtime: DockerRuntime) -> None:
    gpu = Device(index=0, kind=SlotKind.CUDA, brand="H", uuid="GPU-1")
    with pytest.raises(LaunchRefused, match=r"cannot give GPUs to containers.*container toolkit"):
        await ran(runtime, "true", context=replace(a_context(), devices=(gpu,)))


async def test_a_program_that_is_not_in_the_image_is_the_tasks_failure(runtime: DockerRuntime) -> None:
    await runtime.start(a_container("exit 0", image=TASK, options=HOST, command=("no-such-program",)), a_context())
    end = await runtime.wait("c1")
    assert (end.code, end.failure) == (127, FailureKind.CONTAINER_FAILED)
    assert b"no-such-program" in runtime.read_output("c1", "stderr", 0, 1000)


async def test_out_of_memory_is_told_as_such(docker: DockerEngine, tmp_path: Path) -> None:
    options = EngineOptions(memory_bytes=48 * 1024**2, ulimits={"nofile": 321})
    async with agents_of(docker, tmp_path / "agent", options) as agents:
        runtime = await agents.next()
        end, out, _ = await ran(runtime, "ulimit -n; python3 -c 'x = bytearray(200 * 1024**2); print(len(x))'")
        assert out == "321\n"
        assert (end.code, end.failure) == (137, FailureKind.CONTAINER_FAILED)
        assert end.message.startswith("out of memory:")
        assert "48 MiB" in end.message


async def test_a_signal_of_a_notice_reaches_who_registered(runtime: DockerRuntime) -> None:
    program = """
import os, signal, sys
def told(*_):
    sys.stdout.write(open('/run/determined/notice.json').read())
    sys.exit(7)
signal.signal(signal.SIGTERM, told)
open('/run/determined/notice.pid', 'w').write(str(os.getpid()))
print('ready', flush=True)
signal.pause()
"""
    command = ("sh", "-c", "trap 'exit 1' TERM; python3 -c \"$PROGRAM\"; exit $?")
    spec = a_container("exit 0", image=TASK, options=HOST, command=command, environment={"PROGRAM": program})
    await runtime.start(spec, a_context())
    await eventually(lambda: runtime.read_output("c1", "stdout", 0, 100) == b"ready\n")
    runtime.notify("c1", NoticeFile(kind=NoticeKind.INTERRUPTION, deadline=None, reason="spot"))
    end = await runtime.wait("c1")
    assert end.code == 7, "the registered process was signalled, not the shell around it"
    assert json.loads(runtime.read_output("c1", "stdout", 6, 1000))["reason"] == "spot"


async def test_an_engine_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineGone, match=r"no container engine answers at unix:///.*is the Docker engine running"):
        await asyncio.to_thread(Engine, f"unix://{tmp_path}/nobody.sock")


async def test_a_container_without_an_image_is_refused(agents: Agents) -> None:
    runtime = await DockerRuntime.open(agents.directory, Engine(agents.engine.host))
    try:
        with pytest.raises(LaunchRefused, match=r"environment\.image"):
            await runtime.start(a_container("exit 0"), a_context())
        with pytest.raises(LaunchFailed, match="exists already"):
            await runtime.start(a_container("run 600s", image=TASK, options=HOST), a_context())
            await runtime.start(a_container("run 600s", image=TASK, options=HOST), a_context())
    finally:
        await runtime.close()
