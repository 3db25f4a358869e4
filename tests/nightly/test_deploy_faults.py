"""`det deploy aws up` and `down`, killed with -9 in the middle: the next run goes on, and nothing is left behind.

The wheel is a file that does not change: one that is made of a checkout is another when the checkout changes between two runs.

`make nightly` kills once each, `make deploy-faults` twenty times each. `RESOLUTE_DEPLOY_KILLS` says how many seeds there are.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from resolute_provisioner.clouds.aws.fake_ec2 import IMAGE
from support.deployed_aws import Aws, aws
from support.det import Det
from support.terraform import terraform_environment

pytestmark = [pytest.mark.needs("terraform"), pytest.mark.timeout(1200)]

RESOURCES = 44
"""Of a cluster with these flags; some are done in any order."""

SEEDS = range(1, int(os.environ.get("RESOLUTE_DEPLOY_KILLS", "1")) + 1)


class Person:
    """Runs the command, and may kill it."""

    def __init__(self, account: Aws, directory: Path) -> None:
        secret = account.secret("database", {"username": "resolute", "password": "password"})
        self.account = account
        self.det = Det(directory / "home")
        self.det.environ |= {**account.environment(), **terraform_environment(directory)}
        self.module = self.det.home / ".local" / "share" / "resolute" / "deploy" / "aws" / "vision" / "module"
        wheel = directory / "resolute_ml-1.0.0-py3-none-any.whl"
        wheel.write_bytes(b"no machine installs it")
        self.up = (
            *("up", "--cluster-id", "vision", "--keypair", "ops", "--no-wait-for-master", "--no-preflight-checks"),
            *("--wheel", str(wheel), "--master-image-id", IMAGE, "--no-bucket-tls-only", "--no-bucket-lifecycle"),
            *("--existing-database", "host=db", "port=5432", "name=resolute", "user=resolute", "ssl_mode=disable"),
            f"password_secret_arn={secret}",
        )
        self.down = ("down", "--cluster-id", "vision", "--yes", "--delete-checkpoints")

    def run(self, *arguments: str) -> str:
        ran = self.det.run("deploy", "aws", *arguments, within_s=600)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def run_and_kill(self, *arguments: str, log: str, done: int, with_terraform: bool) -> None:
        """Killed when `done` resources are done; without its Terraform that goes on alone."""
        running = subprocess.Popen(
            self.det.command("deploy", "aws", *arguments),
            env=self.det.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while running.poll() is None and self._done(log) < done:
            time.sleep(0.05)
        running.kill()
        running.wait()
        if with_terraform:
            for process in self._terraforms():
                process.kill()
            psutil.wait_procs(self._terraforms(), timeout=60)

    def _done(self, log: str) -> int:
        file = self.module / log
        return file.read_text().count('"type":"apply_complete"') if file.exists() else 0

    def _terraforms(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd() == str(self.module):
                    found.append(process)
            except (psutil.AccessDenied, psutil.NoSuchProcess, FileNotFoundError):
                continue
        return found

    def forget(self, *types: str) -> list[str]:
        """Takes all resources of some types out of the state, as if Terraform had been killed before it recorded them."""

        def terraform(*arguments: str) -> list[str]:
            command = ["terraform", f"-chdir={self.module}", "state", *arguments]
            return subprocess.run(
                command, env=self.det.environ, check=True, capture_output=True, text=True
            ).stdout.split()

        addresses = [each for each in terraform("list") if each.split(".")[-2] in types]
        terraform("rm", *addresses)
        return addresses

    def networks(self) -> int:
        return len([each for each in self.account.client("ec2").describe_vpcs()["Vpcs"] if not each["IsDefault"]])


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_killed_goes_on(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with aws() as account:
        person = Person(account, tmp_path)
        person.run_and_kill(
            *person.up, log="apply.log", done=chance.randint(0, RESOURCES), with_terraform=chance.random() < 0.75
        )
        person.run(*person.up)
        assert person.networks() == 1
        assert "Nothing would change" in person.run(
            "up", "--cluster-id", "vision", "--dry-run", "--no-preflight-checks"
        )
        person.run_and_kill(
            *person.down,
            log="destroy.log",
            done=chance.randint(0, RESOURCES - 2),
            with_terraform=chance.random() < 0.75,
        )
        if person.module.exists():  # else it was faster than the hand that was to kill it
            assert "nothing else of it is left" in person.run(*person.down)
        assert person.networks() == 0
        assert account.client("s3").list_buckets()["Buckets"] == []
        assert account.client("iam").list_roles()["Roles"] == []


def test_parts_of_recorded_resources_that_are_not_recorded(tmp_path: Path) -> None:
    with aws() as account:
        person = Person(account, tmp_path)
        person.run(*person.up)
        rules = ("aws_vpc_security_group_ingress_rule", "aws_vpc_security_group_egress_rule")
        forgotten = person.forget("aws_route", "aws_route_table_association", *rules)
        assert len(forgotten) == 12
        again = person.run(*person.up)
        assert again.count("which an interrupted run has left") == len(forgotten)
        assert "Nothing would change" in person.run(
            "up", "--cluster-id", "vision", "--dry-run", "--no-preflight-checks"
        )
