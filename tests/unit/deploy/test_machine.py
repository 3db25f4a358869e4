"""The master's machine makes itself what the bucket says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from resolute_cli.passwords import new_password
from resolute_deploy.aws.machine import database_password
from resolute_deploy.cloud import CloudMachine, LogStream
from resolute_deploy.machine import Machine

NO_LOG: Mapping[str, LogStream] = {}

DESIRED = {
    "wheel": "cluster/wheels/a/resolute.whl",
    "wheel_sha256": "0" * 64,
    "pip_options": "",
    "seal_secret": "seal",
    "password_secret": "password",
    "log": None,
    "addresses": [],
    "facts": {
        "database": {
            "host": "db:1",
            "port": 5432,
            "name": "resolute",
            "user": "resolute",
            "password_secret": "database",
        }
    },
}


class Bucket:
    """`cluster/` of a bucket, in memory."""

    def __init__(self) -> None:
        self.version = "1"
        self.wanted: dict[str, Any] = dict(DESIRED)
        self.files: dict[str, bytes] = {}

    def desired(self) -> tuple[str, dict[str, Any]]:
        return self.version, self.wanted

    def get(self, key: str) -> bytes:
        return b"not the wheel"

    def found(self, name: str) -> bytes | None:
        return self.files.get(name)

    def put(self, name: str, content: bytes) -> None:
        self.files[name] = content

    @property
    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.files["status.json"])
        return told


class Secrets:
    """A store that knows the database's password."""

    def __init__(self) -> None:
        self.values = {"database": '{"username": "resolute", "password": "a:b\\\\c"}'}

    def value(self, arn: str) -> str:
        return self.values[arn]

    def value_or_new(self, arn: str, make: Callable[[], str]) -> str:
        return self.values.setdefault(arn, make())


class Service:
    """A master that serves as soon as it is started."""

    owner: str | None = None

    def __init__(self, directory: Path) -> None:
        self.state_directory = directory
        self.starts: list[dict[str, str]] = []
        self.healthy = True

    def start(self, environment: Mapping[str, str], log: str | None) -> None:
        self.starts.append(dict(environment))

    def hand_over(self) -> None:
        raise AssertionError("there is no other release")

    def serves(self) -> bool:
        return self.healthy

    def last_words(self) -> str:
        return "the database is away"


class Released(Machine):
    """A machine whose release and configuration are there already: these need programs."""

    def _install(self, desired: Mapping[str, Any]) -> None:
        (self._directory / "installed").write_text(desired["wheel_sha256"])

    def _configure(self, desired: Mapping[str, Any]) -> None:
        (self._directory / "master.yaml").write_text("{}")


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def store() -> Secrets:
    return Secrets()


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "state")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def made(of: type[Machine], tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time) -> Machine:
    cloud = CloudMachine(
        bucket=lambda _: bucket,
        secrets=lambda: store,
        own_addresses=lambda: ["10.0.0.7"],
        database_password=database_password,
        log_stream=lambda name: NO_LOG[name],
        passed_variables=(),
    )
    return of(
        cloud,
        "bucket",
        service,
        tmp_path,
        clock=lambda: time.now,
        sleep=time.sleep,
    )


def test_secrets_are_made_once_and_kept_in_the_store(
    tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time
) -> None:
    machine = made(Released, tmp_path, bucket, store, service, time)
    machine.turn()
    first = dict(store.values)
    bucket.version = "2"
    machine.turn()
    assert store.values == first and len(first["seal"]) == 64
    assert (tmp_path / "seal.key").read_text() == first["seal"] + "\n"
    assert (tmp_path / "seal.key").stat().st_mode & 0o777 == 0o600


def test_the_master_is_started_for_a_change_and_not_otherwise(
    tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time
) -> None:
    machine = made(Released, tmp_path, bucket, store, service, time)
    machine.turn()
    machine.turn()
    assert len(service.starts) == 1 and bucket.status["ready"]
    bucket.version = "2"
    machine.turn()
    assert len(service.starts) == 2 and bucket.status["desired"] == "2"


def test_a_changed_password_of_the_database_is_used_without_a_start(
    tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time
) -> None:
    machine = made(Released, tmp_path, bucket, store, service, time)
    machine.turn()
    assert (tmp_path / "pgpass").read_text() == "db\\:1:5432:resolute:resolute:a\\:b\\\\c\n"
    store.values["database"] = '{"password": "new"}'
    time.now += 120
    machine.turn()
    assert (tmp_path / "pgpass").read_text() == "db\\:1:5432:resolute:resolute:new\n"
    assert len(service.starts) == 1


def test_a_wheel_that_is_not_the_one_that_was_uploaded_is_not_installed(
    tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time
) -> None:
    made(Machine, tmp_path, bucket, store, service, time).turn()
    assert "is not the wheel that was uploaded" in bucket.status["error"]
    assert not service.starts


def test_a_master_that_does_not_serve_is_told_with_its_last_words_and_tried_again(
    tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time
) -> None:
    machine = made(Released, tmp_path, bucket, store, service, time)
    service.healthy = False
    machine.turn()
    assert "does not serve after 300 s: the database is away" in bucket.status["error"]
    service.healthy = True
    machine.turn()
    assert bucket.status["ready"] and not bucket.status["error"]


def test_the_certificate_authority_is_published(
    tmp_path: Path, bucket: Bucket, store: Secrets, service: Service, time: Time
) -> None:
    (service.state_directory / "tls").mkdir(parents=True)
    (service.state_directory / "tls" / "ca.pem").write_text("authority")
    made(Released, tmp_path, bucket, store, service, time).turn()
    assert bucket.files["ca.pem"] == b"authority"


def test_a_new_password_satisfies_the_rule_of_the_master() -> None:
    for _ in range(50):
        password = new_password()
        assert len(password) == 20 and not password.islower() and not password.isupper()
        assert any(letter.isdigit() for letter in password)
