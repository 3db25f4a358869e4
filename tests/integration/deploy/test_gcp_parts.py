"""Parts of recorded resources that a killed Terraform has made and not recorded, in a project that answers as documented."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_deploy.cloud import Planned, in_the_way, refuse_lost_state
from resolute_deploy.gcp.account import GoogleAccount
from resolute_deploy.gcp.bindings import master_account
from resolute_deploy.gcp.resources import Place
from resolute_deploy.terraform import Terraform
from support.google_project import REGION, World, google_project

NAME = "resolute-vision"
HERE = {"project": "project-1", "name": NAME}
ACCOUNT = "det-vision-master@project-1.iam.gserviceaccount.com"


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


@pytest.fixture
def account(world: World) -> GoogleAccount:
    return GoogleAccount.of({"project_id": "project-1", "region": REGION})


def gateway(**more: str) -> Planned:
    values = {**HERE, "region": REGION, "router": NAME, **more}
    return Planned(type="google_compute_router_nat", values=values, address="module.network.nat")


def database(**more: str) -> Planned:
    values = {"project": "project-1", "instance": f"{NAME}-1", "name": "resolute", **more}
    return Planned(type="google_sql_database", values=values, address="module.database.this")


def test_a_gateway_that_is_planned_is_taken_over(world: World, account: GoogleAccount) -> None:
    assert list(account.existing_parts([gateway()])) == [], "there is no router"
    world.project.create("google_compute_router", {**HERE, "region": REGION})
    assert list(account.existing_parts([gateway()])) == [], "it has no gateway"
    world.project.create("google_compute_router_nat", dict(gateway().values))
    (found,) = account.existing_parts([gateway(), gateway(name="another")])
    assert found.what == "gateway resolute-vision of router resolute-vision"
    assert world.project.adopt("google_compute_router_nat", found.id)["name"] == NAME
    assert found.address == "module.network.nat"


def test_a_database_that_is_planned_is_taken_over(world: World, account: GoogleAccount) -> None:
    unknown = Planned(type="google_sql_database", values={"project": "project-1", "name": "resolute"})
    assert list(account.existing_parts([database(), unknown])) == []
    world.project.create("google_sql_database", dict(database().values))
    (found,) = account.existing_parts([database(), database(instance="other"), database(name="another"), unknown])
    assert found.what == "database resolute of resolute-vision-1"
    assert world.project.adopt("google_sql_database", found.id)["instance"] == "resolute-vision-1"


def given(role: str, member: str, **condition: str) -> dict[str, Any]:
    return {"project": "project-1", "role": role, "member": member, "condition": [condition] if condition else None}


def test_roles_of_an_account_that_is_gone_are_taken_away_and_no_others(world: World, account: GoogleAccount) -> None:
    """Google marks a member whose account is deleted. Conditions of other members stay."""
    for each in (
        given("roles/logging.logWriter", f"serviceAccount:{ACCOUNT}"),
        given("projects/project-1/roles/resolute_vision_look", f"deleted:serviceAccount:{ACCOUNT}?uid=123"),
        given("roles/logging.logWriter", "serviceAccount:det-vision-master2@project-1.iam.gserviceaccount.com"),
        given("roles/viewer", "user:someone@example.org", title="Days", expression="true"),
    ):
        world.project.create("google_project_iam_member", each)
    commands = {each.what: each.command for each in account.left("vision")}
    assert commands.keys() == {
        f"role roles/logging.logWriter of {ACCOUNT}",
        f"role projects/project-1/roles/resolute_vision_look of {ACCOUNT}",
    }
    assert commands[f"role roles/logging.logWriter of {ACCOUNT}"] == (
        f"gcloud projects remove-iam-policy-binding project-1 --member 'serviceAccount:{ACCOUNT}' "
        "--role roles/logging.logWriter --all"
    )
    (orphan,) = account.orphans("vision", frozenset())
    orphan.remove()
    assert list(account.left("vision")) == []
    assert [each["role"] for each in world.project.of("google_project_iam_member")] == [
        "roles/logging.logWriter",
        "roles/viewer",
    ]


def test_roles_of_an_account_that_is_there_stay(world: World, account: GoogleAccount) -> None:
    made = {"project": "project-1", "account_id": "det-vision-master", "description": NAME}
    id_ = world.project.create("google_service_account", made)["id"]
    world.project.create("google_project_iam_member", given("roles/viewer", f"serviceAccount:{ACCOUNT}"))
    assert list(account.orphans("vision", frozenset({("google_service_account", id_)}))) == []


@pytest.mark.parametrize(
    ("cluster_id", "account_id"),
    [("vision", "det-vision-master"), ("a-cluster-with-a-long-name", "det-a-cluster-wi-ad94fc-master")],
)
def test_the_account_is_named_as_the_module_names_it(cluster_id: str, account_id: str) -> None:
    told = master_account(Place(project="project-1", region=REGION), cluster_id)
    assert told == f"{account_id}@project-1.iam.gserviceaccount.com"


def holding(directory: Path, *addresses: str) -> Terraform:
    """A program whose state has these."""
    lines = "".join(f"echo '{each}'\n" for each in addresses)
    program = directory / "terraform"
    program.write_text(f"#!/bin/sh\n{lines}")
    program.chmod(0o755)
    return Terraform(program=program, version=(1, 11, 4), directory=directory, environ={})


def test_a_bucket_that_was_kept_is_not_in_the_way_of_a_new_cluster(world: World, account: GoogleAccount) -> None:
    world.project.new_bucket(account.bucket_name("vision"))
    assert [each.what for each in account.left("vision")] == [f"bucket {account.bucket_name('vision')}"]
    assert in_the_way(account, "vision") == []


def test_a_state_that_holds_nothing_makes_no_orphans_of_a_cluster(
    world: World, account: GoogleAccount, tmp_path: Path
) -> None:
    """Parts that a first run left are its own; a database, and all that another directory knows of, are somebody's."""
    empty = holding(tmp_path, "data.google_compute_zones.all", "module.network.data.google_compute_zones.all")
    refuse_lost_state(account, empty, "vision", seen=False)
    world.project.create("google_compute_network", HERE)
    refuse_lost_state(account, empty, "vision", seen=True)
    with pytest.raises(
        InvalidInput, match=r"a cluster of that name \(network resolute-vision\).*--state-bucket that it"
    ):
        refuse_lost_state(account, empty, "vision", seen=False)
    labels = {"user_labels": {"resolute-deployment": "vision"}}
    world.project.create("google_sql_database_instance", {**HERE, "settings": [labels]})
    with pytest.raises(InvalidInput, match="does not contain it; restore the state, or remove the cluster with `down`"):
        refuse_lost_state(account, empty, "vision", seen=True)
    refuse_lost_state(account, holding(tmp_path, "module.network.google_compute_network.this[0]"), "vision", seen=False)
