"""A private PostgreSQL server: own directory, own port, the settings that the distribution ships.

    with postgres_server() as server:
        url = server.url(server.new_database())
        server.kill()   # as a power cut would: every process, at once
        server.start()  # crash recovery included

Commits are as durable as in production (`fsync` is on). As root the server runs as the user `postgres`, for PostgreSQL
refuses to run as root.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psutil

USER = "resolute"
PASSWORD = "a p@ss/word"
"""With characters that a URL has to escape."""

SYSTEM_USER = "postgres"
READY_S = 60.0


def find_programs() -> Path | None:
    """The directory of the newest server that is installed; Debian does not put it on the PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return newest[-1].parent if newest else None


class PostgresServer:
    """One server on `127.0.0.1:port`; its user is a superuser with a password."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """`directory` must be empty or missing; `settings` are the server's own (`max_connections`, ...)."""
        programs = find_programs()
        if programs is None:
            raise FileNotFoundError("no PostgreSQL server is installed: apt-get install postgresql")
        self.host = "127.0.0.1"
        self.user = USER
        self.password = PASSWORD
        self.templates: dict[str, str] = {}
        """Databases that tests have prepared to be copied, by what is in them."""
        self._programs = programs
        self._directory = directory
        self._data = directory / "data"
        self._settings = dict(settings or {})
        self._system_user = SYSTEM_USER if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._initialise()
        self.port = _a_free_port()

    def _initialise(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._system_user is not None:
            shutil.chown(self._directory, self._system_user)
        password = self._directory / "password"
        password.write_text(self.password)
        if self._system_user is not None:
            shutil.chown(password, self._system_user)
        self._run(
            "initdb",
            f"--pgdata={self._data}",
            f"--username={self.user}",
            f"--pwfile={password}",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        )
        password.unlink()

    @property
    def pid(self) -> int:
        """Of the server's first process; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    # -- life and death ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when it takes connections; after a kill that is when it has recovered."""
        settings = {
            "port": str(self.port),
            "listen_addresses": self.host,
            "unix_socket_directories": str(self._directory),
            **self._settings,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        end = time.monotonic() + READY_S
        self._launch(words)
        while not self.accepts_connections():
            if self._process is not None and self._process.poll() is not None:
                # One that died a moment ago may still be on its way out, and hold the port or the memory.
                if time.monotonic() > end:
                    raise AssertionError(f"PostgreSQL does not start: {self.log()[-3000:]}")
                time.sleep(0.2)
                self._launch(words)
            time.sleep(0.02)

    def _launch(self, words: Sequence[str]) -> None:
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=self._system_user,
                group=self._system_user and pwd.getpwnam(self._system_user).pw_gid,
                extra_groups=None if self._system_user is None else [],
            )

    def accepts_connections(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def stop(self) -> None:
        """In order: connections are ended, everything is written. Again is a no-op."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """Every process with -9 at once: what is not on the disk is lost. Again is a no-op."""
        if self._process is None:
            return
        processes: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(self._process.pid)
            server.suspend()  # so that it starts nothing while its children are counted
            processes = [*server.children(recursive=True), server]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(READY_S)
        self._process = None
        while not all(map(_ended, processes)):  # a living one would hold the data's shared memory
            time.sleep(0.005)

    def pause(self) -> None:
        """Connections stay open and nothing answers: a machine that hangs, a network that swallows packets."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def resume(self) -> None:
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        return [server, *server.children(recursive=True)]

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(READY_S)
        self._process = None

    def log(self) -> str:
        return (self._directory / "server.log").read_text(errors="replace")

    # -- databases ---------------------------------------------------------------------------------------------

    def new_database(self, template: str = "template1") -> str:
        """Its name; some 30 ms. `template` is a database that nobody is connected to."""
        name = f"resolute_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def execute(self, statement: str, database: str = "postgres") -> str:
        """As `psql` does, outside a transaction; what it printed, unaligned."""
        return self._run(
            "psql",
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            f"--host={self._directory}",
            f"--port={self.port}",
            f"--username={self.user}",
            "--set=ON_ERROR_STOP=1",
            f"--command={statement}",
            database,
        )

    def url(self, database: str) -> str:
        """With the password, as the store takes it."""
        return f"postgresql://{self.user}:{quote(self.password, safe='')}@{self.host}:{self.port}/{database}"

    def db_config(self, database: str) -> dict[str, object]:
        """The `db` part of a master's configuration."""
        return {
            "type": "postgres",
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "name": database,
        }

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            user=self._system_user,
            group=self._system_user and pwd.getpwnam(self._system_user).pw_gid,
            extra_groups=None if self._system_user is None else [],
        )
        if done.returncode != 0:
            raise AssertionError(f"{program} ended with {done.returncode}: {done.stderr}")
        return done.stdout.strip()


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def postgres_server(
    *, settings: Mapping[str, str] | None = None, parent: str | None = None
) -> Iterator[PostgresServer]:
    """A started server in a directory of its own, which is removed with it; under `parent`, or where temporary files are."""
    with tempfile.TemporaryDirectory(prefix="resolute-postgres-", dir=parent) as directory:
        server = PostgresServer(Path(directory), settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.kill()
