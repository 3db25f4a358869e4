"""A private Docker engine for tests, with images that are built locally without downloads.

    with docker_engine() as engine:
        engine.host            # unix://...
        engine.kill()          # kills the engine; with live-restore its containers keep running
        engine.start()

The base image is this interpreter, the libraries that it needs and a few programs of the host; the task image is built
on it with `docker build`, as a user's would be.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from docker import APIClient

from resolute_agent.runtimes.docker_watch import ask_engine

BASE, TASK, RELEASED = "resolute-test/base:1", "resolute-test/task:1", "resolute-test/released:1"
SMALL = "resolute-test/small:1"
"""A small image without an interpreter, for pushes and pulls."""
WITH_PIP, POSTGRES = "resolute-test/with-pip:1", "resolute-test/postgres:1"
READY_S = 60.0
PROGRAMS = """
    sh bash cat chmod cp date dd df echo env false head id ls mkdir mv readlink rm sed setsid sleep stat tail tee touch true
    wc sort kill
""".split()  # noqa: SIM905
FOLDERS = (
    "etc",
    "run",
    "tmp",
    "var",
    "var/tmp",
    "root",
    "usr",
    "usr/bin",
    "usr/lib",
    "usr/lib64",
    "dev",
    "proc",
    "sys",
)
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "nsswitch.conf": "hosts: files dns\n",
}
_SKIPPED = {"test", "idlelib", "turtledemo", "ensurepip", "lib2to3", "site-packages", "dist-packages", "tkinter"}


def engine_installed() -> bool:
    """Whether a private engine can be started, which needs root."""
    return shutil.which("dockerd") is not None and os.geteuid() == 0


class DockerEngine:
    """One engine with a private data directory, socket and containerd."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.directory = directory
        self.host = f"unix://{directory}/docker.sock"
        self._arguments = arguments
        self._containerd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._containerd is None:
            self._start_containerd()
        command = ["dockerd", "--data-root", str(self.directory / "data"), "--exec-root", str(self.directory / "exec")]
        command += ["--pidfile", str(self.directory / "pid"), "-H", self.host, "--live-restore", *self._arguments]
        command += ["--containerd", str(self.directory / "containerd.sock")]
        (self.directory / "pid").unlink(missing_ok=True)
        with (self.directory / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + READY_S
        while True:
            with suppress(OSError):
                if ask_engine(f"{self.directory}/docker.sock", "GET", "/_ping")[0] == 200:
                    return
            if time.monotonic() > end or self._process.poll() is not None:
                raise AssertionError(f"dockerd did not start: {self.log()[-3000:]}")
            time.sleep(0.05)

    def _start_containerd(self) -> None:
        """Starts containerd as a separate process, as packages do."""
        folders = ["--root", str(self.directory / "containerd"), "--state", str(self.directory / "containerd-state")]
        config = self.directory / "containerd.toml"
        config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        command = [
            "containerd",
            "--config",
            str(config),
            *folders,
            "--address",
            str(self.directory / "containerd.sock"),
        ]
        with (self.directory / "containerd.log").open("ab") as log:
            self._containerd = subprocess.Popen(command, stdout=log, stderr=log)

    @contextmanager
    def client(self) -> Iterator[APIClient]:
        client = APIClient(base_url=self.host, version="auto", timeout=120)
        try:
            yield client
        finally:
            client.close()

    def kill(self) -> None:
        """Kills the engine without its child processes, like a crash."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Restarts the engine, like an update of its package."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)
        self.start()

    def stop(self) -> None:
        """Ends containers, engine and containerd, in any state."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()
        with self.client() as client:
            for each in client.containers(all=True):
                client.remove_container(each["Id"], force=True)
        self._process.terminate()
        self._process.wait(30)
        assert self._containerd is not None
        self._containerd.terminate()
        self._containerd.wait(30)
        self._unmount()

    def _unmount(self) -> None:
        with open("/proc/self/mounts") as mounts:
            places = [line.split()[1] for line in mounts if f" {self.directory}/" in line]
        for place in sorted(places, reverse=True):
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)

    def log(self) -> str:
        return (self.directory / "dockerd.log").read_text(errors="replace")

    def containers(self, **labels: str) -> list[dict[str, Any]]:
        """All containers with these labels, in any state."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        with self.client() as client:
            listed: list[dict[str, Any]] = client.containers(all=True, filters={"label": wanted})
        return listed

    def build(self, tag: str, text: str, context: Iterable[tuple[Path, str]] = (), *, whole: bool = False) -> None:
        """`docker build` of a Dockerfile's text, with local files as its context: all of them, or without files that no task
        needs."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            info = tarfile.TarInfo("Dockerfile")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
            for path, name in context:
                tar.add(path, name, filter=None if whole else _wanted)
        archive.seek(0)
        with self.client() as client:
            for line in client.build(fileobj=archive, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True):
                if "error" in line:
                    raise AssertionError(f"docker build of {tag}: {line['error']}")

    def has(self, tag: str) -> bool:
        with self.client() as client:
            return bool(client.images(name=tag))


