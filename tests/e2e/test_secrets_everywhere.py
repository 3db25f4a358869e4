"""A secret is seeded in every configuration of a running cluster, and looked for everywhere: it is where `docs/security.md` says.

Every answer of every GET call, what `det` prints, command lines and environments of processes, and every file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import psutil
import pytest
from hostile.calls import PARAMETER, Request, Victims
from hostile.cluster import OF_ALL_TASKS, HostileCluster, Person
from hostile.scene import USERS, Scene, make_scene
from hostile.sending import Secrets

from resolute.config.secret_names import BUILT_IN_PATTERNS
from resolute_master.api.app import ALL_ROUTES
from support.det import Det
from support.live import PASSWORD
from support.seeded_secrets import WORD, SecretSeeder

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "security.md"
JOIN_TOKEN = "/api/v1/agent-join-token"
WAITS = {
    "/api/v1/allocations/{allocationId}/signals/preemption": "?timeoutSeconds=0",
    "/api/v1/trials/metrics/trial_metrics": "?trialIds={trialId}&group=validation",
    "/api/v1/trials/metrics/training_metrics": "?trialIds={trialId}",
    "/api/v1/trials/metrics/validation_metrics": "?trialIds={trialId}",
    "/experiments/{experimentId}/preview_gc": "?save_experiment_best=0&save_trial_best=1&save_trial_latest=1",
}
PLACES = {
    "master.yaml": r"the password of a user|join token of the cluster|(observability|webhooks|telemetry)\..*|.* of all tasks",
    "resolute.db*": r".* of (over|running|paused|outside|template|all tasks)",
    "join-token": r"join token of the cluster",
    "seal.key": r"the sealing key",
    "agent-state.json": r"the credential of an agent",
    "containers/*/launch.json": r".* of (running|all tasks)|the token of a .*task",
    "containers/*/run/info/*.json": r".* of (running|all tasks)|the token of a .*task",
}
"""Files that this cluster has: the pattern in the document, and the seeded secrets that they may contain."""


@dataclass(frozen=True, slots=True)
class World:
    cluster: HostileCluster
    scene: Scene
    secrets: Secrets


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cluster = HostileCluster(tmp_path_factory.mktemp("secrets") / "cluster", SecretSeeder())
    try:
        cluster.start()
        scene = make_scene(cluster, no_attack)
        yield World(cluster, scene, Secrets(scene.secrets | credentials(cluster)))
        scene.administrator.close()
    finally:
        cluster.stop()


def no_attack(_: Victims) -> list[Request]:
    return []


def credentials(cluster: HostileCluster) -> dict[str, str]:
    """What the agents' own files prove them with: it must be nowhere else."""
    files = cluster.pool_root.glob("instances/*/state/agent-state.json")
    found = {text for file in files for text in re.findall(r'"credential": ?"(\w{32,})"', file.read_text())}
    assert found
    return dict.fromkeys(found, "the credential of an agent")


# ------------------------------------------------------------------------------------------------------- the document


