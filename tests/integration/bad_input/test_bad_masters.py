"""Masters that cannot start, or whose disk fails under them: told in words, with nothing half stored."""

from __future__ import annotations

import base64
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from resolute.client import Resolute
from resolute_master.main import main
from support.bad_input import files_may_grow_to, intact, refused_start, rows, write_master_config
from support.live import client_of, until
from support.ports import free_port

EXPERIMENT: dict[str, Any] = {
    "name": "stored",
    "entrypoint": "python3 train.py",
    "searcher": {"name": "single", "metric": "loss", "max_length": 1},
}


@contextmanager
def master(config: Path, *, largest_file: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    url = url_of(config)
    limit = partial(files_may_grow_to, largest_file) if largest_file is not None else None
    with (config.parent / "master.log").open("ab") as log:
        command = [sys.executable, "-m", "resolute_master", "--config-file", str(config)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=limit)
    try:
        until("the master serves", lambda: process.poll() is not None or serves(url))
        assert process.poll() is None, (config.parent / "master.log").read_text()
        yield process
    finally:
        process.terminate()
        process.wait(30)


def serves(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=2, verify=False).status_code == 200
    return False


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_master_config(tmp_path, free_port())


def url_of(config: Path) -> str:
    return f"http://127.0.0.1:{yaml.safe_load(config.read_text())['port']}"


def login(config: Path) -> Resolute:
    return client_of(url_of(config), config.parent)


def store_experiments(config: Path, count: int) -> None:
    with master(config), login(config) as client:
        for _ in range(count):
            client.create_experiment(EXPERIMENT, activate=False)


# -------------------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize("command", [[], ["seal"]])
def test_the_usual_file_is_read_where_none_is_named(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DET_CONFIG_FILE", raising=False)
    usual = tmp_path / "master.yaml"
    usual.write_text("port: many\n")
    assert main(command, usual_file=usual) == 2
    told = capsys.readouterr().err
    assert f"the master configuration in {usual}" in told and 'port: must be an integer (value "many")' in told
    other = tmp_path / "other.yaml"
    assert main([*command, "--config-file", str(other)], usual_file=usual) == 2
    assert f"the file {other} does not exist" in capsys.readouterr().err


def test_a_port_in_use_is_named_before_anything_is_stored(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused_start(write_master_config(tmp_path, port))
    assert code != 0 and str(port) in said and "another port" in said
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"heartbeat_intervall": "1s"}, ["heartbeat_intervall", "'heartbeat_interval'"]),
        ({"port": "eighty"}, ["port", "eighty"]),
        (
            {"resource_pools": [{"pool_name": "default", "provider": {"type": "local", "max_instance": 3}}]},
            ["max_instances"],
        ),
        ({"resource_pools": [{"pool_name": "default"}, {"pool_name": "default"}]}, ["default"]),
        ({"security": {"initial_user_password": 7}}, ["security.initial_user_password"]),
        ({"heartbeat_interval": "soon"}, ["heartbeat_interval", "soon"]),
    ],
)
def test_a_configuration_that_cannot_be_meant_stores_nothing(
    tmp_path: Path, changes: dict[str, Any], expected: list[str]
) -> None:
    code, said = refused_start(write_master_config(tmp_path, free_port(), **changes))
    assert code == 2 and [word for word in expected if word not in said] == [], said
    assert not (tmp_path / "state").exists()


def test_a_configuration_that_is_no_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("port: 8080\nsecurity: [unclosed\n")
    code, said = refused_start(file)
    assert code == 2 and "master.yaml" in said and "line" in said


# ---------------------------------------------------------------------------------------------------------------- store


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path, config: Path) -> None:
    database = tmp_path / "state" / "resolute.db"
    database.parent.mkdir()
    content = b"these are somebody's notes\n" * 500
    database.write_bytes(content)
    code, said = refused_start(config)
    assert code != 0 and str(database) in said and "database" in said
    assert database.read_bytes() == content


def test_a_damaged_database_is_named_and_served_to_nobody(tmp_path: Path, config: Path) -> None:
    store_experiments(config, 3)
    database = tmp_path / "state" / "resolute.db"
    assert rows(database)["experiments"] == 3
    whole = database.read_bytes()
    # Everything but the first page, which says that it is a database at all.
    damaged = whole[:4096] + random.Random(7).randbytes(len(whole) - 4096)
    database.write_bytes(damaged)
    for leftover in ("-wal", "-shm"):
        Path(f"{database}{leftover}").unlink(missing_ok=True)
    code, said = refused_start(config)
    assert code != 0 and str(database) in said
    database.write_bytes(whole)
    with master(config), login(config) as client:
        assert len(client.list_experiments()) == 3, "a good copy put back is all that it takes"


