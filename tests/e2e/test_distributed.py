"""Distributed training needs no invention: the same file and configuration on two slots of a machine and on two machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.live import LiveCluster, live_cluster, until
from support.new_db import NewDb

EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed"

SHOW = """
import json, os
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=120))
print(json.dumps([dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]]))
dist.barrier()
dist.destroy_process_group()
"""


def _pool(name: str, **provider: Any) -> Mapping[str, Any]:
    return {"pool_name": name, "provider": {"type": "local", "max_idle_agent_period": "60s", **provider}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, new_db: NewDb) -> Iterator[LiveCluster]:
    pools = [
        _pool("default", slots_per_instance=2, max_instances=1),
        _pool("machines-of-one", slots_per_instance=1, max_instances=2),
    ]
    with live_cluster(tmp_path_factory.mktemp("gang"), resource_pools=pools, **new_db()) as running:
        yield running
    assert running.left_over() == []


@pytest.mark.nightly
@pytest.mark.parametrize("pool", ["default", "machines-of-one"])
def test_torchrun_on_two_slots_is_one_training_of_two_ranks(cluster: LiveCluster, pool: str) -> None:
    config = yaml.safe_load((EXAMPLE / "const.yaml").read_text())
    config["resources"]["resource_pool"] = pool
    experiment = cluster.client.create_experiment(config, EXAMPLE)
    until("it has ended", lambda: experiment.reload() or experiment.state in ("COMPLETED", "ERROR"))
    (trial,) = experiment.list_trials()
    log = "".join(trial.iter_logs())
    assert experiment.state == "COMPLETED", log
    assert "rank 0 of 2 trains on 256 of 512 points from step 0" in log
    assert "rank 1 of 2 trains on 256 of 512 points from step 0" in log
    trial.reload()
    assert trial.details.searcher_metric_value is not None and trial.details.searcher_metric_value < 0.01
    (allocation,) = trial.list_allocations()
    assert len(allocation.agent_ids) == (2 if pool == "machines-of-one" else 1)


@pytest.mark.parametrize(
    ("entrypoint", "pool", "places"),
    [
        # The default launcher: a program a machine.
        ("python3 show.py", "machines-of-one", [[0, 2, "0", "1"], [1, 2, "0", "1"]]),
        pytest.param(
            "python3 -m resolute.launch.torch_distributed show.py",
            "default",
            [[0, 2, "0", "2"], [1, 2, "1", "2"]],
            marks=pytest.mark.nightly,
        ),
        (
            "python3 -m resolute.launch.torch_distributed --monitor_interval 1 -- python3 show.py",
            "machines-of-one",
            [[0, 2, "0", "1"], [1, 2, "0", "1"]],
        ),
        (
            "python3 -m resolute.launch.process_per_slot -- python3 show.py",
            "default",
            [[0, 2, "0", "2"], [1, 2, "1", "2"]],
        ),
    ],
)
def test_every_launcher_says_where_the_ranks_meet(
    cluster: LiveCluster, tmp_path: Path, entrypoint: str, pool: str, places: list[Any]
) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    config = {
        "name": "ranks",
        "entrypoint": entrypoint,
        "searcher": {"name": "single", "metric": "loss"},
        "resources": {"slots_per_trial": 2, "resource_pool": pool},
        "max_restarts": 0,
    }
    experiment = cluster.client.create_experiment(config, tmp_path)
    until("it has ended", lambda: experiment.reload() or experiment.state in ("COMPLETED", "ERROR"))
    (trial,) = experiment.list_trials()
    lines = "".join(trial.iter_logs()).splitlines()
    assert experiment.state == "COMPLETED", lines
    assert (
        sorted(yaml.safe_load(line[line.index("[") :].split("INFO: ")[1]) for line in lines if ', "' in line) == places
    )
    if "torch_distributed" in entrypoint or "process_per_slot" in entrypoint:
        assert {rank for rank in (0, 1) if any(f"[rank={rank}]" in line for line in lines)} == {0, 1}
