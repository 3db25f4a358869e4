"""The whole module with its own database, by Terraform with the real provider: made, equal to its plan, changed in place, mended
after somebody took a part away, and removed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from resolute_provisioner.clouds.aws.fake_ec2 import IMAGE
from support.deployed_aws import Aws, aws
from support.det import Det
from support.terraform import terraform_environment

pytestmark = [pytest.mark.needs("terraform"), pytest.mark.timeout(1800)]


def test_a_cluster_with_its_own_database(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("database")
    with aws() as account:
        det = Det(directory / "home")
        det.environ |= {**account.environment(), **terraform_environment(directory)}

        def deploy(*arguments: str) -> str:
            ran = det.run("deploy", "aws", *arguments, within_s=900)
            assert ran.returncode == 0, ran.stdout + ran.stderr
            return ran.stdout + ran.stderr

        up = ("up", "--cluster-id", "vision", "--no-preflight-checks", "--no-wait-for-master")
        same = ("up", "--cluster-id", "vision", "--no-preflight-checks", "--dry-run")
        deploy(*up, "--keypair", "ops", "--master-image-id", IMAGE, "--no-bucket-tls-only", "--db-backup-days", "3")
        database = the_database(account)
        assert database["StorageEncrypted"] and not database["PubliclyAccessible"] and database["Engine"] == "postgres"
        assert password(account, database) not in state(det)
        assert "Nothing would change" in deploy(*same)

        assert "change 1" in deploy(*same, "--db-backup-days", "5")
        before = the_database(account)["DbiResourceId"]
        deploy(*up, "--db-backup-days", "5")
        assert (the_database(account)["BackupRetentionPeriod"], the_database(account)["DbiResourceId"]) == (5, before)

        (profile,) = [
            each
            for each in account.client("iam").list_instance_profiles()["InstanceProfiles"]
            if "agent" in each["InstanceProfileName"]
        ]
        account.client("iam").remove_role_from_instance_profile(
            InstanceProfileName=profile["InstanceProfileName"], RoleName=profile["Roles"][0]["RoleName"]
        )
        account.client("iam").delete_instance_profile(InstanceProfileName=profile["InstanceProfileName"])
        deploy(*up)
        assert "Nothing would change" in deploy(*same)

        assert "nothing else of it is left" in deploy("down", "--cluster-id", "vision", "--yes")
        assert account.client("rds").describe_db_instances()["DBInstances"] == []


def the_database(account: Aws) -> dict[str, Any]:
    (found,) = account.client("rds").describe_db_instances()["DBInstances"]
    told: dict[str, Any] = found
    return told


def password(account: Aws, database: dict[str, Any]) -> str:
    """Which RDS has made."""
    secret = account.client("secretsmanager").get_secret_value(SecretId=database["MasterUserSecret"]["SecretArn"])
    text: str = secret["SecretString"]
    return text if not text.startswith("{") else str(json.loads(text)["password"])


def state(det: Det) -> str:
    file = det.home / ".local" / "share" / "resolute" / "deploy" / "aws" / "vision" / "terraform.tfstate"
    return file.read_text()
