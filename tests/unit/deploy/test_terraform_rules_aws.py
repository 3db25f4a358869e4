"""What holds for the Terraform files of AWS, read by python-hcl2."""

from __future__ import annotations

import re

from support.terraform_files import TerraformFiles, text

AWS = TerraformFiles("aws")
of = AWS.of
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


def test_every_resource_that_can_be_is_tagged() -> None:
    assert AWS.resources
    for place, name, body in AWS.resources:
        kind = name.partition(".")[0]
        assert ("tags" in body) is not UNTAGGED.get(kind, False), place


def test_nothing_is_open_to_the_internet_by_itself() -> None:
    """Rules that let connections in take their networks from `inbound_cidr`, which is empty unless somebody says more."""
    rules = of("aws_vpc_security_group_ingress_rule")
    assert {text(rule["cidr_ipv4"]) for rule in rules if "cidr_ipv4" in rule} == {"${each.value}"}
    assert not any("ingress" in group for group in of("aws_security_group"))


def test_no_right_is_a_wildcard() -> None:
    for file, name, body in AWS.blocks("data"):
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
    ((_, _, master),) = [each for each in AWS.blocks("data") if each[1] == "aws_iam_policy_document.master"]
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


def test_a_database_that_is_protected_leaves_a_last_snapshot() -> None:
    (database,) = of("aws_db_instance")
    assert text(database["skip_final_snapshot"]) == "${!var.deletion_protection}"
