"""The edge to a container engine: commands through the Docker SDK in a few threads, streams through asyncio.

The SDK is synchronous: more than four commands at once do not make an engine faster (measured), so four threads carry
them. What continues for as long as a container lives, its output and its end, needs no thread but a connection each.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
from docker import APIClient, auth
from docker.errors import APIError, DockerException
from docker.utils import parse_repository_tag
from requests import RequestException

from resolute.errors import InvalidInput, ResoluteError
from resolute_agent.runtimes.docker_request import registry_of
from resolute_agent.runtimes.docker_watch import ask_engine

T = TypeVar("T")

DEFAULT_HOST = "unix:///var/run/docker.sock"
COMMAND_THREADS = 4
COMMAND_TIMEOUT_S = 120
PULL_SILENCE_S = 900.0
"""Longest silence in a pull: unpacking one large layer is silent."""
CONNECT_TIMEOUT_S = 10.0
READ_BYTES = 64 * 1024


class EngineError(ResoluteError):
    """The engine refused a command; `status` is that of its answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class EngineGone(ResoluteError):
    """The engine does not answer; the text has its address."""


class PullFailed(ResoluteError):
    """An image could not be pulled. `final`: it would not be the next time either."""

    def __init__(self, text: str, *, final: bool) -> None:
        super().__init__(text)
        self.final = final


def socket_of(host: str) -> str:
    """The path of the engine's socket. Raises `InvalidInput` for an engine elsewhere: it could not see our files."""
    if not host.startswith("unix:///"):
        raise InvalidInput(
            f"docker_host: {host!r} is no socket of this machine; write unix:///path/to/docker.sock. Containers share "
            "directories with the agent, so their engine must run on the same machine"
        )
    return host.removeprefix("unix://")


