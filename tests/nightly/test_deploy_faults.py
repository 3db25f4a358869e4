"""`det deploy aws up` and `down`, killed with -9 in the middle: the next run goes on, and nothing is left behind.

The wheel is a file that does not change: one that is made of a checkout is another when the checkout changes between two runs.

`make nightly` kills once each, `make deploy-faults` twenty times each. `RESOLUTE_DEPLOY_KILLS` says how many seeds there are.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from resolute_provisioner.clouds.aws.fake_ec2 import IMAGE
from support.deployed_aws import Aws, aws
from support.det import Det
from support.killed_deploys import DOWN, SAME, SEEDS, UNHURRIED, Person
from support.terraform import terraform_environment

pytestmark = [pytest.mark.needs("terraform"), pytest.mark.timeout(1200)]

RESOURCES = 44
"""Resources of a cluster with these flags; some are created in any order."""


class AwsPerson(Person):
    def __init__(self, account: Aws, directory: Path) -> None:
        super().__init__("aws", Det(directory / "home"))
        secret = account.secret("database", {"username": "resolute", "password": "password"})
        self.account = account
        self.det.environ |= {**account.environment(), **terraform_environment(directory)}
        wheel = directory / "resolute_ml-1.0.0-py3-none-any.whl"
        wheel.write_bytes(b"no machine installs it")
        self.up = (
            *("up", "--cluster-id", "vision", "--keypair", "ops", *UNHURRIED),
            *("--wheel", str(wheel), "--master-image-id", IMAGE, "--no-bucket-tls-only", "--no-bucket-lifecycle"),
            *("--existing-database", "host=db", "port=5432", "name=resolute", "user=resolute", "ssl_mode=disable"),
            f"password_secret_arn={secret}",
        )

    def networks(self) -> int:
        return len([each for each in self.account.client("ec2").describe_vpcs()["Vpcs"] if not each["IsDefault"]])


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_killed_goes_on(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with aws() as account:
        person = AwsPerson(account, tmp_path)
        person.run_and_kill(chance, *person.up, log="apply.log", resources=RESOURCES)
        person.run(*person.up)
        assert person.networks() == 1
        assert "Nothing would change" in person.run(*SAME)
        person.run_and_kill(chance, *DOWN, log="destroy.log", resources=RESOURCES - 2)
        if person.module.exists():  # else it was faster than the hand that was to kill it
            assert "nothing else of it is left" in person.run(*DOWN)
        assert person.networks() == 0
        assert account.client("s3").list_buckets()["Buckets"] == []
        assert account.client("iam").list_roles()["Roles"] == []


def test_parts_of_recorded_resources_that_are_not_recorded(tmp_path: Path) -> None:
    with aws() as account:
        person = AwsPerson(account, tmp_path)
        person.run(*person.up)
        rules = ("aws_vpc_security_group_ingress_rule", "aws_vpc_security_group_egress_rule")
        forgotten = person.forget("aws_route", "aws_route_table_association", *rules)
        assert len(forgotten) == 12
        again = person.run(*person.up)
        assert again.count("which an interrupted run has left") == len(forgotten)
        assert "Nothing would change" in person.run(*SAME)
