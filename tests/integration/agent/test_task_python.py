"""A task that runs under a Python of its own, in processes and in containers."""

from __future__ import annotations

import asyncio
import sys
import venv
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolute.wire.agent_link import ContainerSpec, Exit
from resolute_agent import forkserver, kernel
from resolute_agent.runtimes.base import STREAMS, Runtime
from resolute_agent.runtimes.process import ProcessRuntime
from support.agent_scripts import a_container, a_context
from support.docker_agents import agents_of
from support.harness_master import packed
from support.reachable import open_to_everybody

MAKE = "python3 -m venv --without-pip env"

BASE = Path(sys.executable).resolve()
"""The interpreter that virtual environments are made from here."""

SHOW = """
import os, shutil, sys
import resolute
from resolute import core
print(sys.prefix, shutil.which("python3"), shutil.which("python"), os.environ.get("VIRTUAL_ENV"))
print(os.path.dirname(resolute.__file__), "site-packages" in " ".join(sys.path[:2]))
"""


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
    async for made in processes_of(tmp_path, private="private" in request.param):
        yield made


async def processes_of(tmp_path: Path, *, private: bool) -> AsyncIterator[ProcessRuntime]:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=private)
    assert runtime.private_roots.private is private, runtime.private_roots.reason
    yield runtime
    for found in await runtime.adopt():
        await runtime.kill(found.container_id, 0.0)
        await runtime.wait(found.container_id)
    await runtime.close()


def a_task(
    python: str, *program: str, hook: str | None = None, variables: dict[str, str] | None = None
) -> ContainerSpec:
    """A command under our launcher, which has nothing to ask a master for."""
    files = {"show.py": SHOW, **({} if hook is None else {"startup-hook.sh": hook})}
    return a_container(
        "exit 0",
        command=("python3", "-m", forkserver.LAUNCHER, "--", *program),
        environment={
            "DET_ALLOCATION_ID": "1.c1.1",
            "DET_TASK_ID": "1.c1",
            "DET_SESSION_TOKEN": "token",
            "DET_TASK_TYPE": "COMMAND",
            "DET_MASTER": "http://127.0.0.1:1",
            **({"DET_PYTHON_EXECUTABLE": python} if python else {}),
            **(variables or {}),
        },
        code=packed(files),
        alone=True,
    )


async def ran(runtime: Runtime, spec: ContainerSpec) -> tuple[Exit, list[str], str]:
    """How it ended, the lines of its standard output, and its errors."""
    await runtime.start(spec, a_context())
    async with asyncio.timeout(120):
        end = await runtime.wait(spec.container_id)
    out, err = (runtime.read_output(spec.container_id, stream, 0, 100_000).decode() for stream in STREAMS)
    await runtime.forget(spec.container_id)
    return end, out.splitlines(), err


async def test_an_environment_of_the_model_code_that_its_hook_makes(runtime: Runtime) -> None:
    end, out, err = await ran(runtime, a_task("./env", "python3", "show.py", hook=MAKE))
    assert end == Exit(code=0), err
    prefix, python3, python, named = out[0].split()
    assert prefix.endswith("/workdir/env") and named == prefix
    assert (python3, python) == (f"{prefix}/bin/python3", f"{prefix}/bin/python")
    assert out[1].split()[1] == "False", "only our package is lent, not what is installed beside it"
    assert f"the entrypoint runs with Python {'.'.join(map(str, sys.version_info[:2]))}" in err or "Python 3." in err


async def test_a_name_without_a_slash_is_what_path_has(runtime: Runtime) -> None:
    _, with_name, _ = await ran(runtime, a_task("python3", "python3", "show.py"))
    _, without, _ = await ran(runtime, a_task("", "python3", "show.py"))
    assert with_name == without != []


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("./nowhere", "./nowhere has no Python interpreter that this task can see"),
        ("/etc/passwd", "/etc/passwd"),
        ("/bin/cat", "/bin/cat does not run as a Python interpreter"),
    ],
)
async def test_a_python_that_is_none_fails_the_task_in_words(runtime: Runtime, python: str, said: str) -> None:
    end, out, err = await ran(runtime, a_task(python, "echo", "ran"))
    assert (end.code, out) == (1, [])
    last = err.splitlines()[-1]
    assert last.startswith("ERROR: ") and f"environment.python: {said}" in last, err


# -------------------------------------------------------------------------------- environments of the machine


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that every user of the machine may enter."""
    open_to_everybody(tmp_path)
    return tmp_path


@pytest.fixture
def elsewhere(place: Path) -> Path:
    """A virtual environment of the machine, with a `resolute` of its own and a package that only it has."""
    home = place / "envs" / "train"
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "resolute").mkdir()
    (packages / "resolute" / "__init__.py").write_text("raise ImportError('of another version')\n")
    (packages / "only_there.py").write_text("VALUE = 42\n")
    return home


@pytest.fixture(params=["plain", pytest.param("private", marks=pytest.mark.needs("namespaces"))])
async def processes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    async for made in processes_of(tmp_path, private=request.param == "private"):
        yield made


async def test_an_environment_of_the_machine_has_its_packages_and_not_the_agents(
    processes: ProcessRuntime, elsewhere: Path
) -> None:
    agents = "import importlib.util as u; print([name for name in ('pydantic', 'aiohttp') if u.find_spec(name)])"
    program = f"import only_there; print(only_there.VALUE); {agents}; exec(open('show.py').read())"
    end, out, err = await ran(processes, a_task(str(elsewhere), "python3", "-c", program))
    assert end == Exit(code=0), err
    assert out[:2] == ["42", "[]"]
    assert out[2].split()[0] == str(elsewhere)
    assert out[3].split()[0].endswith("/run/python/resolute") or out[3].startswith("/run/determined/python/resolute")


async def test_the_agents_programs_come_last(processes: ProcessRuntime, elsewhere: Path) -> None:
    task = a_task(str(elsewhere), "sh", "-c", "echo $PATH", variables={"PATH": "/usr/bin:/bin"})
    _, out, err = await ran(processes, task)
    assert out == [f"{elsewhere}/bin:/usr/bin:/bin:{Path(sys.executable).parent}"], err


async def test_an_interpreter_of_another_name_is_python3_for_the_task(
    processes: ProcessRuntime, elsewhere: Path
) -> None:
    (elsewhere / "bin" / "python3").unlink()
    other = elsewhere / "bin" / "python9.9"
    other.symlink_to(BASE)
    (elsewhere / "bin" / "python3").write_text("#!/bin/sh\necho the wrong one\n")
    (elsewhere / "bin" / "python3").chmod(0o755)
    for name in ("python3", "python"):
        end, out, err = await ran(
            processes, a_task(str(other), name, "-c", "import only_there; print(only_there.VALUE)")
        )
        assert (end, out) == (Exit(code=0), ["42"]), err


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("closed", "why"), [("lib/python*/site-packages", "site-packages cannot be read"), ("bin", "Permission denied")]
)
async def test_an_environment_that_the_tasks_user_may_not_read_is_named(
    place: Path, elsewhere: Path, closed: str, why: str
) -> None:
    for directory in elsewhere.glob(closed):  # noqa: ASYNC240
        directory.chmod(0o700)
    async for runtime in processes_of(place, private=True):
        assert runtime.private_roots.mode == kernel.ISOLATED
        end, _, err = await ran(runtime, a_task(str(elsewhere), "true"))
        last = err.splitlines()[-1]
        assert end.code == 1 and f"environment.python: {elsewhere} cannot be used by the user of this task" in last
        assert why in last and "chmod -R o+rX" in last, last