@contextmanager
def docker_engine(*arguments: str) -> Iterator[DockerEngine]:
    """An engine with the base and the task image. It is removed after the context."""
    directory = Path(tempfile.mkdtemp(prefix="resolute-docker-"))
    engine = DockerEngine(directory, *arguments)
    engine.start()
    try:
        import_base(engine)
        engine.build(TASK, f"FROM {BASE}\nENV MADE_BY=docker-build\nENV IMAGE_PATH_ENTRY=/usr/bin\n")
        yield engine
    finally:
        engine.stop()
        shutil.rmtree(directory, ignore_errors=True)


def import_base(engine: DockerEngine, image: str = BASE) -> None:
    """`docker import` of this machine's interpreter, libraries and programs; of a few programs only for `SMALL`."""
    archive = engine.directory / "base.tar"
    if image == BASE:
        _write_base(archive, PROGRAMS, python=True)
    else:
        _write_base(archive, ["sh", "cat", "sleep"], python=False)
    repository, tag = image.split(":")
    with engine.client() as client:
        client.import_image_from_file(str(archive), repository=repository, tag=tag, changes=["ENV LANG=C.UTF-8"])
    archive.unlink()


def build_released(engine: DockerEngine, site_packages: Path) -> None:
    """A task image with the released client and its dependencies in the image's own interpreter."""
    if not engine.has(RELEASED):
        text = f"FROM {BASE}\nCOPY site-packages {sysconfig.get_path('purelib', vars=INSIDE)}\n"
        engine.build(RELEASED, text, [(site_packages, "site-packages")])


def build_with_pip(engine: DockerEngine) -> None:
    """A base as the images of master and agent need one: with pip in the image's own interpreter."""
    if not engine.has(WITH_PIP):
        pip = Path(str(files("pip")))
        engine.build(
            WITH_PIP,
            f"FROM {BASE}\nCOPY pip {sysconfig.get_path('purelib', vars=INSIDE)}/pip\n",
            [(pip, "pip")],
            whole=True,
        )


def build_postgres(engine: DockerEngine, programs: Path) -> None:
    """A server from this machine's programs, in `programs`, that takes the variables of the official image."""
    if engine.has(POSTGRES):
        return
    shared = Path("/usr/share/postgresql") / programs.parent.name
    binaries = [programs / name for name in ("initdb", "postgres", "pg_isready", "psql", "pg_ctl")]
    modules = sorted((programs.parent / "lib").rglob("*.so"))
    linked = [Path(path) for path in _libraries([str(path) for path in (*binaries, *modules)])]
    context = [(Path(os.path.realpath(each)), f"root{_merged(str(each))}") for each in (*binaries, *modules, *linked)]
    context += [(shared, f"root{shared}")]
    text = f"""
        FROM {BASE}
        COPY root /
        RUN echo "postgres:x:999:999::/var/lib/postgresql:/bin/sh" >> /etc/passwd && echo "postgres:x:999:" >> /etc/group
        RUN python3 -c "import os; os.makedirs('/var/lib/postgresql/data'); os.chown('/var/lib/postgresql/data', 999, 999)"
        ENV PATH={programs}:/usr/bin PGDATA=/var/lib/postgresql/data
        USER 999:999
        VOLUME /var/lib/postgresql/data
        ENTRYPOINT ["sh", "-c", {json.dumps(POSTGRES_START)}]
    """
    engine.build(POSTGRES, textwrap.dedent(text), context, whole=True)


