"""What `det deploy gcp up` finds before anything is made, in a project that answers as Google's documents say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_deploy.cloud import Finding, with_defaults
from resolute_deploy.cluster_directory import module_variables
from resolute_deploy.gcp.account import GoogleAccount
from resolute_deploy.gcp.preflight import hourly_cost
from support.google_project import World, google_project

GIVEN = {"cluster_id": "vision", "project_id": "project-1", "region": "us-central1"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    before = dict(os.environ)
    with google_project(tmp_path_factory.mktemp("project")) as world:
        os.environ.update(world.environ)
        try:
            yield world
        finally:
            os.environ.clear()
            os.environ.update(before)


def complete(**given: Any) -> tuple[GoogleAccount, dict[str, Any]]:
    account = GoogleAccount.of({**GIVEN, **given})
    return account, with_defaults({**GIVEN, **given}, module_variables("gcp"), account)


def found(**given: Any) -> list[Finding]:
    account, values = complete(**given)
    return account.preflight(values, new=True)


def fatal(**given: Any) -> str:
    return "\n".join(each.text for each in found(**given) if each.fatal)


def test_nothing_is_wrong_with_a_good_start(world: World) -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"region": "mars-north1"}, "--region mars-north1: Google Cloud has no such region"),
        ({"zone": "us-central1-x"}, "--zone us-central1-x: us-central1 has the zones us-central1-a, us-central1-b"),
        ({"zones": ["us-central1-q"]}, "--zones us-central1-q"),
        (
            {"compute_image": "projects/p/global/images/family/none"},
            "--compute-image projects/p/global/images/family/none",
        ),
        ({"aux_image": "projects/p/global/images/none"}, "--aux-image projects/p/global/images/none: there is no such"),
        (
            {"compute_agent_instance_type": ["g2-huge"]},
            "--compute-agent-instance-type g2-huge: us-central1 has no such",
        ),
        (
            {"max_dynamic_agents": 9},
            "9 g2-standard-8 need 9 of the quota NVIDIA_L4_GPUS, and us-central1 has 8 left of 8; ask for more under",
        ),
        (
            {"compute_agent_instance_type": ["n1-standard-8"]},
            "5 n1-standard-8 need 20 of the quota NVIDIA_T4_GPUS, and us-central1 has 4 left",
        ),
        (
            {"compute_agent_instance_type": ["e2-standard-4"], "max_dynamic_agents": 13},
            "13 e2-standard-4 and 13 e2-standard-4 need 104 of the quota CPUS, and us-central1 has 96 left",
        ),
    ],
)
def test_what_is_not_there_is_named_with_its_flag(world: World, given: dict[str, Any], words: str) -> None:
    assert words in fatal(**given)


def test_all_findings_come_at_once(world: World) -> None:
    assert len(fatal(zone="us-central1-x", aux_image="projects/p/global/images/none").splitlines()) >= 2


def test_a_quota_that_is_not_told_is_a_warning(world: World) -> None:
    texts = [each.text for each in found(compute_agent_instance_type=["n1-standard-8"], preemptible=True)]
    assert any("PREEMPTIBLE_NVIDIA_T4_GPUS, and us-central1 does not list that quota" in each for each in texts)


def test_a_name_that_is_taken_says_by_what(world: World) -> None:
    labels = {"resolute-deployment": "taken"}
    secret = {"project": "project-1", "secret_id": "resolute-taken-seal", "labels": labels}
    world.project.create("google_secret_manager_secret", secret)
    words = fatal(cluster_id="taken")
    assert "a cluster of that name exists already (secret resolute-taken-seal)" in words and "--state-bucket" in words


def test_interfaces_that_are_not_enabled_are_named_with_the_command_that_enables_them(world: World) -> None:
    world.project.refusals.disabled |= {"sql", "file"}
    try:
        assert fatal() == (
            "--project-id project-1: sqladmin is not enabled; "
            "`gcloud services enable sqladmin.googleapis.com --project project-1` enables it"
        )
        assert len(fatal(filestore=True).splitlines()) == 2
        account, _ = complete()
        assert list(account.left("vision")) == [], "there is nothing of theirs in the project"
    finally:
        world.project.refusals.disabled.clear()


def test_a_project_that_does_not_open(world: World) -> None:
    account, values = complete(project_id="project-2")
    with pytest.raises(InvalidInput, match="--project-id project-2: there is no such project, or these credentials"):
        account.preflight(values, new=True)


def test_a_key_that_is_none(world: World, tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"--keypath .*key\.json: is no key of a service account"):
        complete(keypath=str(tmp_path / "key.json"))


def test_an_hour_costs_its_machines_and_their_gpus(world: World) -> None:
    _, values = complete(max_dynamic_agents=2)
    cost = hourly_cost(values, "us-central1")
    assert cost.idle is not None and cost.full is not None
    _, none = complete(max_dynamic_agents=2, compute_agent_instance_type=["e2-standard-4"])
    without = hourly_cost(none, "us-central1")
    assert without.full is not None and cost.full > without.full + 2 * 0.5  # an L4 costs more than half a dollar
    _, unknown = complete(compute_agent_instance_type=["no-such-8"])
    assert hourly_cost(unknown, "us-central1").full is None
