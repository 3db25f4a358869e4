"""Images from a real registry: pulled when they are missing, with credentials, again when that is asked for."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from resolute.wire.agent_link import ContainerOptions, ContainerSpec
from resolute_agent.runtimes.base import LaunchAborted, LaunchRefused
from resolute_agent.runtimes.docker import DockerRuntime
from support.agent_scripts import a_container, a_context
from support.docker import SMALL, TASK, DockerEngine, import_base
from support.docker_agents import Agents, agents_of
from support.docker_registry import PASSWORD, USER, Registry

pytestmark = [pytest.mark.needs("docker"), pytest.mark.needs("docker-registry")]

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "agent_image" / "Dockerfile"
LOGIN = {"username": USER, "password": PASSWORD}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    registry = Registry(tmp_path_factory.mktemp("images") / "registry")
    with registry.running():
        yield registry


def an_image(docker: DockerEngine, registry: Registry, said: str) -> str:
    """An image `private:1` of the registry whose variable VERSION says this."""
    if not docker.has(SMALL):
        import_base(docker, SMALL)
    docker.build("resolute-test/private:1", f"FROM {SMALL}\nENV VERSION={said}\n")
    return registry.push(docker, "resolute-test/private:1", "team/private:1")


def asking(
    image: str, container_id: str = "c1", *, force: bool = False, login: Mapping[str, str] | None = None
) -> ContainerSpec:
    options = ContainerOptions(network_mode="host", force_pull=force, registry_auth=LOGIN if login is None else login)
    return a_container("exit 0", container_id, image=image, options=options, command=("sh", "-c", "echo $VERSION"))


async def version_of(runtime: DockerRuntime, spec: ContainerSpec) -> str:
    await runtime.start(spec, a_context())
    await runtime.wait(spec.container_id)
    return runtime.read_output(spec.container_id, "stdout", 0, 100).decode().strip()


async def test_pulling(runtime: DockerRuntime, agents: Agents, docker: DockerEngine, registry: Registry) -> None:
    image = an_image(docker, registry, "one")
    with pytest.raises(LaunchRefused, match=r"private.*environment\.registry_auth"):
        await runtime.start(asking(image, login={}), a_context())
    with pytest.raises(LaunchRefused, match="unauthorized"):
        await runtime.start(asking(image, login={**LOGIN, "password": "wrong"}), a_context())
    with pytest.raises(LaunchRefused, match=r"serveraddress: 'elsewhere.example' is not the registry of image"):
        await runtime.start(asking(image, login={**LOGIN, "serveraddress": "https://elsewhere.example"}), a_context())
    with pytest.raises(LaunchRefused, match=r"team/nothing.*check environment\.image"):
        await runtime.start(asking(image.replace("private", "nothing")), a_context())
    assert agents.containers() == []

    assert await version_of(runtime, asking(image, "first")) == "one"
    assert an_image(docker, registry, "two") == image  # the same name means another image now
    with docker.client() as client:
        client.tag(SMALL, image.rpartition(":")[0], "1")  # and an older one is here under it
    assert await version_of(runtime, asking(image, "second")) == "", "what is here is not pulled"
    assert await version_of(runtime, asking(image, "third", force=True)) == "two"


async def test_the_machines_own_login_is_used(docker: DockerEngine, registry: Registry, tmp_path: Path) -> None:
    image = an_image(docker, registry, "own")
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.address: {"auth": login}}}))
    async with agents_of(docker, tmp_path / "agent", login_file=tmp_path / "config.json") as agents:
        assert await version_of(await agents.next(), asking(image, login={})) == "own"


async def test_a_kill_ends_a_pull_that_hangs(runtime: DockerRuntime, agents: Agents) -> None:
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the engine gives up
        writer.close()
        await writer.wait_closed()
        given_up.set()

    given_up = asyncio.Event()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        start = asyncio.create_task(runtime.start(asking(f"127.0.0.1:{port}/slow:1"), a_context()))
        async with asyncio.timeout(30):
            await asked.wait()
            await runtime.kill("c1", 0.0)
            with pytest.raises(LaunchAborted, match="while its image was pulled"):
                await start
            await given_up.wait()
    assert agents.containers() == []
    assert await runtime.adopt() == ()


def test_our_dockerfile_makes_an_image_and_refuses_a_base_without_python(docker: DockerEngine) -> None:
    text = DOCKERFILE.read_text()
    docker.build("resolute-test/made:1", text.replace("python:3.11.11-slim-bookworm", TASK))
    with docker.client() as client:
        assert "MADE_BY=docker-build" in client.inspect_image("resolute-test/made:1")["Config"]["Env"]
    if not docker.has(SMALL):
        import_base(docker, SMALL)
    with pytest.raises(AssertionError, match=r"--require-hashes -r /tmp/requirements\.lock"):  # this base has no pip
        locked = text.replace("python:3.11.11-slim-bookworm", TASK).replace("ARG LOCK=Dockerfile", "ARG LOCK=my.lock")
        docker.build("resolute-test/made:3", locked, [(ROOT / "requirements/uv.lock", "my.lock")])
    with pytest.raises(AssertionError, match="python3"):
        docker.build("resolute-test/made:2", text.replace("python:3.11.11-slim-bookworm", SMALL))
