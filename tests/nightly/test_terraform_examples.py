"""The examples of the Terraform modules are planned as they stand: AWS by its own provider on moto, Google Cloud by a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ssm.models import ssm_backends

from resolute_deploy.shipped import shipped
from resolute_provisioner.clouds.aws.fake_ec2 import CREDENTIALS, IMAGE
from support.deployed_aws import Aws, aws
from support.deployed_gcp import google_person
from support.terraform import terraform_environment

pytestmark = pytest.mark.timeout(1200)

WHEEL = "resolute_ml-0.1.0-py3-none-any.whl"


UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
KEYS = {name.lower(): CREDENTIALS[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
REGIONS = ("us-east-1", "us-west-2", "eu-central-1")


def publish_image(account: Aws) -> None:
    """The public parameter of Canonical, which moto has not and which nobody else may write."""
    for region in REGIONS:
        client = boto3.client("ssm", region_name=region, endpoint_url=account.url, **KEYS)
        client.put_parameter(Name="ubuntu", Value=IMAGE, Type="String")
        parameters = ssm_backends[DEFAULT_ACCOUNT_ID][region]._parameters
        versions = parameters.pop("ubuntu")
        versions[-1].name = UBUNTU
        parameters[UBUNTU] = versions


def examples(cloud: str) -> list[str]:
    found = sorted(each.name for each in (shipped("terraform") / cloud / "examples").iterdir())
    assert len(found) >= 4
    return found


def planned(directory: Path, cloud: str, example: str, environ: Mapping[str, str], **variables: Any) -> Counter[str]:
    """Types of what the example makes, with their numbers."""
    shutil.copytree(shipped("terraform"), directory / "terraform")
    place = directory / "terraform" / cloud / "examples" / example
    (place / WHEEL).write_bytes(b"no machine installs it")
    (place / "terraform.tfvars.json").write_text(json.dumps(variables))

    def terraform(*arguments: str) -> str:
        ran = subprocess.run(
            ["terraform", *arguments], cwd=place, env={**os.environ, **environ}, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
        return ran.stdout

    terraform("init", "-input=false", "-no-color")
    plan = terraform("plan", "-input=false", "-no-color", "-out=plan")
    assert "Warning" not in plan, plan
    told = json.loads(terraform("show", "-json", "plan"))
    return Counter(each["type"] for each in told["resource_changes"] if each["change"]["actions"] == ["create"])


@pytest.mark.needs("terraform")
@pytest.mark.parametrize("example", examples("aws"))
def test_an_example_for_aws(tmp_path: Path, example: str) -> None:
    with aws() as account:
        publish_image(account)
        variables: dict[str, Any] = {}
        if example == "existing-network":
            ec2 = account.client("ec2")
            network = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
            subnets = [
                ec2.create_subnet(VpcId=network, CidrBlock=f"10.9.{place}.0/24", AvailabilityZone=f"us-east-1{zone}")
                for place, zone in ((0, "a"), (1, "b"))
            ]
            variables = {"vpc_id": network, "subnet_ids": [each["Subnet"]["SubnetId"] for each in subnets]}
        environ = {**account.environment(), **terraform_environment(tmp_path / "settings")}
        made = planned(tmp_path / "module", "aws", example, environ, **variables)
    assert made["aws_instance"] == made["aws_db_instance"] == made["aws_s3_bucket"] == 1
    assert made["aws_vpc"] == (0 if example == "existing-network" else 1)
    assert made["aws_nat_gateway"] == made["aws_cloudwatch_log_group"] == (1 if example == "private" else 0)
    assert made["aws_efs_file_system"] == (1 if example == "shared-file-system" else 0)


@pytest.mark.needs("terraform program")
@pytest.mark.parametrize("example", examples("gcp"))
def test_an_example_for_google_cloud(tmp_path: Path, example: str) -> None:
    network = "projects/vision-123456/global/networks/ours"
    subnetwork = "projects/vision-123456/regions/us-west1/subnetworks/ours"
    variables = {"network": network, "subnetwork": subnetwork} if example == "existing-network" else {}
    with google_person(tmp_path) as person:
        made = planned(tmp_path / "module", "gcp", example, person.det.environ, **variables)
    assert made["google_compute_instance"] == made["google_sql_database_instance"] == made["google_storage_bucket"] == 1
    assert made["google_compute_network"] == (0 if example == "existing-network" else 1)
    assert made["google_compute_router_nat"] == (1 if example == "private" else 0)
    assert made["google_filestore_instance"] == (1 if example == "shared-file-system" else 0)
