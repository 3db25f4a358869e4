"""What holds for the Terraform files of every cloud, read by python-hcl2."""

from __future__ import annotations

import subprocess
import sys

import pytest

from resolute_deploy.cloud import clouds
from resolute_deploy.shipped import CHECKOUT, shipped
from support.terraform_files import TerraformFiles, text

FILES = {cloud: TerraformFiles(cloud) for cloud in clouds()}


@pytest.mark.parametrize("cloud", FILES)
def test_every_variable_has_a_type_and_a_description(cloud: str) -> None:
    assert FILES[cloud].variables
    for name, body in FILES[cloud].variables:
        assert body["type"], name
        assert text(body["description"]).endswith("."), name


@pytest.mark.parametrize("cloud", FILES)
def test_nothing_is_open_to_people_by_itself(cloud: str) -> None:
    (inbound,) = [body for name, body in FILES[cloud].variables if name == "variables.tf:inbound_cidr"]
    assert inbound["default"] == []


@pytest.mark.parametrize("cloud", FILES)
def test_the_internet_needs_a_flag_that_says_so(cloud: str) -> None:
    ((_, _, checks),) = [each for each in FILES[cloud].blocks("resource") if each[1] == "terraform_data.checks"]
    conditions = [text(each["condition"]) for each in checks["lifecycle"][0]["precondition"]]
    assert any("allow_any_address" in condition and "0.0.0.0/0" in condition for condition in conditions)


@pytest.mark.parametrize("cloud", FILES)
def test_what_a_variable_may_be_is_checked(cloud: str) -> None:
    """All but those of which any text will do, and the switches."""
    free = {
        "master_instance_type",
        "db_instance_type",
        "db_snapshot",
        "wheel",
        "cpu_env_image",
        "gpu_env_image",
        "gpu_type",
    }
    unchecked = [
        name
        for name, body in FILES[cloud].variables
        if name.startswith("variables.tf:")
        and "validation" not in body
        and text(body["type"]) not in ("bool", "${bool}")
    ]
    assert {name.partition(":")[2] for name in unchecked} <= free


@pytest.mark.parametrize("cloud", FILES)
def test_a_machine_boots_into_what_is_there(cloud: str) -> None:
    """Its database takes minutes: the machine comes after the document that names it."""
    kind = {"aws": "aws_instance", "gcp": "google_compute_instance"}[cloud]
    (master,) = FILES[cloud].of(kind)
    assert next(text(each) for each in master["depends_on"]).endswith(".desired}")


@pytest.mark.parametrize("cloud", FILES)
def test_deletion_protection_is_a_variable(cloud: str) -> None:
    kind = {"aws": "aws_db_instance", "gcp": "google_sql_database_instance"}[cloud]
    (database,) = FILES[cloud].of(kind)
    assert text(database["deletion_protection"]) == "${var.deletion_protection}"


@pytest.mark.parametrize("cloud", FILES)
def test_agents_are_no_resources_of_terraform(cloud: str) -> None:
    machines = [name for _, name, _ in FILES[cloud].resources if name.split(".")[0].endswith("_instance")]
    assert [name for name in machines if name.split(".")[0] in ("aws_instance", "google_compute_instance")] in (
        ["aws_instance.this"],
        ["google_compute_instance.this"],
    )
    words = ("autoscal", "spot", "instance_group", "instance_template")
    assert not [name for _, name, _ in FILES[cloud].resources if any(word in name for word in words)]


@pytest.mark.parametrize("cloud", FILES)
def test_no_module_needs_a_provider_for_passwords(cloud: str) -> None:
    """What such a provider makes stands in the state."""
    for _, name, _ in FILES[cloud].resources:
        assert not name.startswith(("random_", "tls_", "local_")), name


def test_readmes_say_what_the_modules_say() -> None:
    """`python scripts/terraform_readme.py` writes them."""
    done = subprocess.run(
        [sys.executable, "scripts/terraform_readme.py", "--check"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("terraform program")
def test_files_are_formatted() -> None:
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-recursive", str(shipped("terraform"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
