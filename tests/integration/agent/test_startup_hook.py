"""The startup hooks of cluster and context, in processes and in containers: order, environment, and what a failure says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolute.wire.agent_link import STARTUP_HOOK_FILE, ContainerSpec, Exit
from resolute_agent import forkserver
from resolute_agent.runtimes.base import STREAMS, Runtime
from resolute_agent.runtimes.process import ProcessRuntime
from support.agent_scripts import a_container, a_context
from support.docker_agents import agents_of
from support.harness_master import packed


@pytest.fixture(
    params=[
        "process",
        pytest.param("process, private", marks=pytest.mark.needs("namespaces")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ]
)
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runtime]:
    if request.param == "docker":
        async with agents_of(request.getfixturevalue("docker"), tmp_path / "agent") as agents:
            yield await agents.next()
        return
    private = "private" in request.param
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=private)
    assert runtime.private_roots.private is private, runtime.private_roots.reason
    yield runtime
    for found in await runtime.adopt():
        await runtime.kill(found.container_id, 0.0)
        await runtime.wait(found.container_id)
    await runtime.close()


def a_task(name: str, program: str, *, cluster: str = "", context: str | None = None) -> ContainerSpec:
    """A command under our launcher, which has nothing to ask a master for."""
    code = packed({} if context is None else {"startup-hook.sh": context})
    return a_container(
        "exit 0",
        name,
        command=("python3", "-m", forkserver.LAUNCHER, "--", "sh", "-c", program),
        environment={
            "DET_ALLOCATION_ID": f"1.{name}.1",
            "DET_TASK_ID": f"1.{name}",
            "DET_SESSION_TOKEN": "token",
            "DET_TASK_TYPE": "COMMAND",
            "DET_MASTER": "http://127.0.0.1:1",
        },
        code=code,
        alone=True,
        startup_hook=cluster,
    )


async def ran(runtime: Runtime, spec: ContainerSpec) -> tuple[Exit, list[str], str]:
    """How it ended, the lines of its standard output, and its errors."""
    await runtime.start(spec, a_context())
    async with asyncio.timeout(60):
        end = await runtime.wait(spec.container_id)
    out, err = (runtime.read_output(spec.container_id, stream, 0, 100_000).decode() for stream in STREAMS)
    return end, out.splitlines(), err


async def test_the_clusters_hook_runs_first_and_what_both_export_is_there(runtime: Runtime) -> None:
    cluster = "export ORDER=cluster SECRET_OF_OURS=hunter2; ulimit -n 99; cd /"
    context = 'echo in "$(pwd)"; export ORDER="$ORDER-context"; set -- a b c'
    program = f'echo "$ORDER $(ulimit -n) $(pwd)"; ls -l $DET_RUN_DIR/{STARTUP_HOOK_FILE}'
    end, out, err = await ran(runtime, a_task("c1", program, cluster=cluster, context=context))
    assert end == Exit(code=0), err
    workdir = out[1].split()[-1]
    assert out[0] == "in /" and out[1] == f"cluster-context 99 {workdir}" and workdir.endswith("/workdir")
    assert out[2].startswith("-rwxr--r--")
    assert "ORDER=cluster-context" in err, "the context's hook is traced"
    assert "hunter2" not in err, "the cluster's is not: everybody may read a log"


async def test_each_hook_alone_and_none(runtime: Runtime) -> None:
    for name, cluster, context, said in (
        ("none", "", None, "-"),
        ("first", "export A=1", None, "1-"),
        ("second", "", "export B=2", "-2"),
    ):
        end, out, err = await ran(runtime, a_task(name, "echo $A-$B", cluster=cluster, context=context))
        assert (end, out) == (Exit(code=0), [said]), err


@pytest.mark.parametrize(
    ("cluster", "context", "code", "said"),
    [
        ("echo before; (exit 7); echo after", "echo context", 7, "startup_hook) failed with exit code 7"),
        ("true", "no-such-program", 127, "startup-hook.sh failed with exit code 127"),
        ("if then", None, 2, "startup_hook) failed with exit code 2"),
        ("exit 0", None, 1, "startup_hook) ended before its last line"),
    ],
)
async def test_a_hook_that_fails_fails_the_task_and_says_so(
    runtime: Runtime, cluster: str, context: str | None, code: int, said: str
) -> None:
    end, out, err = await ran(runtime, a_task("c1", "echo ran", cluster=cluster, context=context))
    assert end.code == code and end.failure is not None
    assert not {"after", "context", "ran"} & set(out)
    last = err.splitlines()[-1]
    assert last.startswith("ERROR: [") and last.endswith(f"{said}; the entrypoint was not run"), err