def rows() -> list[str]:
    text = DOCUMENT.read_text().split("### The places", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| (.+?) \| .* \|$", text, re.MULTILINE)


def test_the_document_names_each_place() -> None:
    named = {name for row in rows() if row.startswith("file ") for name in re.findall(r"`([^`]+)`", row)}
    assert PLACES.keys() <= named
    assert named - PLACES.keys() == {"agent.yaml", "initial-password", "pools/*/instances/*/agent.json"}
    text = DOCUMENT.read_text()
    assert [pattern for pattern in BUILT_IN_PATTERNS if f"`{pattern}`" not in text] == []


# ------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("name", ["admin", *USERS[:3]])
def test_no_answer_of_a_call_has_a_secret(world: World, name: str) -> None:
    person = Person(world.cluster, name)
    served = 0
    for path in addresses(world.scene):
        answer = person.read(path)
        served += answer.status_code == 200
        shown = world.secrets.shown_in(answer.content + str(answer.headers).encode())
        expected = ("join token of the cluster",) if (name, path) == ("admin", JOIN_TOKEN) else ()
        assert shown == expected, (path, answer.text[:2000])
        assert WORD not in answer.text or expected
    person.close()
    assert served > 100, "most were refused: this test has seen nothing"


def addresses(scene: Scene) -> list[str]:
    """Addresses of every GET call, with every experiment, trial and so forth; each call has at least one."""
    found = []
    parts = scene.victims.parts
    for path in sorted({route.path for route in ALL_ROUTES if route.method == "GET"}):
        asked = path + WAITS.get(path, "")
        names = PARAMETER.findall(asked)
        for values in product(*(parts.get(name, ("1",))[:4] for name in names)):
            given = iter(values)
            found.append(PARAMETER.sub(lambda _, given=given: next(given), asked))
    return found


def test_what_det_prints_has_no_secret(world: World, tmp_path: Path) -> None:
    scene, parts = world.scene, world.scene.victims.parts
    det = Det(tmp_path / "home", world.cluster.url)
    det("user", "login", "admin", variables={"DET_PASS": PASSWORD})
    commands = [
        *(["experiment", verb, str(id_)] for verb in ("describe", "config") for id_ in (scene.over, scene.running)),
        ["experiment", "describe", str(scene.over), "--json"],
        ["experiment", "logs", str(scene.running)],
        ["experiment", "list", "--json"],
        ["trial", "describe", parts["trialId"][0]],
        ["checkpoint", "describe", parts["uuid"][0]],
        ["job", "list"],
        ["job", "explain", parts["jobId"][0]],
        ["job", "snapshot", "-p", "default"],
        ["agent", "list", "--json"],
        ["instance", "list", "--json"],
        ["decisions"],
        ["master", "config", "show"],
        ["master", "logs"],
        ["pool", "offers", "default"],
        ["pool", "advise", "default"],
    ]
    printed = {" ".join(command): det.run(*command) for command in commands}
    assert {name: run.stderr for name, run in printed.items() if run.returncode} == {}
    shown = {name: world.secrets.shown_in((run.stdout + run.stderr).encode()) for name, run in printed.items()}
    assert {name: found for name, found in shown.items() if found} == {}


# ----------------------------------------------------------------------------------------------------------- processes


def test_no_command_line_has_a_secret_and_environments_of_tasks_alone_have_theirs(world: World) -> None:
    tasks = {each.pid for each in world.cluster.tasks()}
    assert tasks
    lines, environments = {}, {}
    own = [world.cluster.pid, *(process.pid for process in world.cluster._of_cluster())]
    for pid in own:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        lines[pid] = world.secrets.shown_in(line)
        environments[pid] = world.secrets.shown_in(environment)
    assert {pid: found for pid, found in lines.items() if found} == {}
    holders = {pid for pid, found in environments.items() if found}
    assert tasks <= holders
    programs = {" ".join(psutil.Process(pid).cmdline()) for pid in holders - tasks}
    machines = ("-m resolute_agent ", "-m resolute_agent.machine", "-m resolute_master")
    assert not [line for line in programs if any(each in f"{line} " for each in machines)]
    for pid in tasks:
        assert not [where for where in environments[pid] if not re.fullmatch(PLACES["containers/*/launch.json"], where)]


# --------------------------------------------------------------------------------------------------------------- files


def test_files_have_the_secrets_that_the_document_names_and_are_for_their_own_user_alone(world: World) -> None:
    met, wrong = set(), []
    for file in sorted(world.cluster.directory.rglob("*")):
        if not file.is_file() or file.is_symlink():
            continue
        shown = world.secrets.shown_in(file.read_bytes())
        if not shown:
            continue
        place = place_of(file)
        met.add(place)
        unexpected = [where for where in shown if place is None or not re.fullmatch(PLACES[place], where)]
        if unexpected:
            wrong.append(f"{file} ({place}): {unexpected}")
        if file.stat().st_mode & 0o077 and place != "master.yaml":
            wrong.append(f"{file} has mode {oct(file.stat().st_mode)}")
    assert wrong == []
    assert met == set(PLACES), "a place of the document has no secret in this cluster"


def place_of(file: Path) -> str | None:
    return next((place for place in PLACES if fnmatch(str(file), f"*/{place}")), None)


def test_every_sort_of_secret_was_seeded(world: World) -> None:
    """What is looked for is in the cluster: else the tests above see nothing."""
    sorts = "\n".join(world.scene.secrets.values())
    for sort in ("data.secrets", "registry_auth", OF_ALL_TASKS, "of the operator", "password of an address", "sealing"):
        assert sort in sorts
    database = b"".join(file.read_bytes() for file in (world.cluster.directory / "state").glob("resolute.db*"))
    stored = world.secrets.shown_in(database)
    for name in ("over", "running", "paused", "outside", "template"):
        assert any(where.endswith(f" of {name}") for where in stored)
