"""The state that the attackers may not change, read over REST as an administrator.

Numbers that running tasks change are excluded; `progress` checks separately that the experiment continued.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hostile.calls import PARAMETER
from hostile.cluster import Person
from hostile.scene import USERS, Scene
from resolute_master.api.app import ROUTES

CHANGES = frozenset(
    {
        "at",
        "computedAt",
        "cycle",
        "duration",
        "jobSummary",
        "lastAuthAt",
        "lastExperimentStartedAt",
        "now",
        "numActiveExperiments",
        "numExperiments",
        "numProjects",
        "numRuns",
        "pagination",
        "projectNumRuns",
    }
)
"""Keys that change with time, or with objects that every user may create."""

BUSY = frozenset({"containers", "slots", "slotStats"})
"""Keys of a busy agent that change."""

LEFT_OUT = frozenset(
    {
        "/api/v1/allocations/{allocationId}/signals/preemption",  # waits
        "/checkpoints/{uuid}",  # An archive with the time of its creation: the files are compared instead.
        "/api/v1/allocations/{allocationId}/resources/{resourcesId}/rendezvous",
    }
)
QUERIES = {
    "/api/v1/trials/metrics/trial_metrics": "?trialIds={trialId}&group=training",
    "/api/v1/trials/metrics/training_metrics": "?trialIds={trialId}",
    "/api/v1/trials/metrics/validation_metrics": "?trialIds={trialId}",
}
OF_ALL = ("/api/v1/master/config", "/api/v1/agent-join-token", "/api/v1/users", "/api/v1/templates")
PROJECTS = "/projects"
"""Path suffixes of lists to which every user may add."""

NAMED = frozenset({*USERS, "admin", "determined", "alice-s", "p"})
"""The earlier items of lists to which items may be added."""


def reads(parts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The paths that a route reads for the objects with these names."""
    for route in ROUTES:
        names = PARAMETER.findall(route.path)
        if route.method != "GET" or not names or route.path in LEFT_OUT:
            continue
        known = [parts.get(name, ()) for name in names]
        for number in range(max(map(len, known)) if all(known) else 0):
            values = dict(zip(names, (each[number % len(each)] for each in known), strict=True))
            yield PARAMETER.sub(lambda match, values=values: values[match[1]], route.path)  # type: ignore[misc]


def statuses(scene: Scene) -> Iterator[tuple[str, int]]:
    """The paths of every list, and of every read of objects with the attackers' extreme values."""
    own = [{name: (value,) for name, value in each.items()} for each in (scene.victims.own, scene.victims.own_task)]
    lists = [route.path for route in ROUTES if route.method == "GET" and "{" not in route.path]
    for path in sorted({*lists, *(path for parts in own for path in reads(parts))}):
        yield path, scene.administrator.read(path + QUERIES.get(path, "").format(**scene.victims.own)).status_code


def shown(scene: Scene, storage: Path) -> dict[str, str]:
    """By path the response to an administrator, and the digests of checkpoint files, as text for a comparison."""
    files = [path for uuid in scene.still["uuid"] for path in sorted((storage / uuid).rglob("*")) if path.is_file()]
    kept = {str(path.relative_to(storage)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return kept | {path: _read(scene.administrator, path) for path in sorted({*reads(scene.still), *OF_ALL})}


def digest(texts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def _read(administrator: Person, path: str) -> str:
    answer = administrator.read(path)
    if "json" not in answer.headers.get("content-type", ""):
        return f"{answer.status_code} {hashlib.sha256(answer.content).hexdigest()}"
    lines = [json.loads(line) for line in answer.text.splitlines() if line.strip()]
    return f"{answer.status_code} {json.dumps([_settled(line, path) for line in lines], sort_keys=True)}"


def _settled(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        left_out = CHANGES | BUSY if path.startswith("/api/v1/agents") else CHANGES
        return {key: _settled(inner, path) for key, inner in value.items() if key not in left_out}
    if isinstance(value, list):
        grows = path in OF_ALL or path.endswith(PROJECTS)
        return [_settled(inner, path) for inner in value if not grows or _was_there(inner)]
    return value


def _was_there(row: Any) -> bool:
    name = row.get("name", row.get("username")) if isinstance(row, Mapping) else None
    return name is None or name in NAMED


def progress(scene: Scene) -> tuple[list[str], int]:
    """Problems of the running experiment, and the number of its reported steps."""
    root, id_ = scene.administrator, scene.running
    experiment = root.call("GET", f"/api/v1/experiments/{id_}")["experiment"]
    (trial,) = root.call("GET", f"/api/v1/experiments/{id_}/trials")["trials"]
    lines = root.read(f"/api/v1/trials/metrics/training_metrics?trialIds={trial['id']}").text.splitlines()
    steps = [report["totalBatches"] for line in lines for report in json.loads(line)["result"]["metrics"]]
    wrong = []
    if experiment["state"] not in ("STATE_ACTIVE", "STATE_RUNNING"):
        wrong.append(f"it is {experiment['state']}")
    if trial.get("restarts"):
        wrong.append(f"it was started again {trial['restarts']} time(s)")
    if steps != list(range(1, len(steps) + 1)):
        wrong.append(f"its steps are {steps}")
    task = trial["taskId"]
    logged = root.read(f"/api/v1/tasks/{task}/logs").text
    forged = [line for line in logged.splitlines() if "forged" in line]
    if forged:
        wrong.append(f"its log has {len(forged)} lines of the attackers, such as {forged[0][:500]}")
    return wrong, len(steps)
