"""The setup of an attack: the victims' objects, and the attackers' credentials."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from hostile.attackers import Attacker, forged
from hostile.calls import Request, Victims
from hostile.cluster import HostileCluster, Person
from hostile.frames import Rogue, genuine
from hostile.victims import OVER_S, a_mallory_config, bodies_about, make_victims_work
from resolute.client import Resolute
from resolute.client.sdk import Experiment
from resolute.wire.rest.passwords import hash_password
from support.live import PASSWORD, client_of, until
from support.seeded_secrets import WORD

HERE = Path(__file__).resolve().parent
ROGUE = Rogue(name="rogue", pool="rogue", credential="5" * 64)
REPORTED = "reported "
STAY_S = 3600.0
OWN_UUID = "00000000-0000-4000-8000-0000000000ff"
"""Id of the checkpoint that the attackers report."""

USERS = ("alice", "walter", "mallory", "gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The state before the attack."""

    administrator: Person
    victims: Victims
    still: Mapping[str, tuple[str, ...]]
    """Like `victims.parts`, without running objects."""
    tokens: Mapping[Attacker, str]
    secrets: Mapping[str, str]
    """The seeded secrets, with their places."""
    over: int
    """The ended experiment; the next ones are paused, running, and unmanaged."""
    paused: int
    running: int
    outside: int
    workspace: int
    project: int
    users: tuple[int, ...]
    hostile_task: int
    """The experiment of the hostile task."""


def make_scene(cluster: HostileCluster, plan: Callable[[Victims], Sequence[Request]]) -> Scene:
    """`plan` draws the calls of the hostile task."""
    root = Person(cluster, "admin")
    for name in USERS:
        user = {"username": name, "active": name != "gone", "admin": False}
        root.call("POST", "/api/v1/users", {"user": user, "password": hash_password(PASSWORD), "isHashed": True})
    alice, walter, mallory = (Person(cluster, name) for name in USERS[:3])
    workspace = walter.call("POST", "/api/v1/workspaces", {"name": "w"})["workspace"]["id"]
    made = walter.call("POST", f"/api/v1/workspaces/{workspace}/projects", {"name": "p", "workspaceId": workspace})
    project = made["project"]["id"]
    parts, still, ids = make_victims_work(cluster, alice)
    places = {
        "workspaceId": (str(workspace),),
        "id": (str(workspace),),
        "userId": (str(alice.id), str(walter.id), str(root.id)),
    }
    victims = Victims(
        parts=parts | places,
        bodies=bodies_about(parts, workspace),
        own_user=str(mallory.id),
    )
    join_rogue(cluster)
    with client_of(cluster.url, cluster.directory / "mallory", user="mallory") as client:
        ended, past = _ended_task(cluster, client)
        task = _task(cluster, client, plan(victims), STAY_S, name="hostile")
        own = until("the hostile task prints its tokens", lambda: tokens_of(task))
        victims = replace(victims, own=_names(mallory, past), own_task=_names(mallory, task))
    tokens = {
        Attacker.UNAUTHENTICATED: "",
        Attacker.FORGER: forged(root.token),
        Attacker.AGENT: ROGUE.credential,
        Attacker.ENDED_TASK: ended["session"],
        Attacker.OTHER_TASK: own["session"],
        Attacker.FROM_TASK: own["user"],
        Attacker.OTHER: mallory.token,
    }
    secrets = {**cluster.seeder.seeded, PASSWORD: "the password of a user", **_tokens(cluster, root, alice, walter)}
    for person in (alice, walter, mallory):
        person.close()
    return Scene(
        administrator=root,
        victims=victims,
        still=still | places,
        tokens=tokens,
        secrets=secrets,
        workspace=workspace,
        project=project,
        users=(root.id, alice.id, walter.id),
        hostile_task=task.id,
        **ids,
    )


