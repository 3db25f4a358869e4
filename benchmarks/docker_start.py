"""A container's start through the agent's runtime, from the order to the task's first line, compared with `docker run`.

Both start the same command in the same image on the same engine, in turn. The runtime's start also includes the run directory, the
lease and the record on disk, the mount of our package, and an init process that reaps children.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Row, Spread, Target, ratio
from resolute.wire.agent_link import ContainerOptions, ContainerSpec
from resolute.wire.states import TaskType
from resolute_agent.runtimes.base import TaskContext
from resolute_agent.runtimes.docker import DockerRuntime
from resolute_agent.runtimes.docker_engine import Engine
from support.docker import TASK, DockerEngine, docker_engine

ROUNDS = 21
COMMAND = ("sh", "-c", "echo ready")
TARGET = Target(at_most=1.2)


def main() -> list[Row]:
    if shutil.which("docker") is None:
        raise SystemExit(
            "docker_start compares with the command `docker`, which is not here: apt-get install docker-cli"
        )
    with docker_engine() as engine, tempfile.TemporaryDirectory() as directory:
        rows = []
        for network in ("host", "bridge"):
            with _ours(engine, Path(directory) / network, network) as start:
                start()  # An agent does this once, so that it is not part of each start.
                _docker_run(engine, network)
                pairs = [(start(), _docker_run(engine, network)) for _ in range(ROUNDS)]
            own, peer = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            row = Row(
                name=f"order to first line, network {network}",
                subject=Spread.of([seconds * 1000 for seconds in own], "ms"),
                bound_name="docker run",
                bound=Spread.of([seconds * 1000 for seconds in peer], "ms"),
                result=ratio(own, peer),
                target=TARGET,
            )
            rows.append(row)
        return rows


def _docker_run(engine: DockerEngine, network: str) -> float:
    command = ["docker", "-H", engine.host, "run", "--rm", "--network", network, TASK, *COMMAND]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - began
        assert line == b"ready\n", line
        process.wait()
    return took


@contextmanager
def _ours(engine: DockerEngine, directory: Path, network: str) -> Iterator[Callable[[], float]]:
    """A function that starts one container through the runtime and returns the seconds until its first line."""
    numbers = itertools.count()
    with asyncio.Runner() as runner:
        runtime = runner.run(DockerRuntime.open(directory, Engine(engine.host)))
        yield lambda: runner.run(_start(runtime, f"{network}-{next(numbers)}", network))
        runner.run(runtime.close())


async def _start(runtime: DockerRuntime, name: str, network: str) -> float:
    spec = ContainerSpec(
        container_id=name,
        allocation_id=f"{name}.1",
        task_id=name,
        task_type=TaskType.COMMAND,
        description="benchmark",
        slots=(),
        environment={},
        command=COMMAND,
        image=TASK,
        options=ContainerOptions(network_mode=network),
    )
    began = time.perf_counter()
    await runtime.start(spec, TaskContext(environment={}, devices=(), lease_s=600.0))
    await runtime.output_grown(name, {})
    line = runtime.read_output(name, "stdout", 0, 100)
    took = time.perf_counter() - began
    assert line == b"ready\n", line
    await runtime.wait(name)
    await runtime.forget(name)
    return took
