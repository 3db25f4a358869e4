"""`det deploy gcp` with Terraform and without machines: made, equal to its plan, changed in place, mended, refused, removed.

Terraform talks to a provider that is made of the published schema of the real one, and the command to a project whose interfaces
are held against Google's discovery documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployed_gcp import FLAGS, GooglePerson, google_person

pytestmark = [pytest.mark.needs("terraform program")]

QUICK = ("--no-wait-for-master", "--no-preflight-checks")


@pytest.fixture
def person(tmp_path: Path) -> Iterator[GooglePerson]:
    with google_person(tmp_path) as person:
        yield person


def test_a_cluster_from_nothing_to_nothing(person: GooglePerson) -> None:
    """With all that a cluster may have: database, file system, log, and machines without addresses of the internet."""
    given = ("--wheel", str(person.wheel), "--no-wait-for-master", "--private", "--filestore", "--cloud-logging")
    made = person.deploy("up", *FLAGS, *given)
    assert "Cluster vision is made" in made and "usually 10 to 15 minutes" in made
    project = person.project
    (database,) = project.of("google_sql_database_instance")
    assert database["settings"][0]["ip_configuration"][0]["ipv4_enabled"] is False
    (script,) = [
        item["value"]
        for _, body in project.engine.there().values()
        for item in body["metadata"]["items"]
        if item["key"] == "startup-script"
    ]
    assert '--cloud "$CLOUD"' in script and "CLOUD='gcp'" in script and "googleapis" not in script
    assert "Nothing would change" in person.deploy("up", "--cluster-id", "vision", "--dry-run", "--no-preflight-checks")

    changed = person.deploy("up", "--cluster-id", "vision", *QUICK, "--max-dynamic-agents", "7")
    assert "[1/1] changed module.master.google_storage_bucket_object.desired" in changed
    desired = project.read(project.of("google_storage_bucket")[0]["name"], "cluster/desired.json")
    assert json.loads(desired)["facts"]["agents"]["max"] == 7

    (rule, *_) = project.of("google_compute_firewall")
    project.delete("google_compute_firewall", rule)
    assert "make 1" in person.deploy("up", "--cluster-id", "vision", "--dry-run", "--no-preflight-checks")

    project.write(project.of("google_storage_bucket")[0]["name"], "checkpoints/1/weights", b"saved")
    down = person.deploy("down", "--cluster-id", "vision", "--yes")
    assert "nothing else of it is left" in down and "Kept with its checkpoints: bucket resolute-vision-" in down
    assert [each.split()[0] for each in project.remaining()] == ["bucket"]

    again = person.deploy("up", *FLAGS, "--wheel", str(person.wheel), *QUICK)
    assert "taking over the bucket" in again
    person.deploy("down", "--cluster-id", "vision", "--yes", "--delete-checkpoints")
    assert project.remaining() == [] and not person.directory.exists()


def test_a_refusal_is_told_and_the_next_run_removes_what_was_not_recorded(person: GooglePerson) -> None:
    """In between, a Terraform made a network and an account, and was killed before it wrote that down."""
    refusals = person.project.refusals
    refusals.creates |= {
        "google_compute_network": "Error 403: Quota 'NETWORKS' exceeded",
        "google_service_account": "no",
    }
    told = person.refused("up", *FLAGS, "--wheel", str(person.wheel), *QUICK)
    assert "Quota 'NETWORKS' exceeded" in told
    refusals.creates.clear()
    person.project.create("google_compute_network", {"project": "project-1", "name": "resolute-vision"})
    account = {"project": "project-1", "account_id": "det-vision-agent", "description": "resolute-vision"}
    person.project.create("google_service_account", account)
    told = person.deploy("up", "--cluster-id", "vision", "--wheel", str(person.wheel), *QUICK)
    assert "removing network resolute-vision, which an interrupted run has left" in told
    assert "removing service account det-vision-agent@" in told
    refusals.deletes["google_compute_network"] = "Error 400: the network is in use"
    assert "the network is in use" in person.refused("down", "--cluster-id", "vision", "--yes")
    refusals.deletes.clear()
    assert "nothing else of it is left" in person.deploy("down", "--cluster-id", "vision", "--yes")
    assert person.project.remaining() == []


def test_every_mistake_is_named_before_anything_is_made(person: GooglePerson) -> None:
    flags = ("--cluster-id", "Vision--2", "--project-id", "project-1", "--region", "us-central1-a")
    told = person.refused("up", *flags, "--filestore", "--filestore-address", "10.0.0.2:/files")
    assert "The --cluster-id must have 3 to 35 small letters" in told
    assert "The --region must be" not in told  # a word of one part is no name of a flag in a sentence
    assert "The region must be one such as us-west1" in told
    assert person.project.remaining() == []
