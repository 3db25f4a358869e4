"""What holds for every Terraform file of ours, read by python-hcl2."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest

from resolute_deploy.shipped import CHECKOUT, shipped

AWS = shipped("terraform") / "aws"
FILES = sorted(AWS.rglob("*.tf"))
UNTAGGED = {
    # Parts of another resource, which has the tags; and what has none on AWS.
    "aws_efs_mount_target": True,
    "aws_eip_association": True,
    "aws_iam_role_policy": True,
    "aws_iam_role_policy_attachment": True,
    "aws_route": True,
    "aws_route_table_association": True,
    "aws_s3_bucket_lifecycle_configuration": True,
    "aws_s3_bucket_policy": True,
    "aws_s3_bucket_public_access_block": True,
    "aws_s3_bucket_server_side_encryption_configuration": True,
    "aws_s3_bucket_versioning": True,
    "aws_s3_object": True,  # by the provider's default tags where these are wanted
    "terraform_data": True,
}


def text(value: Any) -> str:
    """Without the quotes and braces that python-hcl2 keeps."""
    return str(value).strip('"')


def blocks(kind: str) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """File, labels with dots between them, and body."""
    for file in FILES:
        with file.open() as content:
            for block in hcl2.load(content).get(kind, []):
                labels = []
                while len(block) == 1 and isinstance(next(iter(block.values())), dict):
                    ((label, block),) = block.items()
                    labels.append(text(label))
                yield file, ".".join(labels), block


VARIABLES = [(f"{file.relative_to(AWS)}:{name}", body) for file, name, body in blocks("variable")]
RESOURCES = [(f"{file.relative_to(AWS)}:{name}", name, body) for file, name, body in blocks("resource")]


def of(kind: str) -> list[dict[str, Any]]:
    found = [body for _, name, body in RESOURCES if name.startswith(f"{kind}.")]
    assert found, f"there is no {kind}"
    return found


@pytest.mark.parametrize(("name", "body"), VARIABLES, ids=[name for name, _ in VARIABLES])
def test_every_variable_has_a_type_and_a_description(name: str, body: dict[str, Any]) -> None:
    assert body["type"]
    assert text(body["description"]).endswith(".")


@pytest.mark.parametrize(("place", "name", "body"), RESOURCES, ids=[place for place, _, _ in RESOURCES])
def test_every_resource_that_can_be_is_tagged(place: str, name: str, body: dict[str, Any]) -> None:
    kind = name.partition(".")[0]
    assert ("tags" in body) is not UNTAGGED.get(kind, False)


def test_nothing_is_open_to_the_internet_by_itself() -> None:
    """Rules that let connections in take their networks from `inbound_cidr`, which is empty unless somebody says more."""
    rules = of("aws_vpc_security_group_ingress_rule")
    assert {text(rule["cidr_ipv4"]) for rule in rules if "cidr_ipv4" in rule} == {"${each.value}"}
    assert not any("ingress" in group for group in of("aws_security_group"))
    (inbound,) = [body for name, body in VARIABLES if name == "variables.tf:inbound_cidr"]
    assert inbound["default"] == []


def test_the_internet_needs_a_flag_that_says_so() -> None:
    ((_, _, checks),) = [each for each in blocks("resource") if each[1] == "terraform_data.checks"]
    conditions = [text(each["condition"]) for each in checks["lifecycle"][0]["precondition"]]
    assert any("allow_any_address" in condition and "0.0.0.0/0" in condition for condition in conditions)


def test_no_right_is_a_wildcard() -> None:
    for file, name, body in blocks("data"):
        if not name.startswith("aws_iam_policy_document."):
            continue
        for statement in body.get("statement", []):
            if text(statement.get("effect", "Allow")) == "Deny":
                continue
            actions = [text(action) for action in statement["actions"]]
            assert not [action for action in actions if "*" in action], (file, name)
            if text(statement.get("resources", [""])[0]) == "*":
                assert all(re.search(r":(Describe|Get)", action) for action in actions), (file, name)


def test_the_master_launches_and_ends_what_carries_the_clusters_tag() -> None:
    ((_, _, master),) = [each for each in blocks("data") if each[1] == "aws_iam_policy_document.master"]
    bound = {
        text(each["sid"]): text(each["condition"][0]["variable"]) for each in master["statement"] if "condition" in each
    }
    assert bound["LaunchTagged"] == "aws:RequestTag/${var.agent_tag.key}"
    assert bound["EndTagged"] == "aws:ResourceTag/${var.agent_tag.key}"
    instances = [
        text(each["sid"])
        for each in master["statement"]
        if any("instance/" in text(resource) for resource in each.get("resources", []))
    ]
    assert instances == ["LaunchTagged"]


def test_everything_stored_is_encrypted_and_private() -> None:
    (database,) = of("aws_db_instance")
    assert database["storage_encrypted"] is True and database["publicly_accessible"] is False
    assert database["manage_master_user_password"] is True and "password" not in database
    (master,) = of("aws_instance")
    assert master["root_block_device"][0]["encrypted"] is True
    (files,) = of("aws_efs_file_system")
    assert files["encrypted"] is True
    assert of("aws_s3_bucket_server_side_encryption_configuration")
    (block,) = of("aws_s3_bucket_public_access_block")
    assert all(
        block[key] is True
        for key in ("block_public_acls", "block_public_policy", "ignore_public_acls", "restrict_public_buckets")
    )


def test_the_metadata_service_answers_with_tokens_only() -> None:
    assert all(text(each["metadata_options"][0]["http_tokens"]) == "required" for each in of("aws_instance"))


def test_no_subnet_gives_addresses_by_itself() -> None:
    assert all(each["map_public_ip_on_launch"] is False for each in of("aws_subnet"))


def test_deletion_protection_is_a_variable() -> None:
    (database,) = of("aws_db_instance")
    assert text(database["deletion_protection"]) == "${var.deletion_protection}"
    assert text(database["skip_final_snapshot"]) == "${!var.deletion_protection}"


def test_agents_are_no_resources_of_terraform() -> None:
    assert [name for _, name, _ in RESOURCES if name.startswith("aws_instance.")] == ["aws_instance.this"]
    assert not [name for _, name, _ in RESOURCES if "autoscaling" in name or "spot" in name]


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


@pytest.mark.needs("terraform")
def test_files_are_formatted() -> None:
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-recursive", str(AWS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
