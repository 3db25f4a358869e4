"""Pools that grow from nothing and shrink to nothing, with clouds that refuse, machines that never join and masters
that die in the middle of a launch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from resolute.client.sdk import Experiment
from resolute.testing.event_log import read_event_log
from resolute.wire.rest.extensions import Instance
from support.event_log_checker import check
from support.live import LiveCluster, gone, live_cluster, record_of, until
from support.new_db import NewDb

DEAD_MASTER = "http://127.0.0.1:9"


def local(**keys: Any) -> dict[str, Any]:
    provider = {"type": "local", "slots_per_instance": 1, "max_instances": 2, "max_idle_agent_period": "1s"}
    return {**provider, **keys}


POOLS: Mapping[str, Mapping[str, Any]] = {
    "scarce": local(refuse=[{"launch": 1, "error": "no_capacity"}]),
    "capped": local(refuse=[{"launch": 1, "error": "quota_exceeded"}]),
    "mistaken": local(refuse=[{"launch": 1, "error": "bad_request"}]),
    "deaf": local(boot_delay="1s", max_agent_starting_period="12s"),
}


@dataclass(frozen=True, slots=True)
class Faults:
    """A cluster with a pool for each, and an experiment that was submitted to each pool at the start."""

    cluster: LiveCluster
    experiments: Mapping[str, Experiment]
    never_joined: str
    """The machine of pool `deaf` whose agent was given an address where no master is."""


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """Their waiting times pass side by side."""
    pools = [{"pool_name": name, "provider": dict(provider)} for name, provider in POOLS.items()]
    given = {
        "resource_pools": pools,
        "resource_manager": {
            "type": "agent",
            "default_aux_resource_pool": "scarce",
            "default_compute_resource_pool": "scarce",
        },
    }
    with live_cluster(tmp_path_factory.mktemp("elastic"), **given) as cluster:
        assert cluster.client.cluster.instances() == () and cluster.machines() == []
        experiments = {name: submit(cluster, name) for name in sorted(POOLS)}
        yield Faults(cluster, experiments, misled_machine(cluster))
    assert cluster.left_over() == []


def submit(cluster: LiveCluster, pool: str, *sentences: str, slots: int = 1) -> Experiment:
    script = sentences or ("report 5 every 0.02s",)
    hparams = {"script": list(script), "event_log": f"{cluster.event_log}/"}
    return cluster.submit(hparams, resources={"slots_per_trial": slots, "resource_pool": pool}, max_restarts=5)


def misled_machine(cluster: LiveCluster) -> str:
    """Rewrites what the first machine of pool `deaf` is told, while it boots."""
    directory = cluster.directory / "state" / "pools" / "deaf" / "instances"
    settings = until("it is being launched", lambda: next(iter(directory.glob("*/agent.json")), None), every_s=0.01)
    told = json.loads(settings.read_text())
    settings.write_text(json.dumps({**told, "master_url": DEAD_MASTER}))
    return settings.parent.name


def instances(cluster: LiveCluster, pool: str) -> list[Instance]:
    return [each for each in cluster.client.cluster.instances() if each.pool == pool]


def decisions(cluster: LiveCluster, pool: str) -> list[tuple[str, str, str]]:
    return [(d.kind, d.subject, d.reason) for d in cluster.client.cluster.decisions(1000) if d.pool == pool]


def why(cluster: LiveCluster, experiment: Experiment) -> str:
    """Everything that `det job explain` prints."""
    answer = cluster.client.queue.explain(experiment.details.job_id)
    return " / ".join([answer.reason, *answer.details])


def empty(cluster: LiveCluster, pool: str) -> bool:
    return all(each.state in ("gone", "refused") for each in instances(cluster, pool))


# ------------------------------------------------------------------------------------------------------- faults


def test_a_refusal_for_capacity_is_waited_out_and_the_pool_returns_to_nothing(faults: Faults) -> None:
    cluster, experiment = faults.cluster, faults.experiments["scarce"]
    assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    until("the pool is empty", lambda: empty(cluster, "scarce"))
    refused, launched = sorted(instances(cluster, "scarce"), key=lambda each: each.id)
    assert (refused.state, refused.paid_from) == ("refused", None), "what was refused is not paid"
    assert launched.joined_at is not None and launched.paid_until is not None
    assert refused.token != launched.token
    assert any("scripted: launch request 1 is refused" in reason for _, _, reason in decisions(cluster, "scarce"))


def test_a_used_up_quota_is_told_to_who_waits(faults: Faults) -> None:
    cluster, experiment = faults.cluster, faults.experiments["capped"]
    until("it is told", lambda: "quota" in why(cluster, experiment))
    assert "scripted: launch request 1 is refused" in why(cluster, experiment)
    assert len(instances(cluster, "capped")) == 1, "a quota is not used up less by asking again"


def test_a_misconfigured_pool_says_so_and_stops_asking_until_the_master_is_started_again(
    faults: Faults,
) -> None:
    cluster, experiment = faults.cluster, faults.experiments["mistaken"]
    until("it is told", lambda: "no request until the configuration changes" in why(cluster, experiment))
    assert "scripted: launch request 1 is refused" in why(cluster, experiment)
    assert any("scripted: launch request 1 is refused" in reason for _, _, reason in decisions(cluster, "mistaken"))
    (asked,) = instances(cluster, "mistaken")
    # More work is no reason to ask again; by the time that it is explained, the planner has seen it.
    second = submit(cluster, "mistaken")
    until("it is told, too", lambda: "no request until" in why(cluster, second))
    assert [each.id for each in instances(cluster, "mistaken")] == [asked.id]
    cluster.kill_master()
    cluster.start()
    for each in (experiment, second):
        assert each.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"


def test_a_machine_that_never_joins_is_replaced(faults: Faults) -> None:
    cluster, experiment = faults.cluster, faults.experiments["deaf"]
    assert experiment.wait(interval_s=0.5, timeout_s=120) == "COMPLETED"
    found = {each.id: each for each in instances(cluster, "deaf")}
    silent = found.pop(faults.never_joined)
    assert silent.joined_at is None and any(each.joined_at is not None for each in found.values())
    # On a busy machine a replacement may be too slow as well, and is replaced in its turn.
    for each in (silent, *(late for late in found.values() if late.joined_at is None)):
        assert each.state == "gone" and "did not connect" in each.end_reason
    ended = [subject for kind, subject, _ in decisions(cluster, "deaf") if kind == "terminate"]
    assert silent.id in ended
    assert not [p for p in cluster.machines() if silent.id in " ".join(p.cmdline())]


# ---------------------------------------------------------------------------------------------- the master's own death


def launched_machines(cluster: LiveCluster) -> dict[str, str]:
    """Every machine that the cloud ever made, by its token. Two of one token are an error."""
    tokens: dict[str, str] = {}
    for file in sorted((cluster.pool_root / "instances").glob("*/instance.json")):
        record = json.loads(file.read_text())
        assert record["token"] not in tokens, f"{record['token']} was launched twice"
        tokens[record["token"]] = record["instance_id"]
    return tokens


@pytest.mark.parametrize(
    "moment",
    [pytest.param("instance.json", id="created", marks=pytest.mark.nightly), pytest.param("host.json", id="booting")],
)
def test_a_master_killed_during_a_launch_finds_every_machine_and_launches_none_twice(
    tmp_path: Path, moment: str, every_new_db: NewDb
) -> None:
    """Killed as soon as the first machine of two is there, or boots, and its launch is not confirmed."""
    with live_cluster(tmp_path, pool={"provider": local(boot_delay="1s")}, **every_new_db()) as cluster:
        experiment = submit(cluster, "default", "report 20 every 0.02s", "checkpoint every 5", slots=2)
        directory = cluster.pool_root / "instances"
        until("a launch is on its way", lambda: any(directory.glob(f"*/{moment}")), every_s=0.001)
        cluster.kill_master()
        cluster.start()
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
        until("the pool is empty", lambda: empty(cluster, "default") and not cluster.machines())
        made = launched_machines(cluster)
        assert len(made) == 2, "two machines for a gang of two"
        assert made == {each.token: each.id for each in cluster.client.cluster.instances()}
    assert cluster.left_over() == []


def test_a_machine_without_a_master_ends_itself_with_its_task(tmp_path: Path) -> None:
    pool = {"agent_reconnect_wait": "1s", "provider": local(master_timeout="2s")}
    with live_cluster(tmp_path, pool=pool) as cluster:
        experiment = submit(cluster, "default", "report 80 every 0.05s", "checkpoint every 5")
        until("it has saved", lambda: [e for e in read_event_log(cluster.event_log) if e["event"] == "save"] or None)
        (machine,), (task,) = cluster.machines(), cluster.tasks()
        cluster.kill_master()
        until("the machine has ended itself", lambda: ended(machine) and ended(task))
        until("it has taken everything along", lambda: cluster.left_over() == [])
        cluster.start()
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
        assert (
            check(read_event_log(cluster.event_log), [record_of(experiment, steps=80, lost=cluster.lost_machines())])
            == []
        )
        first, second = sorted(cluster.client.cluster.instances(), key=lambda each: each.id)
        assert first.paid_until is not None and second.paid_from is not None
        assert first.paid_until <= second.paid_from
    assert cluster.left_over() == []


def ended(process: psutil.Process) -> bool:
    return gone(process.pid)
