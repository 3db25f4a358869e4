"""The released client and harness against a master that serves TLS with its own authority, process runtime."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from resolute.client import Resolute
from resolute.client.authentication import authenticated_session
from support.api_released import PYTHON, ReleasedDet
from support.live import PASSWORD, LiveCluster

pytestmark = [pytest.mark.needs("determined"), pytest.mark.needs("namespaces")]

STEPS = 10


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LiveCluster]:
    made = LiveCluster(tmp_path / "secured", security={"initial_user_password": PASSWORD, "tls": {"enabled": True}})
    made.url = made.url.replace("http:", "https:")
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert made.left_over() == []


def authority(cluster: LiveCluster) -> str:
    return str(cluster.directory / "state" / "tls" / "ca.pem")


def test_the_released_client_and_harness_report_over_tls(secured: LiveCluster, tmp_path: Path) -> None:
    trusting: dict[str, Any] = {
        "DET_MASTER_CERT_FILE": authority(secured),
        "REQUESTS_CA_BUNDLE": "",
        "CURL_CA_BUNDLE": "",
    }
    released = ReleasedDet(tmp_path / "home", secured.url, "determined", PASSWORD, more=trusting)
    directory = tmp_path / "model"
    directory.mkdir()
    shutil.copy(Path(__file__).parent / "released_trial.py", directory)
    config = {
        "name": "released-harness-over-tls",
        "entrypoint": f"{PYTHON} released_trial.py",
        "hyperparameters": {"steps": STEPS},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
        "max_restarts": 0,
        "environment": {"environment_variables": [f"PATH={PYTHON.parent}:/usr/local/bin:/usr/bin:/bin"]},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    printed = released("experiment", "create", str(directory / "config.yaml"), str(directory))
    (id_,) = [line.split()[2] for line in printed.splitlines() if line.startswith("Created experiment ")]
    released("experiment", "wait", id_)
    logs = released("experiment", "logs", id_)
    assert f"finished at step {STEPS}" in logs, logs

    ours = {"DET_MASTER_CERT_FILE": authority(secured), "DET_DEBUG_CONFIG_PATH": str(tmp_path / "logins")}
    session = authenticated_session(secured.url, user="determined", password=PASSWORD, environ=ours)
    with session:
        (trial,) = Resolute(session=session).experiments.trials(int(id_))
        assert trial.total_batches_processed == STEPS


def test_the_released_client_asks_before_it_trusts(secured: LiveCluster, tmp_path: Path) -> None:
    nobody = {"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": ""}
    released = ReleasedDet(tmp_path / "home", secured.url, "determined", PASSWORD, more=nobody)
    asked = released.run("experiment", "list", typed="n\n")
    assert asked.returncode != 0 and "SHA256 fingerprint" in asked.stdout
    trusted = released.run("experiment", "list", typed="y\n")
    assert trusted.returncode == 0, trusted.stdout
    assert released.run("experiment", "list").returncode == 0
