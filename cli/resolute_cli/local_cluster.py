"""An elastic cluster on this machine: a master process, and machines that it starts as processes.

Tasks are processes too, or with `docker` containers of this machine's engine.

Everything of a cluster is in one directory:

    cluster.json    name, address, and which process is the master
    settings.json   the flags that it was started with the last time
    master.yaml     configuration of the master
    join-token      by which agents join, written by the master
    master.log      what the master says
    resolute.db     its state; `pools/` its machines, `agents/` those of `agent-up`, `checkpoints/` the storage
    tls/ca.pem      with TLS: what clients trust

The master is reached as a program only (`python -m resolute_master`), and so is the cloud of local machines.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from resolute import private_files
from resolute.client.authentication import login
from resolute.client.cluster import Cluster
from resolute.client.errors import MasterUnreachable
from resolute.client.session import NO_RETRY, Session
from resolute.errors import (
    FailedPrecondition,
    InvalidInput,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from resolute_cli import processes
from resolute_cli.local_agent import AGENTS, end_agents
from resolute_cli.local_plan import DATABASE, SQLITE, ClusterPlan, master_configuration, settings_of
from resolute_cli.passwords import new_password
from resolute_cli.private_text import write_private
from resolute_cli.processes import Identity

NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,62}")
INSTANCE_VARIABLE = "RESOLUTE_INSTANCE"
"""Every process of a local machine has its instance's id in this variable."""

SETTINGS = "settings.json"

INITIALISED = "initialised"
"""A file that marks that the database has its first users: from then on their passwords are no setting any more."""

START_LIMIT_S = 100.0
STOP_GRACE_S = 30.0
MACHINES_GRACE_S = 90.0

