"""One campaign on one store: the setup, the attack, and the checks afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostile.attackers import Attacker
from hostile.calls import Caller, Request, Victims
from hostile.cluster import OF_ALL_TASKS, HostileCluster, Person
from hostile.digest import digest, progress, shown, statuses
from hostile.findings import SERVED_ERRORS, Findings, compare
from hostile.frames import links
from hostile.garbage import garbage
from hostile.scene import ROGUE, Scene, make_scene, reloaded, told
from hostile.sending import Outcome, Secrets, Sender
from hostile.victims import a_config
from resolute.client import Resolute
from support.live import client_of, until
from support.postgres import PostgresServer
from support.seeded_secrets import WORD, SecretSeeder

RATE = 400.0
"""Maximum number of requests and messages per second."""

SENT_S = 1800.0
"""Time limit of the whole budget."""

IN_TASK = (Attacker.OTHER_TASK, Attacker.FROM_TASK)
OVER_S = 120.0
TRACEBACK = re.compile(r"^ *Traceback \(most recent call last\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Shares:
    """Fractions of the budget by type of input."""

    task: int
    bytes: int
    frames: int
    calls: int


def shares(budget: int) -> Shares:
    task, strings, frames = budget // 20, budget // 10, budget // 4
    return Shares(task, strings, frames, budget - task - strings - frames)


def attack(
    folder: Path, *, seed: int, budget: int, rate: float = RATE, server: PostgresServer | None = None
) -> Findings:
    """Sends `budget` requests and messages to a new master in `folder`, which must not exist."""
    folder.mkdir(parents=True)
    cluster = HostileCluster(folder, SecretSeeder(), server)
    findings, share = Findings(), shares(budget)
    planned: list[Request] = []

    def plan(victims: Victims) -> list[Request]:
        planned.extend(Caller(random.Random(f"task {seed}"), victims, IN_TASK).requests(share.task))
        return planned

    began = time.monotonic()
    try:
        cluster.start()
        pid = cluster.pid
        scene = make_scene(cluster, plan)
        _, steps = progress(scene)
        before = shown(scene, cluster.storage)
        print(f"  the cluster is prepared after {time.monotonic() - began:.0f} s", flush=True)
        asyncio.run(_send(cluster, scene, findings, seed, share, rate))
        _add_task_reports(cluster, scene, planned, findings)
        _after(cluster, scene, pid, before, steps, findings)
        print(f"  sent and looked at after {time.monotonic() - began:.0f} s", flush=True)
        scene.administrator.close()
    finally:
        cluster.stop()
    _logs(cluster, scene, findings)
    if findings.total < budget:
        findings.fault("was not sent", f"{budget - findings.total} of {budget}")
    return findings


async def _send(
    cluster: HostileCluster, scene: Scene, findings: Findings, seed: int, share: Shares, rate: float
) -> None:
    requests = Caller(random.Random(f"calls {seed}"), scene.victims).requests(share.calls)
    strings = garbage(random.Random(f"bytes {seed}"), share.bytes)
    frames = links(random.Random(f"frames {seed}"), scene.victims, ROGUE, share.frames)
    sender = Sender(cluster.port, scene.tokens, Secrets(scene.secrets), rate=rate)
    async with asyncio.timeout(SENT_S):
        async for outcome in sender.run(requests, strings, frames):
            findings.add(outcome)


def _add_task_reports(cluster: HostileCluster, scene: Scene, planned: list[Request], findings: Findings) -> None:
    """The responses to the hostile task, and the files that it could read."""
    with client_of(cluster.url, cluster.directory / "administrator", user="admin") as client:
        experiment = client.get_experiment(scene.hostile_task)
        until("the hostile task is through", lambda: any("over" in said for said in told(experiment)), within_s=OVER_S)
        for said in told(experiment):
            if "number" in said:
                findings.add(_outcome(planned[said["number"]], said))
            elif os.geteuid() == 0 and said.get("read"):
                seeded = {cluster.seeder.seeded.get(word, "an unknown secret") for word in said["read"]} - {
                    OF_ALL_TASKS
                }
                for where in sorted(seeded):
                    findings.fault("a task read a secret", f"{where}, in {said['pattern']}")


def _outcome(request: Request, said: Mapping[str, object]) -> Outcome:
    status = int(str(said["status"]))
    return Outcome(
        who=f"task: {request.who}",
        what=request.call,
        kind=request.kind,
        statuses=(status,),
        refused=request.refused,
        granted=0 < status < 400,
        shown=tuple(str(word) for word in said.get("shown") or ()),  # type: ignore[attr-defined]
        unanswered=said.get("failure") == "TimeoutError" and not request.waits,
        detail=f"{request.path[:300]} {(request.body or b'')[:300]!r}",
    )


# ----------------------------------------------------------------------------------------------------------- afterwards


def _after(
    cluster: HostileCluster, scene: Scene, pid: int, before: Mapping[str, str], steps: int, findings: Findings
) -> None:
    if cluster.master is None or cluster.master.poll() is not None or cluster.pid != pid:
        findings.fault("the master ended", cluster.master_log()[-3000:])
        return
    after = shown(scene, cluster.storage)
    for difference in compare(before, after):
        findings.fault("changed what is others'", difference)
    print(f"digest before {digest(before)}\n       after  {digest(after)} ({len(before)} reads)")
    for path, status in statuses(scene):
        if status >= 500 and status not in SERVED_ERRORS:
            findings.fault("answered 500", f"{status}: an administrator reads {path}, which is the attackers' own")
    wrong, now = progress(scene)
    for sentence in wrong:
        findings.fault("disturbed the work", f"experiment {scene.running}: {sentence}")
    if now <= steps:
        findings.fault("disturbed the work", f"experiment {scene.running} is still at step {now}")
    _still_of_use(cluster, scene, findings)


def _still_of_use(cluster: HostileCluster, scene: Scene, findings: Findings) -> None:
    """Another user logs in, ends the attackers' task, and runs an experiment on the machine that becomes free."""
    root = scene.administrator
    root.call("POST", f"/api/v1/experiments/{scene.hostile_task}/kill", {})
    walter = Person(cluster, "walter")
    walter.close()
    with client_of(cluster.url, cluster.directory / "walter", user="walter") as client:
        _works(cluster, client, findings)


def _works(cluster: HostileCluster, client: Resolute, findings: Findings) -> None:
    resources = {"slots_per_trial": 1, "resource_pool": "tasks", "priority": 1}
    config = a_config(cluster.seeder, "afterwards", "report 2 every 0.02s", resources=resources)
    experiment = client.create_experiment(config)
    try:
        until("work is done", lambda: reloaded(experiment).state == "COMPLETED", within_s=OVER_S)
    except AssertionError as error:
        findings.fault("disturbed the work", f"an experiment submitted afterwards is {experiment.state}: {error}")


def _logs(cluster: HostileCluster, scene: Scene, findings: Findings) -> None:
    """Checks the logs of master and agents."""
    secrets = Secrets(scene.secrets)
    files = [cluster.directory / "master.log", *sorted((cluster.directory / "state").glob("pools/*/instances/*/*.log"))]
    for file in files:
        text = file.read_bytes()
        found = secrets.shown_in(text)
        if found or WORD.encode() in text:
            findings.fault("showed a secret", f"{file.name}: {', '.join(found)}")
        traces = TRACEBACK.findall(text.decode(errors="replace"))
        if traces:
            place = text.decode(errors="replace").split("Traceback (most recent call last)", 1)
            findings.fault("logged a traceback", f"{file.name}: {len(traces)}; {place[0][-500:]}{place[1][:3000]}")
