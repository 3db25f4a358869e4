"""A pool on Google Cloud from nothing to nothing: a stock-out, a machine in the next zone that boots from its own start-up
script, a preemption, the exact step on the second machine, and no machine at the end.

Real are the master, Google's client, the start-up script's bytes, the agent that it starts and the training task. Compute
Engine and its metadata servers are the fakes that the published discovery document judges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from resolute.testing.event_log import read_event_log
from resolute.wire.rest.extensions import Instance, TrialAllocation
from resolute_provisioner.clouds.gcp.fake_compute_engine import (
    PROJECT,
    FailedOperation,
    FakeComputeEngine,
    Times,
    compute_engine,
)
from support.event_log_checker import TrialRecord, check
from support.gce_bridge import gce_bridge
from support.live import LiveCluster, record_of, until

pytestmark = pytest.mark.needs("machines")

STEPS = 120
NOTICE_S = 60.0
"""Longer than the half a minute that the machine tells of: a busy computer takes its time to say how a task has ended."""
TESTS = Path(__file__).resolve().parents[1]


class GcpCluster(LiveCluster):
    def __init__(self, directory: Path, engine: FakeComputeEngine, host: str) -> None:
        provider = {
            "type": "gcp",
            "project": PROJECT,
            "name_prefix": "lab-",
            "boot_disk_source_image": "projects/p/global/images/family/f",
            "offers": [
                {
                    "instance_types": ["n1-standard-8"],
                    "zones": ["us-central1-a", "us-central1-b"],
                    "markets": ["spot"],
                }
            ],
            "cpu_slots_allowed": True,
            "max_instances": 2,
            "max_idle_agent_period": "1s",
            "agent_config_file_contents": {"container_runtime": "process"},
        }
        super().__init__(
            directory,
            pool={"provider": provider, "shared_file_system": True, "agent_reconnect_wait": "5s"},
            host="0.0.0.0",
        )
        provider["master_url"] = f"http://{host}:{self.port}"
        self.config_file.write_text(yaml.safe_dump(self.config))
        self.master_program = ("support.gcp_master", engine.url)
        self.environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])


@dataclass(frozen=True, slots=True)
class Scenario:
    engine: FakeComputeEngine
    event_log: list[dict[str, Any]]
    record: TrialRecord
    runs: tuple[TrialAllocation, ...]
    instances: Mapping[str, Instance]
    decisions: tuple[str, ...]

    def machine(self, run: int) -> Instance:
        (id_,) = self.runs[run - 1].instance_ids
        return self.instances[id_]

    def events(self, run: int, event: str) -> list[dict[str, Any]]:
        return [each for each in self.event_log if (each["trial_run_id"], each["event"]) == (run, event)]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenario]:
    directory = tmp_path_factory.mktemp("gcp")
    stock_out = FailedOperation(code="ZONE_RESOURCE_POOL_EXHAUSTED", message="us-central1-a has none", status=503)
    with (
        compute_engine(times=Times(operation_s=0.2, staging_s=0.3)) as engine,
        gce_bridge(engine, directory / "machines") as (bridge, network),
    ):
        engine.scripts.inserts.append(stock_out)
        cluster = GcpCluster(directory, engine, network.host)
        try:
            cluster.start()
            half = f"report {STEPS // 2} every 0.05s"
            script = [half, "checkpoint", "wait for preemption", half, "checkpoint every 50"]
            experiment = cluster.submit({"script": script, "event_log": f"{cluster.event_log}/"}, max_restarts=0)
            (name,) = until("a machine runs", lambda: bridge.living() or None)
            until("it waits to be taken back", lambda: _is_half_done(cluster))
            bridge.preempt(name, notice_s=NOTICE_S)
            assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED", bridge.machines[name].log()
            until("nothing is left", lambda: engine.there() == {} and bridge.living() == [])
            instances = until("the books are closed", lambda: _closed(cluster))
            (trial,) = experiment.list_trials()
            yield Scenario(
                engine=engine,
                event_log=read_event_log(cluster.event_log),
                record=record_of(experiment, steps=STEPS),
                runs=trial.list_allocations(),
                instances={each.id: each for each in instances},
                decisions=tuple(each.reason for each in cluster.client.cluster.decisions(1000)),
            )
        finally:
            cluster.stop()


def _is_half_done(cluster: LiveCluster) -> bool:
    return any((each["event"], each["step"]) == ("save", STEPS // 2) for each in read_event_log(cluster.event_log))


def _closed(cluster: LiveCluster) -> tuple[Instance, ...] | None:
    instances = cluster.client.cluster.instances()
    return instances if all(each.state in ("gone", "refused") for each in instances) else None


def test_a_stock_out_that_only_the_operation_tells_moves_the_pool_to_the_next_zone(scenario: Scenario) -> None:
    refused = [each for each in scenario.instances.values() if each.state == "refused"]
    assert len(refused) == 1 and refused[0].paid_from is None
    assert any("us-central1-a has none" in reason for reason in scenario.decisions)
    zones = [path.split("/")[0] for path in _inserted(scenario.engine)]
    assert zones[0] != zones[1]


def test_a_preemption_costs_no_step(scenario: Scenario) -> None:
    assert check(scenario.event_log, [scenario.record]) == []
    assert len(scenario.runs) == 2 and scenario.machine(1).id != scenario.machine(2).id
    notice, saved = scenario.machine(1).notice, scenario.events(1, "save")[-1]
    assert notice is not None and notice.deadline is not None and "spot" in notice.reason
    assert datetime.fromisoformat(saved["at"].replace("Z", "+00:00")) <= notice.deadline
    (start,) = scenario.events(2, "start")
    assert start["step"] == saved["step"] == scenario.events(1, "step")[-1]["step"]


def test_every_machine_was_deleted_and_what_it_cost_is_on_the_books(scenario: Scenario) -> None:
    ran = {name: (start, end) for name, start, end in scenario.engine.ran()}
    assert len(ran) == 2 and all(end is not None for _, end in ran.values())
    for run in (1, 2):
        machine = scenario.machine(run)
        (start, end) = next(times for name, times in ran.items() if machine.id in name)
        assert end is not None and machine.paid_from is not None and machine.paid_until is not None
        assert machine.paid_from == start and abs((machine.paid_until - end).total_seconds()) < 1.0


def _inserted(engine: FakeComputeEngine) -> list[str]:
    asked = [call for call in engine.calls if call.method == "compute.instances.insert" and call.body is not None]
    return [f"{call.path['zone']}/{call.body['name']}" for call in asked if call.body is not None]
