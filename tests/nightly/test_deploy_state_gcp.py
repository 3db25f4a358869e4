"""A cluster on Google Cloud whose state is in a bucket: shared, lost, behind expired credentials; and one that is locked."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployed_gcp import FLAGS, GooglePerson, google_person
from support.killed_deploys import DOWN, SAME, UNHURRIED
from support.live import until

pytestmark = [pytest.mark.needs("terraform program"), pytest.mark.timeout(1200)]

BUCKET = ("--state-bucket", "states")
STATE = "resolute/vision/default.tfstate"


@pytest.fixture
def person(tmp_path: Path) -> Iterator[GooglePerson]:
    with google_person(tmp_path) as person:
        yield person


def up(person: GooglePerson) -> tuple[str, ...]:
    return ("up", *FLAGS, "--wheel", str(person.wheel), *UNHURRIED)


def test_a_state_that_people_share(person: GooglePerson, tmp_path: Path) -> None:
    missing = person.refused(*up(person), *BUCKET)
    assert "--state-bucket states: there is no such bucket; `gcloud storage buckets create gs://states" in missing
    person.project.new_bucket("states")
    person.deploy(*up(person), *BUCKET)
    made = person.project.remaining()
    assert person.project.objects("states", "") == [STATE]
    assert "Nothing would change" in person.deploy(*SAME), "the bucket is remembered"
    assert "is in the bucket states; leave the flag out" in person.refused(*SAME, "--state-bucket", "others")

    second = ("--state-path", str(tmp_path / "second"))
    refused = person.refused(*up(person), *second)
    assert "--cluster-id vision: there is a cluster of that name" in refused and "--state-bucket" in refused
    assert person.project.remaining() == made, "what another person has made is no orphan"
    assert "Nothing would change" in person.deploy(*up(person), *second, *BUCKET, "--dry-run")
    assert "changed" in person.deploy(*up(person), *second, *BUCKET, "--max-dynamic-agents", "7")

    content = person.project.read("states", STATE)
    person.project.erase("states", STATE)
    assert "the state here does not contain it; restore the state" in person.refused(*up(person))
    assert person.project.remaining() == made
    person.project.write("states", STATE, content)

    person.project.refusals.login = "Token has been expired or revoked."
    for command in (up(person), DOWN):
        words = person.refused(*command)
        assert "have expired" in words and "gcloud auth application-default login" in words
        assert "Traceback" not in words
    person.project.refusals.login = ""
    assert person.project.remaining() == made
    assert "nothing else of it is left" in person.deploy(*DOWN)
    assert person.project.remaining() == ["bucket states"]


def test_a_state_that_is_locked(person: GooglePerson) -> None:
    """On this machine: the emulator of Cloud Storage writes a lock whatever is there. A lock in a bucket is one of S3's tests."""
    person.deploy(*up(person))
    made = person.project.remaining()
    (person.directory / "module" / "slow.tf").write_text(
        'resource "terraform_data" "slow" {\n  provisioner "local-exec" {\n    command = "touch locked; sleep 600"\n  }\n}\n'
    )
    other = subprocess.Popen(
        ["terraform", f"-chdir={person.directory / 'module'}", "apply", "-auto-approve", "-target=terraform_data.slow"],
        env=person.det.environ,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until("the state is locked", lambda: (person.directory / "module" / "locked").exists())
        for command in (up(person), DOWN):
            words = person.refused(*command)
            assert re.search(r"the state is locked by \S+ since \S+ \S+ UTC \(apply\); run the command again", words)
            assert person.project.remaining() == made
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
    assert "nothing else of it is left" in person.deploy(*DOWN)
    assert person.project.remaining() == []
