"""The released SDK and the released harness outside of the cluster drive this master unchanged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.api_released import COMPAT, PYTHON, ReleasedDet
from support.live import PASSWORD, LiveCluster

pytestmark = [pytest.mark.needs("determined"), pytest.mark.needs("namespaces"), pytest.mark.needs("postgres")]


def test_what_a_notebook_does(det: ReleasedDet, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    shutil.copy(COMPAT / "released_trial.py", directory)
    config = {
        "name": "from the SDK",
        "entrypoint": f"{PYTHON} released_trial.py",
        "hyperparameters": {"steps": 5},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 5}},
        "max_restarts": 0,
        "environment": {"environment_variables": [f"PATH={PYTHON.parent}:/usr/local/bin:/usr/bin:/bin"]},
    }
    printed = det.script(COMPAT / "released_sdk.py", PASSWORD, str(directory), json.dumps(config), timeout_s=280)
    assert "the SDK got all it asked for" in printed


def test_training_outside_of_the_cluster_is_seen_and_goes_on(det: ReleasedDet, cluster: LiveCluster) -> None:
    program = COMPAT / "released_detached.py"
    assert "begins at step 0" in det.script(program, PASSWORD, "night", "3")
    again = det.script(program, PASSWORD, "night", "5")
    assert "begins at step 3" in again
    trial = cluster.client.trials.get(int(again.split(" of trial ")[1].split()[0]))
    assert (trial.state.name, trial.total_batches_processed) == ("COMPLETED", 5)
    assert "begins at step 0" in det.script(program, PASSWORD, "", "2")
    listed = det("experiment", "list", "--all")
    assert [line for line in listed.splitlines() if "detached" in line and "COMPLETED" not in line] == []
    assert listed.count("detached") == 2
    assert "begins at step 3" in det("trial", "logs", str(trial.id))
    refused = det("experiment", "activate", str(trial.experiment_id), code=1)
    assert "stop them where they were started" in refused