@pytest.mark.parametrize("harm", ["removed", "cut off"])
def test_a_master_whose_database_is_taken_away_ends_with_words(tmp_path: Path, config: Path, harm: str) -> None:
    """Also one that has nothing to do; and it does not begin a new cluster in its place."""
    database = tmp_path / "state" / "resolute.db"
    with master(config) as process, login(config) as client:
        client.create_experiment(EXPERIMENT, activate=False)
        if harm == "removed":
            database.unlink()
        else:
            os.truncate(database, 0)
        until("the master ends", lambda: process.poll() is not None)
    said = (tmp_path / "master.log").read_text()
    assert process.returncode != 0 and "Traceback" not in said.rpartition("resolute_master:")[2]
    assert f"{database} was {harm}" in said and "restore a backup" in said
    for leftover in ("-wal", "-shm"):
        Path(f"{database}{leftover}").unlink(missing_ok=True)
    code, told = refused_start(config)
    assert code != 0 and f"{database} is {'missing' if harm == 'removed' else 'empty'}" in told
    assert "to start a new cluster" in told and "resolute.db.cluster" in told


def test_a_state_directory_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    place = tmp_path / "file" / "state"
    code, said = refused_start(write_master_config(tmp_path, free_port(), cluster_state_dir=str(place)))
    assert code != 0 and "cluster_state_dir" in said and str(place) in said


@pytest.mark.needs("namespaces")
def test_a_read_only_state_directory_is_named_with_what_to_do(tmp_path: Path, config: Path) -> None:
    """Mounted read-only, which stops the superuser, too."""
    store_experiments(config, 1)
    state = tmp_path / "state"
    before = {file.name: file.read_bytes() for file in state.iterdir() if file.is_file()}
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    mount = f'mount --bind "{state}" "{state}" && mount -o remount,ro,bind "{state}" && exec "$@"'
    code, said = refused_start(config, before=(*enter, "sh", "-c", mount, "sh"))
    assert code != 0 and str(state) in said and "write" in said, said
    assert {file.name: file.read_bytes() for file in state.iterdir() if file.is_file()} == before


def test_a_disk_that_fills_up_in_the_middle_stores_nothing_by_halves(tmp_path: Path, config: Path) -> None:
    """Uploads until a write fails: what was acknowledged is there afterwards, and what was not has left no row."""
    store_experiments(config, 1)
    database = tmp_path / "state" / "resolute.db"
    acknowledged = 1
    # Random bytes, so that nothing makes them fewer.
    content = base64.b64encode(random.Random(1).randbytes(300_000)).decode()
    files = [{"path": "weights.bin", "type": 48, "content": content, "mode": 0o644, "uid": 0, "gid": 0, "mtime": "0"}]
    with master(config, largest_file=3_000_000) as process, login(config) as client:
        headers = {"Authorization": f"Bearer {client.session.token}"}
        body = {"config": yaml.safe_dump(EXPERIMENT), "activate": False}
        refused: httpx.Response | None = None
        for number in range(40):
            named = [{**files[0], "path": f"weights-{number}.bin"}]
            try:
                answer = httpx.post(
                    f"{client.session.master}/api/v1/experiments",
                    json={**body, "modelDefinition": named},
                    headers=headers,
                    timeout=60,
                )
            except httpx.TransportError:
                break  # the master has ended, which its log must explain
            if answer.status_code != 200:
                refused = answer
                break
            acknowledged += 1
        assert refused is not None or process.poll() is not None or process.wait(30) is not None
        # The write that no longer fits may be an upload's, which alone is refused, or the engine's, which ends the master.
        try:
            goes_on = httpx.get(f"{client.session.master}/api/v1/master", timeout=60).status_code == 200
        except httpx.TransportError:
            goes_on = False
    assert acknowledged > 1, "it worked for a while"
    assert refused is None or "Traceback" not in refused.text
    last_words = (tmp_path / "master.log").read_text().splitlines()[-1]
    if goes_on:
        assert refused is not None and refused.status_code == 503
    else:
        assert last_words.startswith("resolute_master: ") and str(database) in last_words and "disk" in last_words

    assert intact(database)
    with master(config), login(config) as client:
        assert len(client.list_experiments()) == acknowledged
        stored = rows(database)
        assert stored["experiments"] == stored["jobs"] == acknowledged
        assert stored["contexts"] <= acknowledged, "no context without its experiment"
        client.create_experiment(EXPERIMENT, activate=False)
        assert len(client.list_experiments()) == acknowledged + 1


def test_a_second_master_on_the_same_state_is_refused(config: Path, tmp_path: Path) -> None:
    with master(config), login(config) as client:
        other = tmp_path / "other"
        other.mkdir()
        second = write_master_config(other, free_port(), cluster_state_dir=str(tmp_path / "state"))
        code, said = refused_start(second)
        assert code != 0 and "resolute.db" in said
        assert client.list_experiments() == []


def test_a_password_that_was_never_set_is_generated_and_not_blank(tmp_path: Path) -> None:
    """A fresh master that listens beyond this machine and was given none."""
    config = write_master_config(tmp_path, free_port(), security={}, host="0.0.0.0")
    with master(config):
        for password in ("", "determined", "password"):
            body = {"username": "determined", "password": password, "isHashed": False}
            answer = httpx.post(f"{url_of(config)}/api/v1/auth/login", json=body)
            assert answer.status_code in (401, 403), password
