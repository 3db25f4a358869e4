"""`det deploy gcp up` and `down`, killed with -9 in the middle: the next run goes on, and nothing is left behind.

The provider of Terraform is made of the published schema, and goes on when Terraform is killed. It answers a little after it has
done what it was asked, so that a killed Terraform has made what it does not record.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployed_gcp import FLAGS, GooglePerson, google_person
from support.killed_deploys import DOWN, SAME, SEEDS, UNHURRIED, Person

pytestmark = [pytest.mark.needs("terraform program"), pytest.mark.timeout(1200)]

RESOURCES = 42
"""Resources of a cluster with these flags; some are created in any order."""
PARTS = ("google_compute_router_nat", "google_sql_database")


@pytest.fixture
def google(tmp_path: Path) -> Iterator[GooglePerson]:
    with google_person(tmp_path) as google:
        google.project.answers_after_s = 0.3
        yield google


def up(google: GooglePerson) -> tuple[str, ...]:
    return ("up", *FLAGS, "--wheel", str(google.wheel), "--private", "--filestore", "--cloud-logging", *UNHURRIED)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_killed_goes_on(google: GooglePerson, seed: int) -> None:
    chance = random.Random(seed)
    person = Person("gcp", google.det)
    person.run_and_kill(chance, *up(google), log="apply.log", resources=RESOURCES)
    person.run(*up(google))
    assert len(google.project.of("google_compute_network")) == 1
    assert "Nothing would change" in person.run(*SAME)
    person.run_and_kill(chance, *DOWN, log="destroy.log", resources=RESOURCES - 2)
    if person.module.exists():  # else it was faster than the hand that was to kill it
        assert "nothing else of it is left" in person.run(*DOWN)
    assert google.project.remaining() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_killed_is_taken_away_without_a_second_up(google: GooglePerson, seed: int) -> None:
    person = Person("gcp", google.det)
    person.run_and_kill(random.Random(seed), *up(google), log="apply.log", resources=RESOURCES)
    assert "nothing else of it is left" in person.run(*DOWN)
    assert google.project.remaining() == []


def test_a_state_that_was_cut_off_goes_on_from_its_copy(google: GooglePerson) -> None:
    """As of a Terraform that was killed after it had emptied the file and before it wrote it."""
    person = Person("gcp", google.det)
    person.run(*up(google))
    (database,) = google.project.of("google_sql_database_instance")
    (person.module.parent / "terraform.tfstate").write_bytes(b"")
    assert "its last whole copy is used" in person.run(*up(google))
    assert google.project.of("google_sql_database_instance") == [database], "what it holds is not lost"
    assert "Nothing would change" in person.run(*SAME)
    assert "nothing else of it is left" in person.run(*DOWN)
    assert google.project.remaining() == []


def test_parts_of_recorded_resources_that_are_not_recorded(google: GooglePerson) -> None:
    person = Person("gcp", google.det)
    made = person.run(*up(google))
    assert f"[{RESOURCES}/{RESOURCES}]" in made
    (database,) = google.project.of("google_sql_database")
    assert len(person.forget(*PARTS, "google_project_iam_member")) == 6
    again = person.run(*up(google))
    assert again.count("which an interrupted run has left") == len(PARTS)
    assert google.project.of("google_sql_database") == [database], "what it holds is not lost"
    assert "Nothing would change" in person.run(*SAME)
    person.forget(*PARTS, "google_project_iam_member")
    down = person.run(*DOWN)
    assert "removing the roles of det-vision-master@" in down and "nothing else of it is left" in down
    assert google.project.remaining() == []