def _tokens(cluster: HostileCluster, *people: Person) -> dict[str, str]:
    found = {person.token: "the token of a login" for person in people}
    for process in cluster.tasks():
        variables = process.environ()
        if "DET_SESSION_TOKEN" in variables:
            found[variables["DET_SESSION_TOKEN"]] = "the token of a task"
            found[variables["DET_USER_TOKEN"]] = "the token of a user in a task"
    key = cluster.directory / "state" / "seal.key"
    found[key.read_text().strip()] = "the sealing key"
    return found


def _names(mallory: Person, experiment: Experiment) -> dict[str, str]:
    """Values of path parameters from one experiment of the attackers."""
    (trial,) = mallory.call("GET", f"/api/v1/experiments/{experiment.id}/trials")["trials"]
    (allocation,) = mallory.call("GET", f"/api/v1/tasks/{trial['taskId']}")["task"]["allocations"]
    numbers = dict.fromkeys(("trialId", "runId"), str(trial["id"]))
    texts = {"taskId": trial["taskId"], "allocationId": allocation["allocationId"], "templateName": "mallory-s"}
    return numbers | texts | {"experimentId": str(experiment.id), "uuid": OWN_UUID, "checkpointUuid": OWN_UUID}


def _ended_task(cluster: HostileCluster, client: Resolute) -> tuple[dict[str, str], Experiment]:
    task = _task(cluster, client, (), 0.0, name="ended")
    tokens = until(
        "the task of the attackers has ended",
        lambda: tokens_of(task) if reloaded(task).state == "COMPLETED" else None,
        within_s=OVER_S,
    )
    return tokens, task


def _task(
    cluster: HostileCluster, client: Resolute, requests: Sequence[Request], stay_s: float, *, name: str
) -> Experiment:
    context = cluster.directory / name
    (context / "hostile").mkdir(parents=True)
    (context / "hostile" / "__init__.py").touch()
    shutil.copy(HERE / "task.py", context / "hostile" / "task.py")
    plan = {
        "words": [WORD],
        "stay_s": stay_s,
        "files": _files(cluster) if requests else [],
        "requests": [_planned(request) for request in requests],
    }
    (context / "hostile" / "plan.json").write_text(json.dumps(plan))
    return client.create_experiment(
        a_mallory_config(name=name, entrypoint="python3 -m hostile.task"), model_dir=context
    )


def _planned(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "path": request.path,
        "headers": list(request.headers),
        "body": None if request.body is None else base64.b64encode(request.body).decode(),
        "waits": request.waits,
        "token": "task" if request.who is Attacker.OTHER_TASK else "user",
    }


def _files(cluster: HostileCluster) -> list[str]:
    """Files that no task may read if the agent runs as root."""
    state = cluster.directory / "state"
    return [
        f"{cluster.config_file}",
        f"{state}/*.db*",
        f"{state}/*key*",
        f"{state}/join-token",
        f"{state}/pools/*/instances/*/agent.json",
        f"{state}/pools/*/instances/*/state/*.json",
        "/proc/[0-9]*/environ",
    ]


def reloaded(experiment: Experiment) -> Experiment:
    experiment.reload()
    return experiment


def told(experiment: Experiment) -> list[dict[str, Any]]:
    """The log of the experiment's task."""
    lines = [
        line.split(REPORTED, 1)[1]
        for trial in experiment.list_trials()
        for line in trial.iter_logs()
        if REPORTED in line
    ]
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def tokens_of(experiment: Experiment) -> dict[str, str] | None:
    return next((said for said in told(experiment) if "session" in said), None)


def join_rogue(cluster: HostileCluster) -> None:
    """The attackers' agent joins as any other does. Afterwards the attackers have its credential, but not the join token."""
    asyncio.run(_joined(cluster))


async def _joined(cluster: HostileCluster) -> None:
    token = cluster.config["security"]["agents"]["join_token"]
    async with aiohttp.ClientSession() as http, http.ws_connect(f"{cluster.url}/agents/link") as link:
        await link.send_str(genuine(ROGUE, join_token=token))
        said = json.loads(await link.receive_str(timeout=60))
        assert said["type"] == "Welcome", said
