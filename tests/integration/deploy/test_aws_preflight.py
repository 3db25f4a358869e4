"""What `det deploy aws up` finds before anything is made, in a real account of moto."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.stub
import pytest

from resolute.errors import InvalidInput
from resolute_deploy.aws.account import AwsAccount
from resolute_deploy.aws.preflight import hourly_cost, preflight
from resolute_deploy.cloud import Finding, with_defaults
from resolute_deploy.cluster_directory import module_variables
from resolute_provisioner.clouds.aws.fake_ec2 import IMAGE
from support.deployed_aws import Aws, aws

GIVEN = {
    "cluster_id": "vision",
    "keypair": "ops",
    "master_image_id": IMAGE,
    "compute_image_id": IMAGE,
    "aux_image_id": IMAGE,
    "region": "us-east-1",
}


@pytest.fixture(scope="module")
def account_of_aws() -> Iterator[Aws]:
    with aws() as account:
        yield account


@pytest.fixture
def account(account_of_aws: Aws) -> Iterator[AwsAccount]:
    before = dict(os.environ)
    os.environ.update(account_of_aws.environment())
    try:
        yield AwsAccount(boto3.Session(region_name="us-east-1"))
    finally:
        os.environ.clear()
        os.environ.update(before)


def complete(given: dict[str, Any], account: AwsAccount) -> dict[str, Any]:
    return with_defaults(given, module_variables("aws"), account)


def found(account: AwsAccount, **given: Any) -> list[Finding]:
    return preflight(account, complete({**GIVEN, **given}, account), new=True)


def fatal(account: AwsAccount, **given: Any) -> str:
    return "\n".join(each.text for each in found(account, **given) if each.fatal)


def test_nothing_is_wrong_with_a_good_start(account: AwsAccount) -> None:
    assert fatal(account) == ""


def test_a_quota_that_cannot_be_read_is_a_warning(account: AwsAccount) -> None:
    """moto has no quotas of EC2."""
    assert [each.text for each in found(account)] == [
        "the quota L-DB2E81BA of EC2 cannot be read; 5 g5.xlarge need 20 vCPUs of it",
        "the quota L-1216C47A of EC2 cannot be read; 5 m5.xlarge need 20 vCPUs of it",
    ]


def test_a_quota_that_is_too_small_ends_it(account: AwsAccount) -> None:
    client = account.client("service-quotas")
    with botocore.stub.Stubber(client) as quotas:
        quotas.add_response("get_service_quota", {"Quota": {"Value": 8.0}})
        quotas.add_response("get_service_quota", {"Quota": {"Value": 64.0}})
        assert fatal(account) == (
            "5 g5.xlarge need 20 vCPUs, and the quota L-DB2E81BA of EC2 in us-east-1 is 8; "
            "ask for more in Service Quotas, or lower --max-dynamic-agents"
        )


def test_pools_that_share_a_quota_need_their_sum(account: AwsAccount) -> None:
    given = {"compute_agent_instance_type": ["m5.large", "c5.2xlarge"], "aux_agent_instance_type": ["m5.xlarge"]}
    with botocore.stub.Stubber(account.client("service-quotas")) as quotas:
        quotas.add_response("get_service_quota", {"Quota": {"Value": 59.0}})
        assert fatal(account, **given).startswith(
            "5 c5.2xlarge and 5 m5.xlarge need 60 vCPUs, and the quota L-1216C47A"
        )
    with botocore.stub.Stubber(account.client("service-quotas")) as quotas:
        quotas.add_response("get_service_quota", {"Quota": {"Value": 60.0}})
        assert fatal(account, **given) == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"keypair": "none"},
            "--keypair none: us-east-1 has no key pair of that name; make it with `aws ec2 create-key-pair",
        ),
        ({"compute_image_id": "ami-0000"}, "--compute-image-id ami-0000: us-east-1 has no such image"),
        ({"aux_image_id": "resolve:ssm:/no/such"}, "--aux-image-id resolve:ssm:/no/such: us-east-1 has no such image"),
        (
            {"compute_agent_instance_type": ["g5.huge"]},
            "--compute-agent-instance-type g5.huge: us-east-1 has no such machine type",
        ),
    ],
)
def test_what_is_not_there_is_named_with_its_flag(account: AwsAccount, given: dict[str, Any], words: str) -> None:
    assert words in fatal(account, **given)


def test_all_findings_come_at_once(account: AwsAccount) -> None:
    assert len(fatal(account, keypair="none", compute_image_id="ami-0000").splitlines()) == 2


def test_a_name_that_is_taken_says_by_what(account: AwsAccount, account_of_aws: Aws) -> None:
    ec2 = account_of_aws.client("ec2")
    tags = [{"ResourceType": "vpc", "Tags": [{"Key": "resolute-deployment", "Value": "taken"}]}]
    network = ec2.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=tags)["Vpc"]["VpcId"]
    words = fatal(account, cluster_id="taken")
    assert f"a cluster of that name exists already (network {network})" in words and "--state-bucket" in words


def test_a_region_that_does_not_exist(account: AwsAccount) -> None:
    elsewhere = AwsAccount(boto3.Session(region_name="mars-north-1"))
    with pytest.raises(InvalidInput, match="--region mars-north-1: AWS has no such region"):
        preflight(elsewhere, complete(GIVEN, elsewhere), new=True)


@pytest.mark.parametrize(
    ("code", "words"), [("ExpiredToken", "have expired"), ("InvalidClientTokenId", "does not accept the credentials")]
)
def test_credentials_that_do_not_open_the_account(account: AwsAccount, code: str, words: str) -> None:
    with botocore.stub.Stubber(account.client("sts")) as sts:
        sts.add_client_error("get_caller_identity", service_error_code=code)
        with pytest.raises(InvalidInput, match=words):
            account.number()


def test_a_profile_that_is_not_there() -> None:
    with pytest.raises(InvalidInput, match=r"--profile nobody: .*list-profiles"):
        AwsAccount.of({"profile": "nobody", "region": "us-east-1"})


def test_what_an_hour_costs_idle_and_full(account: AwsAccount) -> None:
    """The master at its price; 5 of the dearest type of each pool."""
    values = complete({**GIVEN, "compute_agent_instance_type": ["g5.xlarge", "g6.xlarge"]}, account)
    cost = hourly_cost(values, "us-east-1")
    assert cost.idle == pytest.approx(0.096)
    assert cost.full == pytest.approx(0.096 + 5 * (1.006 + 0.192))


def test_an_unknown_price_is_unknown(account: AwsAccount) -> None:
    values = complete({**GIVEN, "compute_agent_instance_type": ["g99.xlarge"]}, account)
    assert hourly_cost(values, "us-east-1").full is None