class Engine:
    """One engine, reached through `host`. Close it when it is not needed any more."""

    def __init__(self, host: str = DEFAULT_HOST, *, login_file: Path | None = None) -> None:
        """`login_file` is a Docker configuration with the machine's logins at registries; `None` finds this user's."""
        self.host = host
        self.socket = socket_of(host)
        self._login_file = login_file
        self._gone = f"no container engine answers at {host}; is the Docker engine running, and may this user use it?"
        try:
            ask_engine(self.socket, "GET", "/_ping")
            self._client = APIClient(base_url=host, version="auto", timeout=COMMAND_TIMEOUT_S)
        except (OSError, DockerException) as error:
            raise EngineGone(f"{self._gone} ({error})") from error
        self._threads = ThreadPoolExecutor(COMMAND_THREADS, "docker")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End the streams and wait for commands that are under way."""
        if self._session is not None:
            await self._session.close()
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    # ------------------------------------------------------------------------------------------------------- commands

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """The engine's description of an image; `None` if it has none of this name."""
        return await self._found(lambda: self._client.inspect_image(name))

    async def create(self, body: Mapping[str, Any], name: str) -> None:
        await self._command(lambda: self._client.create_container_from_config(dict(body), name=name))

    async def start(self, name: str) -> None:
        await self._command(lambda: self._client.start(name))

    async def inspect(self, name: str) -> Mapping[str, Any] | None:
        """The container's state; `None` when there is none of this name."""
        return await self._found(lambda: self._client.inspect_container(name))

    async def remove(self, name: str) -> None:
        """Kills the container if it runs, and removes it. Without such a container it succeeds."""
        try:
            await self._command(lambda: self._client.remove_container(name, force=True, v=True))
        except EngineError as error:
            being_removed = error.status == 409 and "already in progress" in str(error)
            if error.status != 404 and not being_removed:
                raise

    async def run_inside(self, name: str, command: list[str]) -> None:
        """Run a command in a running container to its end; its output is discarded."""

        def run() -> None:
            made = self._client.exec_create(name, command, stdout=False, stderr=False)
            self._client.exec_start(made["Id"], detach=True)

        await self._command(run)

    async def owned(self, label: str, value: str) -> list[str]:
        """Names of all containers with this label, in whatever state."""
        listed = await self._command(lambda: self._client.containers(all=True, filters={"label": f"{label}={value}"}))
        return sorted(names[0].removeprefix("/") for each in listed if (names := each["Names"]))

    async def pull(
        self, image: str, credentials: Mapping[str, str] | None, *, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        """Pull an image; without `credentials` with what this user is logged in with. Raises `PullFailed`.

        `progress` receives short lines. Cancelling stops the engine's pull as well.
        """
        repository, tag = parse_repository_tag(image)
        header = await self._command(lambda: self._auth_header(credentials, registry_of(image)))
        query = urlencode({"fromImage": repository, "tag": tag or "latest"})
        said = ""
        try:
            async with self._stream_session().post(
                f"http://engine/images/create?{query}",
                headers={"X-Registry-Auth": header} if header else {},
                timeout=aiohttp.ClientTimeout(total=None, sock_read=PULL_SILENCE_S),
            ) as answer:
                async for text in answer.content:
                    line = json.loads(text)
                    said = str(line.get("error") or line.get("message") or said)
                    progress(" ".join(str(line[key]) for key in ("id", "status", "progress") if line.get(key)))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise PullFailed(f"image {image!r} was not pulled: {self._gone} ({error!r})", final=False) from error
        if said:
            raise _pull_failed(image, said)

    def _auth_header(self, credentials: Mapping[str, str] | None, registry: str) -> str:
        """Credentials as the engine reads them: the task's own, or those of the machine's login."""
        if credentials is None:
            config = auth.load_config(str(self._login_file) if self._login_file is not None else None)
            credentials = auth.resolve_authconfig(config, registry)
        return auth.encode_header(dict(credentials)).decode() if credentials else ""

    async def _found(self, command: Callable[[], T]) -> T | None:
        try:
            return await self._command(command)
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    async def _command(self, command: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: self._translated(command))

    def _translated(self, command: Callable[[], T]) -> T:
        try:
            with socket.socket(socket.AF_UNIX) as probe:  # the SDK leaves its socket open without an answer
                probe.connect(self.socket)
            return command()
        except APIError as error:
            status = error.response.status_code if error.response is not None else 500
            raise EngineError(status, str(error.explanation or error)) from error
        except (OSError, DockerException, RequestException) as error:
            raise EngineGone(f"{self._gone} ({error})") from error

    # -------------------------------------------------------------------------------------------------------- streams

    async def output(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[bytes]:
        """The container's output from its beginning, or its last `tail` entries, in frames with times.

        With `follow` it ends when the container has. Raises `EngineGone` and `EngineError`.
        """
        options = f"stdout=1&stderr=1&timestamps=1&follow={int(follow)}&tail={'all' if tail is None else tail}"
        url = f"http://engine/containers/{quote(name, safe='')}/logs?{options}"
        try:
            async with self._stream_session().get(url) as answer:
                if answer.status != 200:
                    raise EngineError(answer.status, (await answer.text()).strip())
                async for piece in answer.content.iter_chunked(READ_BYTES):
                    yield piece
        except aiohttp.ClientError as error:
            raise EngineGone(f"{self._gone} ({error})") from error

    def _stream_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(path=self.socket, limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            )
        return self._session


_FINAL = (
    "not found",
    "manifest unknown",
    "denied",
    "unauthorized",
    "authentication required",
    "no basic auth",
    "invalid",
)


def _pull_failed(image: str, said: str) -> PullFailed:
    """The engine's error of a failed pull, and a remedy."""
    final = any(word in said.lower() for word in _FINAL)
    if any(word in said.lower() for word in ("denied", "unauthorized", "authentication", "no basic auth")):
        advice = "check the name; if the image is private, give credentials in environment.registry_auth"
    elif final:
        advice = "check environment.image"
    else:
        advice = "check that this machine reaches the registry"
    return PullFailed(f"image {image!r} cannot be pulled: {said}; {advice}", final=final)