Pause = Callable[[float], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCluster:
    """A cluster that was started; kept in `cluster.json`."""

    name: str
    url: str
    master: Identity
    directory: Path
    cert_file: str = ""
    """What its callers trust, where it serves TLS."""
    new_password: str | None = field(default=None, compare=False)

    @property
    def lives(self) -> bool:
        return processes.lives(self.master)


def default_directory(name: str, environ: Mapping[str, str]) -> Path:
    """Where a cluster of this name is kept unless another directory is named."""
    base = environ.get("XDG_DATA_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "share")
    return Path(base, "resolute", name)


# ------------------------------------------------------------------------------------------------------------- starting


def cluster_up(
    plan: ClusterPlan,
    *,
    tick: Callable[[], object] = lambda: None,
    pause: Pause = time.sleep,
    warn: Callable[[str], object] = lambda _: None,
) -> RunningCluster:
    """Starts the cluster and waits until its master answers; a cluster that runs already is left as it is.

    `tick` is called while waiting, `warn` is called for files that were open to other users. Raises `InvalidInput` for a port or
    directory that cannot be used and `FailedPrecondition` when the master does not come up; what was started is ended again then.
    """
    if not NAME.fullmatch(plan.name):
        raise InvalidInput(f"--cluster-name {plan.name!r}: use letters, digits, - and _, beginning with a letter")
    _check_installed()
    with _locked(plan.directory):
        for sentence in private_files.mend(
            directories=[plan.directory], files=private_files.state_files(plan.directory)
        ):
            warn(sentence)
        running = read_cluster(plan.directory)
        if running is not None and running.lives:
            return running
        _check_database(plan)
        _check_port(plan.host, plan.port)
        if plan.docker:
            _check_engine(plan)
        fresh = not (plan.directory / INITIALISED).exists()
        # A first start that failed may have stored its password already: the next one must mean the same.
        password = (plan.password or _password_of_last_attempt(plan) or new_password()) if fresh else None
        config = _write_configuration(plan, password)
        started = _start_master(plan, config)
        try:
            _wait_for_master(plan, started, tick, pause)
        except BaseException:
            processes.end(started.master, grace_s=STOP_GRACE_S)
            (plan.directory / "cluster.json").unlink(missing_ok=True)
            raise
        (plan.directory / INITIALISED).touch(mode=0o600)
        write_private(plan.directory / SETTINGS, json.dumps(settings_of(plan), indent=2) + "\n")
    generated = password if fresh and plan.password is None and plan.own_config is None else None
    if generated is not None and plan.database and not _opens(started, generated):
        warn("The database already has users; their passwords are unchanged.")
        generated = None
    return RunningCluster(
        name=started.name,
        url=started.url,
        master=started.master,
        directory=plan.directory,
        cert_file=started.cert_file,
        new_password=generated,
    )


def _check_database(plan: ClusterPlan) -> None:
    """A cluster with state must not start with an empty one because a flag was left out."""
    before = read_settings(plan.directory).get(DATABASE)
    now = settings_of(plan)[DATABASE]
    if before is not None and before != now and plan.own_config is None:
        remedy = "leave out --db-url" if before == SQLITE else f"give --db-url {before}"
        raise InvalidInput(
            f"cluster '{plan.name}' keeps its state in {before}; this command would create an empty one in {now}; {remedy}, "
            "or use another --cluster-name"
        )


def _opens(started: RunningCluster, password: str) -> bool:
    with Session(started.url, retry=NO_RETRY, verify=started.cert_file or True) as session:
        try:
            login(session, "determined", password)
        except (PermissionDenied, Unauthenticated):
            return False
    return True


def _password_of_last_attempt(plan: ClusterPlan) -> str | None:
    import yaml

    try:
        config = yaml.safe_load((plan.directory / "master.yaml").read_text(encoding="utf-8"))
        password = config["security"]["initial_user_password"]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return None
    return str(password)


def _check_installed() -> None:
    for module in ("aiohttp", "sqlalchemy", "alembic", "jwt", "psutil"):
        if importlib.util.find_spec(module) is None:
            raise InvalidInput(
                f"the parts of a cluster are not installed here ({module} is missing); "
                "run pip install 'resolute-ml[cli,master,agent]'"
            )


def _check_engine(plan: ClusterPlan) -> None:
    """An engine must answer and have the image, pulled now if need be: no task would ever start otherwise."""
    command = [sys.executable, "-m", "resolute_agent.runtimes.docker_check", plan.docker_host, plan.image]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode != 0:
        raise FailedPrecondition(
            f"--docker: {answer.stdout.strip()}\n(name an image with --image, or build one: see docs/docker.md)"
        )


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InvalidInput(
                    f"port {port} is in use; choose another one with --master-port, or end the program that listens there"
                ) from None
            raise InvalidInput(f"cannot listen on {host} port {port}: {error.strerror}") from None


def _write_configuration(plan: ClusterPlan, password: str | None) -> Path:
    import yaml

    if plan.own_config is not None:
        if not plan.own_config.is_file():
            raise InvalidInput(f"--master-config-path: there is no file {str(plan.own_config)!r}")
        return plan.own_config.resolve()
    try:
        (plan.storage or plan.directory / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cannot create the checkpoint storage: {error}; name another with --storage-host-path"
        ) from None
    path = plan.directory / "master.yaml"
    write_private(path, yaml.safe_dump(master_configuration(plan, password), sort_keys=False))
    return path


def _start_master(plan: ClusterPlan, config: Path) -> RunningCluster:
    command = [*plan.program, "--config-file", str(config)]
    if plan.own_config is not None:
        where = {"host": plan.host, "port": str(plan.port), "cluster-state-dir": str(plan.directory)}
        command += [word for key, value in where.items() for word in (f"--{key}", value)]
    log = plan.directory / "master.log"
    starter = [sys.executable, "-m", "resolute_cli.detach", str(log), str(plan.directory), *command]
    # Variables of a user's client (DET_MASTER and the like) are no settings of a master.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    answer = subprocess.run(starter, env=environ, capture_output=True, text=True, check=False)
    identity = processes.identify(int(answer.stdout)) if answer.returncode == 0 else None
    if identity is None:
        raise FailedPrecondition(f"the master did not start: {answer.stderr.strip() or _last_words(plan.directory)}")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(plan.host, plan.host)
    host = f"[{host}]" if ":" in host else host
    running = RunningCluster(
        name=plan.name,
        url=f"{'https' if plan.tls else 'http'}://{host}:{plan.port}",
        master=identity,
        directory=plan.directory,
        cert_file=str(plan.directory / "tls" / "ca.pem") if plan.tls else "",
    )
    record = {
        "name": running.name,
        "url": running.url,
        "master": asdict(identity),
        **({"cert_file": running.cert_file} if plan.tls else {}),
    }
    write_private(plan.directory / "cluster.json", json.dumps(record, indent=2) + "\n")
    return running


def _wait_for_master(plan: ClusterPlan, started: RunningCluster, tick: Callable[[], object], pause: Pause) -> None:
    waited, look_s = 0.0, 0.2
    while True:
        if _answers(started):
            return
        if not started.lives:
            raise FailedPrecondition(f"the master ended during its start; its output:\n{_last_words(plan.directory)}")
        if waited >= START_LIMIT_S:
            raise FailedPrecondition(
                f"the master does not answer at {started.url}; see {plan.directory / 'master.log'}"
            )
        tick()
        pause(look_s)
        waited += look_s


def _answers(started: RunningCluster) -> bool:
    if started.cert_file and not Path(started.cert_file).exists():
        return False  # the master makes it
    with Session(started.url, retry=NO_RETRY, verify=started.cert_file or True) as session:
        try:
            session.request("GET", "health")
            Cluster(session).info()
        except (MasterUnreachable, Unavailable):
            return False
    return True


def _last_words(directory: Path, lines: int = 15) -> str:
    try:
        text = (directory / "master.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(it left no log)"
    return "\n".join(text.splitlines()[-lines:])


# ------------------------------------------------------------------------------------------------------------- stopping


def cluster_down(directory: Path, *, delete_state: bool = False, agents: bool = True) -> bool:
    """Ends the master, its machines, and unless `agents` is false the agents that were started here. False when nothing ran.

    Raises `FailedPrecondition` when a machine will not end. `delete_state` removes the database and the machines'
    directories as well; checkpoints stay, and a PostgreSQL database is refused with what to do.
    """
    if not directory.is_dir():
        raise NotFound("cluster directory", directory)
    with _locked(directory):
        database = read_settings(directory).get(DATABASE, SQLITE)
        if delete_state and database != SQLITE:
            raise InvalidInput(
                f"--delete-db: this cluster keeps its state in {database}, which others may use as well; leave out the flag, "
                f"and run `dropdb` for that database and `rm -r {directory}` when the cluster is down"
            )
        running = read_cluster(directory)
        found = running is not None and running.lives
        if running is not None:
            processes.end(running.master, grace_s=STOP_GRACE_S)
        found = _end_machines(directory) or found
        if agents:
            found = bool(end_agents(directory)) or found
        (directory / "cluster.json").unlink(missing_ok=True)
        if delete_state:
            _delete_state(directory, keep=() if agents else (AGENTS,))
    return found


def _end_machines(directory: Path) -> bool:
    """Orders the end of all local machines, then waits for the rest. True if there were any."""
    roots = sorted(path.parent for path in directory.glob("pools/*/instances") if path.is_dir())
    ids = [path.name for root in roots for path in (root / "instances").iterdir()]
    found = bool(processes.with_variable(INSTANCE_VARIABLE, ids, directory=directory))
    complaints = []
    for root in roots:
        command = [sys.executable, "-m", "resolute_provisioner.clouds.local", "stop-all", str(root)]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MACHINES_GRACE_S)
            if answer.returncode != 0:
                complaints.append(answer.stderr.strip())
        except subprocess.TimeoutExpired:
            complaints.append(f"the machines of {root} did not end within {MACHINES_GRACE_S:.0f} s")
    left = processes.with_variable(INSTANCE_VARIABLE, ids, directory=directory)
    for _ in range(50):
        if not left:
            return found
        processes.kill_all(left)
        time.sleep(0.1)
        left = processes.with_variable(INSTANCE_VARIABLE, ids, directory=directory)
    pids = ", ".join(str(one.pid) for one in left)
    raise FailedPrecondition(f"these processes of the cluster do not end: {pids} ({'; '.join(complaints)})")


def _delete_state(directory: Path, keep: Sequence[str]) -> None:
    for path in sorted(directory.iterdir()):
        if path.name in ("checkpoints", "deploy.lock", *keep):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


# ---------------------------------------------------------------------------------------------------------------- state


def read_cluster(directory: Path) -> RunningCluster | None:
    """The contents of `cluster.json`; None when there is no cluster here, or its file cannot be understood."""
    try:
        record = json.loads((directory / "cluster.json").read_text(encoding="utf-8"))
        master = Identity(**record["master"])
        return RunningCluster(
            name=record["name"],
            url=record["url"],
            master=master,
            directory=directory,
            cert_file=str(record.get("cert_file", "")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_settings(directory: Path) -> dict[str, Any]:
    """The flags of the last start, as `settings_of` has them; empty where there was none."""
    try:
        read = json.loads((directory / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def follow_log(directory: Path, *, follow: bool, pause: Pause = time.sleep) -> Iterator[str]:
    """The master's log, and with `follow` what is added to it, until the master has ended."""
    path = directory / "master.log"
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise NotFound("log of a cluster", path) from None
    with file:
        while True:
            running = read_cluster(directory)
            ended = running is None or not running.lives
            while text := file.read(64 * 1024):
                yield text
            if ended or not follow:
                return
            pause(0.3)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One command at a time may change a cluster."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.fdopen(os.open(directory / "deploy.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w")
    except OSError as error:
        raise InvalidInput(
            f"cannot use the directory {str(directory)!r}: {error.strerror}; name another with --dir"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
