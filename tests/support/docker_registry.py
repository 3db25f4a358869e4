"""A real local image registry with a user name and a password."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.docker import DockerEngine
from support.ports import free_port

USER, PASSWORD = "ada", "lovelace"
_BCRYPT = "$2b$05$7XNPQU0NSap8cizdYt0ZReLHvlwb8TWGdEAKwYkxa4NlBOYVyvZsm"


def registry_installed() -> bool:
    return shutil.which("docker-registry") is not None


class Registry:
    """`address` is the prefix of its images."""

    def __init__(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._directory = directory
        directory.mkdir()
        (directory / "htpasswd").write_text(f"{USER}:{_BCRYPT}\n")
        (directory / "config.yml").write_text(f"""
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {directory}/images}}}}
http: {{addr: "{self.address}"}}
auth: {{htpasswd: {{realm: test, path: {directory}/htpasswd}}}}
""")

    @contextmanager
    def running(self) -> Iterator[None]:
        with (self._directory / "log").open("wb") as log:
            process = subprocess.Popen(
                ["docker-registry", "serve", str(self._directory / "config.yml")], stdout=log, stderr=log
            )
        try:
            end = time.monotonic() + 30
            while True:
                try:
                    httpx.get(f"http://{self.address}/v2/", verify=False)
                    break
                except httpx.TransportError:
                    assert time.monotonic() < end and process.poll() is None, (self._directory / "log").read_text()
                    time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait()

    def push(self, engine: DockerEngine, local: str, name: str) -> str:
        """Pushes an image to the registry and removes it from the engine. Returns its full name."""
        full = f"{self.address}/{name}"
        repository, _, tag = full.rpartition(":")
        with engine.client() as client:
            client.tag(local, repository, tag)
            login = {"username": USER, "password": PASSWORD}
            for line in client.push(repository, tag, stream=True, decode=True, auth_config=login):
                assert "error" not in line, line
            client.remove_image(full)
        return full
