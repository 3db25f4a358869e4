"""System parts that tests need: listed when missing, a failure when `RESOLUTE_TEST_REQUIRE=all`.

`@pytest.mark.needs("namespaces")` says that a test cannot run without that part of the machine. A test whose
part is missing is not run and is named at the end together with what to install, so that nothing is skipped silently.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from support.booted_machines import can_boot
from support.docker import DockerEngine, docker_engine, engine_installed
from support.docker_registry import registry_installed
from support.effort import NIGHT, examples
from support.new_db import NewDb
from support.object_stores import azurite
from support.postgres import PostgresServer, find_programs, in_memory, postgres_server
from support.systemd import systemd_runs
from support.terraform import terraform_runs

# The same examples each time: a test that fails fails for what was changed. `make search` draws others. No example fails for
# the time that it takes, which a busy machine decides.
TIMELESS: Any = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("settled", derandomize=True, max_examples=examples(100), **TIMELESS)
hypothesis.settings.register_profile("search", derandomize=False, print_blob=True, **TIMELESS)
hypothesis.settings.load_profile("settled")

COMPAT_PYTHON = Path(__file__).resolve().parent.parent / ".venv-compat" / "bin" / "python"


def _namespaces() -> bool:
    command = (
        ["unshare", "--mount", "true"]
        if os.geteuid() == 0
        else ["unshare", "--user", "--map-root-user", "--mount", "true"]
    )
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


PARTS: dict[str, tuple[Callable[[], bool], str]] = {
    "namespaces": (_namespaces, "a kernel that allows mount namespaces (root, or user namespaces)"),
    "root": (lambda: os.geteuid() == 0, "run as root"),
    "machines": (can_boot, "apt-get install iproute2 (and run as root, where network namespaces are allowed)"),
    "systemd": (systemd_runs, "apt-get install systemd (and run as root, where control groups can be mounted)"),
    "torch": (lambda: importlib.util.find_spec("torch") is not None, "pip install 'resolute-ml[torch]'"),
    "docker": (engine_installed, "apt-get install docker.io (and run as root)"),
    "docker-registry": (registry_installed, "apt-get install docker-registry"),
    "compose": (lambda: shutil.which("docker-compose") is not None, "apt-get install docker-compose"),
    "promtool": (lambda: shutil.which("promtool") is not None, "apt-get install prometheus"),
    "postgres": (lambda: find_programs() is not None, "apt-get install postgresql"),
    "azurite": (lambda: azurite() is not None, "npm install --no-save --prefix . azurite@3 (needs node)"),
    "chromium": (lambda: shutil.which("chromium") is not None, "apt-get install chromium"),
    "terraform program": (lambda: shutil.which("terraform") is not None, "install terraform"),
    "terraform": (
        terraform_runs,
        "install terraform, and mirror the AWS provider: RESOLUTE_TERRAFORM_MIRROR names the directory",
    ),
    "determined": (COMPAT_PYTHON.exists, "make .venv-compat (installs the released client determined==0.38.1)"),
}


@cache
def part_present(part: str) -> bool:
    return PARTS[part][0]()


ONE_AFTER_THE_OTHER = {
    "tests/compat/": "the released client",
    "tests/integration/docker/": "containers",
    "tests/e2e/test_docker_cluster.py": "containers",
}
"""What shares something dear, by its name, so that one worker runs all of it."""

LONGEST_FIRST = (
    *ONE_AFTER_THE_OTHER,
    "tests/conformance/test_runtime_contract.py",
    "tests/e2e/",
    "tests/simulation/",
    "tests/integration/",
    "tests/conformance/",
    "tests/properties/",
)


def _turn(item: pytest.Item) -> int:
    places = (n for n, part in enumerate(LONGEST_FIRST) if item.nodeid.startswith(part))
    return next(places, len(LONGEST_FIRST))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not NIGHT:
        left_out = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    if hasattr(config, "workerinput"):  # one of several workers: the last ones to run must be short
        items.sort(key=_turn)
    for item in items:
        for mark in item.iter_markers("needs"):
            for part in mark.args:
                if not part_present(part):
                    item.user_properties.append((_MISSING, part))  # this way it reaches who collects the reports
                    item.add_marker(pytest.mark.skip(reason=f"needs {part}"))


_MISSING = "missing part"


def _not_run(config: pytest.Config) -> dict[str, list[str]]:
    """The tests that were left out, by the part that they need. Empty in a worker, which reports to another process."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    missing: dict[str, list[str]] = defaultdict(list)
    for report in reporter.stats.get("skipped", []) if reporter is not None else ():
        for name, part in report.user_properties:
            if name == _MISSING:
                missing[str(part)].append(report.nodeid)
    return missing


@pytest.hookimpl(wrapper=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> Iterator[None]:
    yield
    for part, names in sorted(_not_run(config).items()):
        terminalreporter.section(f"not run: {len(names)} tests need '{part}' ({PARTS[part][1]})")
        for name in sorted(names):
            terminalreporter.write_line(f"  {name}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if os.environ.get("RESOLUTE_TEST_REQUIRE") == "all" and exitstatus == 0 and _not_run(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives until the end: no collection of garbage looks at it, neither now nor in a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The session's PostgreSQL server. A test takes a database of its own from it and neither stops nor kills it.

    So nothing has to survive a power cut, and its files are in memory: a database is 300 new files, and a disk takes more processor
    time to create them than a test takes. `postgres_server()` gives a durable server.
    """
    with postgres_server(settings={"fsync": "off", "full_page_writes": "off"}, parent=in_memory()) as server:
        yield server


@pytest.fixture(scope="session")
def docker() -> Iterator[DockerEngine]:
    """An own container engine with the test images; ended with the test run."""
    with docker_engine() as engine:
        yield engine


@pytest.fixture(scope="module")
def new_db() -> NewDb:
    """Where a live cluster keeps its state, a new place each time: `live_cluster(directory, **new_db())`. On SQLite."""
    return dict


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
def every_new_db(request: pytest.FixtureRequest) -> NewDb:
    """The same on each database, for what a database may lose or delay: kills, restarts, moves and restored backups."""
    if request.param == "sqlite":
        return dict
    server: PostgresServer = request.getfixturevalue("postgres")
    return lambda: {"db": server.db_config(server.new_database())}


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # it comes without types
    """A file is a worker's, and so is all of what shares something dear: an engine, a cluster, evidence that is summed up."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        shared = (name for place, name in ONE_AFTER_THE_OTHER.items() if file.startswith(place))
        return next(shared, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)
