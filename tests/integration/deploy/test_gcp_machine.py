"""What the master's machine does in a project: the password of its user, secrets, documents and its log."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest

from resolute.errors import ResoluteError
from resolute_deploy.gcp.api import GoogleApi
from resolute_deploy.gcp.bucket import GoogleBucket, SecretManager
from resolute_deploy.gcp.database import DatabaseUser
from resolute_deploy.gcp.logs import CloudLog
from support.google_project import World, google_project

SECRET = "projects/project-1/secrets/resolute-vision-database"
DATABASE = {"password_secret": SECRET, "instance": "resolute-vision-1", "project": "project-1", "user": "resolute"}


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    before = dict(os.environ)
    with google_project(tmp_path_factory.mktemp("project")) as world:
        os.environ.update(world.environ)
        try:
            yield world
        finally:
            os.environ.clear()
            os.environ.update(before)


def user() -> DatabaseUser:
    return DatabaseUser(GoogleApi.of_this_machine, sleep=lambda seconds: None)


def test_the_password_is_made_once_kept_in_the_store_and_set_in_the_database(world: World) -> None:
    store = SecretManager.of_this_machine()
    first = user()
    password = first.password(store, DATABASE)
    assert world.project.users == {"resolute-vision-1": {"resolute": password}}
    calls = len(world.project.calls)
    assert first.password(store, DATABASE) == password
    assert [each.method.split(".")[0] for each in world.project.calls[calls:]] == ["secretmanager"] * 2
    assert user().password(store, DATABASE) == password, "a new machine takes the password that is there"
    assert len(world.project.versions[SECRET]) == 1


def test_a_password_that_a_person_has_changed_is_set(world: World) -> None:
    store, machine = SecretManager.of_this_machine(), user()
    machine.password(store, DATABASE)
    world.project.versions[SECRET].append(base64.b64encode(b"another").decode())
    assert machine.password(store, DATABASE) == "another"
    assert world.project.users == {"resolute-vision-1": {"resolute": "another"}}


def test_an_existing_database_keeps_its_password(world: World) -> None:
    secret = world.project.secret("theirs", "theirs")
    told = user().password(SecretManager.of_this_machine(), {**DATABASE, "password_secret": secret, "instance": None})
    assert told == "theirs" and world.project.users == {}


def test_a_database_that_refuses_is_told(world: World) -> None:
    world.project.refusals.operations["resolute-vision-1"] = "the instance is being updated"
    with pytest.raises(ResoluteError, match="does not set the password of resolute: the instance is being updated"):
        user().password(SecretManager.of_this_machine(), DATABASE)


def test_documents_of_the_bucket(world: World) -> None:
    world.project.new_bucket("of-vision")
    bucket = GoogleBucket.of_this_machine("of-vision")
    assert bucket.found("status.json") is None
    bucket.put("status.json", b"{}")
    assert bucket.found("status.json") == b"{}" and world.project.objects("of-vision", "") == ["cluster/status.json"]
    world.project.write("of-vision", "cluster/desired.json", b'{"a": 1}')
    version, desired = bucket.desired()
    assert desired == {"a": 1} and bucket.desired()[0] == version
    world.project.write("of-vision", "cluster/desired.json", b'{"a": 2}')
    assert bucket.desired()[0] != version


def test_lines_of_the_log_go_to_cloud_logging(world: World) -> None:
    log = CloudLog.of_this_machine("projects/project-1/logs/resolute-vision")
    assert log.send([(1_700_000_000_123, "it started"), (1_700_000_000_124, "")])
    (call,) = [each for each in world.project.calls if each.method == "logging.entries.write"]
    assert call.body is not None
    assert [each["textPayload"] for each in call.body["entries"]] == ["it started", " "]
    assert call.body["entries"][0]["timestamp"] == "2023-11-14T22:13:20.123000Z"


def test_lines_that_cannot_be_sent_are_to_be_sent_again(world: World) -> None:
    world.project.close()
    assert not CloudLog.of_this_machine("projects/project-1/logs/resolute-vision").send([(1, "it started")])
