"""Requests that cannot be meant: each is refused in words that help, and leaves what is stored as it was."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.bad_input import rows
from support.det import Det
from support.live import PASSWORD, LiveCluster, live_cluster, until

GOOD: dict[str, Any] = {
    "name": "good",
    "entrypoint": "python3 -m resolute.testing.scripted_trial",
    "searcher": {"name": "single", "metric": "loss", "max_length": 100},
    "hyperparameters": {"script": ["report 3 every 0.01s", "checkpoint every 1"]},
    "max_restarts": 3,
}
PERSON = {"DET_USER": "determined", "DET_PASS": PASSWORD}
LIMIT = 128 * 1024 * 1024


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("bad")) as running:
        yield running
    assert running.left_over() == []


@pytest.fixture
def det(cluster: LiveCluster, tmp_path: Path) -> Det:
    person = Det(tmp_path / "home", cluster.url)
    person("user", "login", variables=PERSON)
    return person


@pytest.fixture
def unchanged(det: Det, cluster: LiveCluster) -> Iterator[None]:
    """Whatever a test does leaves the database and what the API shows as they were."""
    assert cluster.client.session.token, "logged in before the counting, for sessions are stored"
    database = cluster.directory / "state" / "resolute.db"
    stored, shown = rows(database), det.json("experiment", "list", "--all")
    yield
    assert rows(database) == stored
    assert det.json("experiment", "list", "--all") == shown


def submit(cluster: LiveCluster, config: str, **changes: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {cluster.client.session.token}"}
    body = {"config": config, "activate": True, **changes}
    return httpx.post(f"{cluster.url}/api/v1/experiments", json=body, headers=headers, timeout=60)


def refusal(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    text: str = answer.json()["error"]["error"]
    return text


# ------------------------------------------------------------------------------------------------------------- context


@pytest.mark.usefixtures("unchanged")
def test_too_many_bytes_are_refused_before_they_are_read(det: Det) -> None:
    (det.home / "good.yaml").write_text(yaml.safe_dump(GOOD))
    model = det.home / "model"
    model.mkdir()
    with (model / "dataset.bin").open("wb") as sparse:
        sparse.truncate(96 * 1024 * 1024)
    said = det.run("experiment", "create", "good.yaml", "model")
    assert said.returncode == 1 and "Created" not in said.stdout
    assert "95 MiB" in said.stderr and ".detignore" in said.stderr


@pytest.mark.usefixtures("unchanged")
def test_a_request_over_the_limit_is_refused_by_the_master_too(cluster: LiveCluster) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"config": "'
        for _ in range(LIMIT // (1 << 20) + 1):
            yield b"x" * (1 << 20)

    headers = {"Authorization": f"Bearer {cluster.client.session.token}", "Content-Type": "application/json"}
    answer = httpx.post(f"{cluster.url}/api/v1/experiments", content=endless(), headers=headers, timeout=60)
    assert "128 MiB" in refusal(answer, 413)


@pytest.mark.usefixtures("unchanged")
def test_files_over_the_limit_are_refused_by_the_master_too(cluster: LiveCluster) -> None:
    content = base64.b64encode(b"\0" * (95 * 1024 * 1024 + 1)).decode()
    files = [{"path": "big.bin", "type": 48, "content": content, "mode": 0o644, "uid": 0, "gid": 0, "mtime": "0"}]
    answer = submit(cluster, yaml.safe_dump(GOOD), modelDefinition=files)
    assert "95 MiB" in refusal(answer, 429)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.py", "a/../../outside.py"])
def test_files_that_would_leave_their_directory_are_refused(cluster: LiveCluster, path: str) -> None:
    files = [{"path": path, "type": 48, "content": "eA==", "mode": 0o644, "uid": 0, "gid": 0, "mtime": "0"}]
    assert path in refusal(submit(cluster, yaml.safe_dump(GOOD), modelDefinition=files), 400)


# ------------------------------------------------------------------------------------------------------- configuration


BAD_CONFIGURATIONS = {
    "no YAML": ("name: [unclosed\nentrypoint: x\n", ["line 2"]),
    "a tab": ("searcher:\n\tname: single\n", ["line 2"]),
    "no mapping": ("- a\n- b\n", ["mapping"]),
    "an unknown key": ({**GOOD, "entrypiont": "x"}, ["entrypiont", "entrypoint"]),
    "an unknown key below": (
        {**GOOD, "resources": {"slot_per_trial": 1}},
        ["resources.slot_per_trial", "slots_per_trial"],
    ),
    "a wrong type": ({**GOOD, "max_restarts": "many"}, ["max_restarts", "many"]),
    "a wrong type below": (
        {**GOOD, "resources": {"slots_per_trial": [1]}},
        ["resources.slots_per_trial"],
    ),
    "a wrong value": ({**GOOD, "max_restarts": -1}, ["max_restarts", "-1"]),
    "an unknown searcher": ({**GOOD, "searcher": {"name": "singel", "metric": "x"}}, ["searcher.name", "single"]),
    "a key that is not acted on": (
        {**GOOD, "integrations": {"webhooks": {"webhook_id": [1]}}},
        ["integrations"],
    ),
    "an unknown pool": ({**GOOD, "resources": {"resource_pool": "defualt"}}, ["defualt", "default"]),
    "more slots than there can be": ({**GOOD, "resources": {"slots_per_trial": 1000}}, ["1000"]),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("what", sorted(BAD_CONFIGURATIONS))
def test_a_configuration_that_cannot_be_meant_is_refused_in_words(cluster: LiveCluster, what: str) -> None:
    config, expected = BAD_CONFIGURATIONS[what]
    said = refusal(submit(cluster, config if isinstance(config, str) else yaml.safe_dump(config)), 400)
    assert [word for word in expected if word not in said] == [], said


@pytest.mark.usefixtures("unchanged")
def test_all_mistakes_are_told_at_once(cluster: LiveCluster) -> None:
    config = {**GOOD, "entrypiont": "x", "max_restarts": "many", "resources": {"slots_per_trial": -1}}
    said = refusal(submit(cluster, yaml.safe_dump(config)), 400)
    assert all(key in said for key in ("entrypiont", "max_restarts", "resources.slots_per_trial")), said


@pytest.mark.usefixtures("unchanged")
def test_an_unreadable_file_is_told_with_its_line_before_anything_is_sent(det: Det) -> None:
    (det.home / "broken.yaml").write_text("name: [unclosed\nentrypoint: x\n")
    said = det.refused("experiment", "create", "broken.yaml", code=2)
    assert "broken.yaml" in said and "line 2" in said
    assert "missing.yaml" in det.refused("experiment", "create", "missing.yaml", code=2)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("content", "status"), [(b"{not json", 400), (b"[]", 400), (b'{"config": 7}', 400), (b"\xff\xfe", 400)]
)
def test_a_body_that_is_no_request_is_refused(cluster: LiveCluster, content: bytes, status: int) -> None:
    headers = {"Authorization": f"Bearer {cluster.client.session.token}", "Content-Type": "application/json"}
    answer = httpx.post(f"{cluster.url}/api/v1/experiments", content=content, headers=headers)
    assert refusal(answer, status)


# --------------------------------------------------------------------------------------------------------- logins


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("username", ["determined", "nobody"])
def test_a_wrong_password_opens_nothing_and_does_not_tell_who_exists(cluster: LiveCluster, username: str) -> None:
    body = {"username": username, "password": "0" * 128, "isHashed": True}
    answer = httpx.post(f"{cluster.url}/api/v1/auth/login", json=body)
    assert answer.status_code in (401, 403) and "token" not in answer.json()
    other = httpx.post(f"{cluster.url}/api/v1/auth/login", json={**body, "username": "someone else"})
    assert answer.json()["error"]["error"] == other.json()["error"]["error"]
    assert httpx.get(f"{cluster.url}/api/v1/experiments").status_code == 401


# --------------------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_directory_that_cannot_be_written_fails_the_trial_in_words(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    """A directory below a regular file: not even the superuser can make that."""
    (tmp_path / "file").write_text("no directory")
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "file" / "checkpoints")}
    experiment = cluster.submit(GOOD["hyperparameters"], checkpoint_storage=storage, max_restarts=3)
    assert experiment.wait(interval_s=0.2, timeout_s=60) == "ERROR"
    (trial,) = experiment.list_trials()
    attempts = trial.list_allocations()
    assert 1 <= len(attempts) <= 4, "not tried for ever"
    told = " ".join([*(each.exit_reason for each in attempts), *trial.iter_logs()])
    assert str(tmp_path / "file" / "checkpoints") in told and "checkpoint_storage.host_path" in told, told[-3000:]
    assert "write" in told
    assert experiment.list_checkpoints() == []
    assert until("the machine is free for others", lambda: not cluster.tasks())
