"""A private PostgreSQL server with its own directory and port, and with the distribution's settings.

    with postgres_server() as server:
        url = server.url(server.new_database())
        server.kill()   # like a power failure: every process at once
        server.start()  # includes crash recovery

Commits are durable as in production (`fsync` is on). Under root the server runs as the user `postgres`, because PostgreSQL refuses
to run as root.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from support.ports import free_port

USER = "resolute"
PASSWORD = "a p@ss/word"
"""A password with characters that a URL must escape."""

SYSTEM_USER = "postgres"
READY_S = 60.0

ROOM_BYTES = 4 * 1024**3
"""For the servers of all workers."""


def find_programs() -> Path | None:
    """The directory of the newest installed server, which Debian does not add to the PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    newest = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return newest[-1].parent if newest else None


class PostgresServer:
    """One server on `127.0.0.1:port`; its user is a superuser with a password."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """`directory` must be empty or missing; `settings` are those of the server (`max_connections`, ...)."""
        programs = find_programs()
        if programs is None:
            raise FileNotFoundError("no PostgreSQL server is installed: apt-get install postgresql")
        self.host = "127.0.0.1"
        self.user = USER
        self.password = PASSWORD
        self.templates: dict[str, str] = {}
        """Template databases of tests, by content."""
        self._programs = programs
        self._directory = directory
        self._data = directory / "data"
        self._settings = dict(settings or {})
        self._system_user = SYSTEM_USER if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._initialise()
        self.port = free_port()

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
        """Pid of the server's first process; 0 if there is none."""
        return self._process.pid if self._process is not None else 0

    # -- start and stop ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the server, and returns when it accepts connections, after a kill when it has recovered."""
        settings = {
            "port": str(self.port),
            "listen_addresses": self.host,
            "unix_socket_directories": str(self._directory),
            "dynamic_shared_memory_type": "mmap",  # in the directory: a killed server leaves shared memory of the system for ever
            **self._settings,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        end = time.monotonic() + READY_S
        self._launch(words)
        while not self.accepts_connections():
            if self._process is not None and self._process.poll() is not None:
                # A server that was just killed may still hold the port or the shared memory.
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
        """Stops the server cleanly: it closes connections and writes everything. A repeated call does nothing."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills every process with SIGKILL: data that is not on the disk is lost. A repeated call does nothing."""
        if self._process is None:
            return
        processes: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            server = psutil.Process(self._process.pid)
            server.suspend()  # So that it starts no process meanwhile.
            processes = [*server.children(recursive=True), server]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(READY_S)
        self._process = None
        while not all(map(_ended, processes)):  # A live process would hold the shared memory of the data.
            time.sleep(0.005)

    def pause(self) -> None:
        """Freezes the server: connections stay open without answers, as with a hanging machine or a network that drops packets."""
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
        """Creates a database in about 30 ms, and returns its name. `template` is a database without connections."""
        name = f"resolute_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def execute(self, statement: str, database: str = "postgres") -> str:
        """Runs SQL with `psql`, outside a transaction. Returns its unaligned output."""
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
        """The URL with the password, in the format of the store."""
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


def in_memory() -> str | None:
    """A file system in memory with room for the databases of many tests. None where there is none; that of a container is small."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > ROOM_BYTES else None


@contextmanager
def postgres_server(
    *, settings: Mapping[str, str] | None = None, parent: str | None = None
) -> Iterator[PostgresServer]:
    """A started server in a new directory below `parent` or the directory for temporary files; both are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="resolute-postgres-", dir=parent) as directory:
        server = PostgresServer(Path(directory), settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.kill()
