"""`det deploy local`: a cluster to keep, that trains, is found again, and leaves nothing when it is taken down."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from resolute.processors import usable_processors
from resolute.wire.rest.passwords import hash_password
from resolute_cli.nouns.deploy_local import instances_for
from support.det import Det
from support.live import until
from support.ports import free_port
from support.postgres import PostgresServer

PASSWORD = "Correct4horse"
CONFIG = {
    "name": "kept",
    "entrypoint": "python3 -m resolute.testing.scripted_trial",
    "searcher": {"name": "single", "metric": "loss", "max_length": 100},
    "hyperparameters": {"script": ["report 10 every 0.02s", "checkpoint every 5"]},
    "max_restarts": 0,
}


@pytest.fixture
def det(tmp_path: Path) -> Iterator[Det]:
    port = free_port()
    person = Det(tmp_path / "home", f"http://127.0.0.1:{port}")
    person.environ |= {"PORT": str(port)}
    yield person
    person.run("deploy", "local", "cluster-down", "--dir", str(tmp_path / "cluster"))


def up(det: Det, directory: Path, *more: str) -> str:
    options = ("--dir", str(directory), "--master-port", det.environ["PORT"], "--max-idle-agent-period", "60")
    return det("deploy", "local", "cluster-up", *options, "--initial-user-password", PASSWORD, *more)


def processes_of(directory: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            told = " ".join([*process.cmdline(), *process.environ().values(), process.cwd()])
            if str(directory) in told and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_cluster_to_keep_trains_and_leaves_nothing(det: Det, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    address = det.environ["DET_MASTER"]
    said = up(det, cluster)
    assert address in said
    assert address in up(det, cluster), "a cluster that runs is named, not started twice"

    login = {"DET_USER": "determined", "DET_PASS": PASSWORD}
    det("user", "login", variables=login)
    (det.home / "kept.yaml").write_text(yaml.safe_dump(CONFIG))
    det("experiment", "create", "kept.yaml", "-f")
    det("experiment", "wait", "1", "--polling-interval", "1")
    until("its machine idles", lambda: [a for a in det.json("agent", "list") if not a["containers"]] or None)
    (pool,) = yaml.safe_load((cluster / "master.yaml").read_text())["resource_pools"]
    assert pool["provider"]["max_instances"] == instances_for(usable_processors(), 1), "sized by this machine"
    assert "serves" in det("deploy", "local", "logs", "--no-follow", "--dir", str(cluster))

    det("deploy", "local", "cluster-down", "--dir", str(cluster))
    assert processes_of(cluster) == []
    assert port_is_free(int(det.environ["PORT"]))
    assert "cluster-up" in det.refused("experiment", "list")

    up(det, cluster)
    assert [each["name"] for each in det.json("experiment", "list")] == ["kept"], "what it knew, it still knows"
    det("deploy", "local", "cluster-down", "--delete-db", "--dir", str(cluster))
    assert processes_of(cluster) == []
    assert not list(cluster.glob("*.db*"))
    assert list((cluster / "checkpoints").glob("*/state.json")), "what was trained is not deleted with the database"


def test_with_tls_everything_is_asked_for_by_https_and_a_machine_trains(det: Det, tmp_path: Path) -> None:
    cluster, address = tmp_path / "cluster", det.environ["DET_MASTER"].replace("http:", "https:")
    assert address in up(det, cluster, "--tls")
    authority = cluster / "tls" / "ca.pem"
    sent = {"username": "determined", "password": hash_password(PASSWORD), "isHashed": True}
    login = urllib.request.Request(f"{address}/api/v1/auth/login", json.dumps(sent).encode(), method="POST")
    with urllib.request.urlopen(login, context=ssl.create_default_context(cafile=str(authority))) as answer:
        cookie = answer.headers["Set-Cookie"]
        assert all(each in cookie for each in ("auth=", "HttpOnly", "SameSite=Lax", "Secure"))
        assert answer.headers["Strict-Transport-Security"] == "max-age=2592000"

    det.environ |= {"DET_MASTER": address, "DET_MASTER_CERT_FILE": str(authority)}
    det("user", "login", variables={"DET_USER": "determined", "DET_PASS": PASSWORD})
    (det.home / "kept.yaml").write_text(yaml.safe_dump(CONFIG))
    det("experiment", "create", "kept.yaml", "-f")  # its machine joins by TLS, and its task reports by TLS
    det("experiment", "wait", "1", "--polling-interval", "1")


@pytest.mark.needs("postgres")
@pytest.mark.nightly
def test_a_master_with_an_agent_keeps_its_work_in_postgresql(
    det: Det, tmp_path: Path, postgres: PostgresServer
) -> None:
    """`master-up` and `agent-up`, one after the other, with a database by flag; ended one by one."""
    cluster, port = tmp_path / "cluster", det.environ["PORT"]
    where = ("--dir", str(cluster))
    database = ("--db-url", postgres.url(postgres.new_database()), "--initial-user-password", PASSWORD)
    det("deploy", "local", "master-up", *where, "--master-port", port, *database)
    assert PASSWORD not in (cluster / "settings.json").read_text()
    agent = (
        "deploy",
        "local",
        "agent-up",
        "127.0.0.1",
        *where,
        "--master-port",
        port,
        "--agent-name",
        "mine",
        "--no-gpu",
    )
    det(*agent)
    assert "agent 'mine' runs already" in det.refused(*agent)
    det("user", "login", variables={"DET_USER": "determined", "DET_PASS": PASSWORD})
    assert [each["id"] for each in det.json("agent", "list")] == ["mine"]
    (det.home / "kept.yaml").write_text(yaml.safe_dump(CONFIG))
    det("experiment", "create", "kept.yaml", "-f")
    det("experiment", "wait", "1", "--polling-interval", "1")
    assert "--delete-db: this cluster keeps its state in postgresql://" in det.refused(
        "deploy", "local", "master-down", *where, "--delete-db"
    )
    det("deploy", "local", "master-down", *where)
    assert processes_of(cluster) != [], "an agent outlives its master"
    det("deploy", "local", "master-up", *where, "--master-port", port, *database)
    assert [each["name"] for each in det.json("experiment", "list")] == ["kept"]
    until("the agent is back", lambda: [each["id"] for each in det.json("agent", "list")] == ["mine"])
    assert "Ended mine" in det("deploy", "local", "agent-down", *where, "--all")
    det("deploy", "local", "master-down", *where)
    assert processes_of(cluster) == []