POSTGRES_START = """\
set -e
if [ ! -e $PGDATA/PG_VERSION ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb -U "$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --no-locale --encoding=UTF8 --no-sync
    echo "host all all all scram-sha-256" >> $PGDATA/pg_hba.conf
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp -c fsync=off
"""


INSIDE = {"base": sys.base_prefix, "platbase": sys.base_prefix}
"""Prefix of the image's interpreter: that of the local interpreter, outside of any environment."""

NOT_NEEDED = "pip setuptools google googleapiclient azure matplotlib fontTools PIL pillow.libs botocore boto3 tests"
"""Parts of the released client's environment that tasks do not import: two thirds of its size."""


def _wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(part in NOT_NEEDED.split() for part in info.name.split("/")) else info


def _write_base(archive: Path, names: list[str], *, python: bool) -> None:
    interpreter = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    binaries = [found for name in names if (found := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))]
    modules: list[str] = []
    if python:
        stdlib = Path(sysconfig.get_path("stdlib"))
        modules = [str(path) for path in sorted(stdlib.rglob("*")) if _of_image(path, stdlib)]
        binaries.append(interpreter)
    libraries = _libraries([*binaries, *(path for path in modules if path.endswith(".so"))])
    with tarfile.open(archive, "w") as tar:
        written = set(FOLDERS)
        for folder in FOLDERS:
            _add_folder(tar, folder)
        for link in ("bin", "lib", "lib64"):
            _add_link(tar, link, f"usr/{link}")
        for path in [*binaries, *libraries, *modules]:
            _add_file(tar, path, written)
        if python:
            _add_link(tar, "usr/bin/python3", interpreter)
        for name, text in ETC.items():
            info = tarfile.TarInfo(f"etc/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))


def _of_image(path: Path, stdlib: Path) -> bool:
    inside = path.relative_to(stdlib).parts
    return not _SKIPPED & set(inside) and not inside[0].startswith("config-") and path.is_file()


def _libraries(binaries: list[str]) -> list[str]:
    """Libraries that `ldd` lists, and those that are loaded by name."""
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    found = set(re.findall(r"(/\S+\.so\S*) \(0x", said))
    folder = next(Path(path).parent for path in found if "/libc.so" in path)
    for pattern in (
        "libpthread.so*",
        "libdl.so*",
        "librt.so*",
        "libutil.so*",
        "libgcc_s.so*",
        "libstdc++.so*",
        "libnss_*",
        "libresolv.so*",
    ):
        found |= {str(path) for path in folder.glob(pattern)}
    return sorted(found)


def _add_file(tar: tarfile.TarFile, path: str, written: set[str]) -> None:
    """A file under its own path with `/lib` and `/bin` read as `/usr/lib` and `/usr/bin`, its links resolved."""
    path = _merged(path)
    if path.strip("/") in written:
        return
    written.add(path.strip("/"))
    for parent in reversed(Path(path).parents):
        name = str(parent).strip("/")
        if name and name not in written:
            written.add(name)
            _add_folder(tar, name)
    info = tar.gettarinfo(os.path.realpath(path), path.strip("/"))
    info.uid = info.gid = 0
    with open(path, "rb") as file:
        tar.addfile(info, file)


def _merged(path: str) -> str:
    """With `/lib` and `/bin` read as `/usr/lib` and `/usr/bin`."""
    return f"/usr{path}" if path.startswith(("/lib/", "/lib64/", "/bin/", "/sbin/")) else path


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    info.mode = 0o1777 if name.endswith("tmp") else 0o755
    tar.addfile(info)


def _add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    info = tarfile.TarInfo(name)
    info.type = tarfile.SYMTYPE
    info.linkname = target
    tar.addfile(info)
