"""AWS for `det deploy aws`: one moto for Terraform, master and agents, and machines that boot with the user data it holds."""

from __future__ import annotations

import base64
import json
import logging
import os
import urllib.request
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from resolute_provisioner.clouds.aws.fake_ec2 import ACCOUNT, CREDENTIALS, IMAGE, REGION
from support.booted_machines import BootedMachine, Network
from support.cloud_bridge import CloudBridge
from support.deployed import PIP_OPTIONS, database_of_cluster, det_deploy, wheelhouse
from support.det import Det
from support.postgres import PASSWORD, USER
from support.terraform import terraform_environment

ROLE = "role"


@dataclass
class Aws:
    """One account. `client` creates a real client."""

    url: str

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def environment(self) -> dict[str, str]:
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def secret(self, name: str, value: dict[str, str]) -> str:
        arn: str = self.client("secretsmanager").create_secret(Name=name, SecretString=json.dumps(value))["ARN"]
        return arn


@contextmanager
def aws(address: str = "127.0.0.1") -> Iterator[Aws]:
    """An account with the key pair `ops`."""
    os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"  # Amazon's managed policies exist.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        account = Aws(url=f"http://{host}:{port}")
        urllib.request.urlopen(
            f"{account.url}/moto-api/reset", data=b""
        ).close()  # moto's state belongs to the process.
        account.client("ec2").create_key_pair(KeyName="ops")
        yield account
    finally:
        server.stop()
        del os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"]


class AwsBridge(CloudBridge):
    """Machines boot with the user data in moto, with their own role and an address of the network."""

    def __init__(self, account: Aws, directory: Path, network: Network) -> None:
        super().__init__(directory, network)
        self._ec2 = account.client("ec2")

    def _running(self) -> tuple[Set[str], Set[str]]:
        """Reads moto's state directly: five requests per second would cost more than all requests of Terraform."""
        from moto.ec2.models import ec2_backends

        groups = list(ec2_backends[ACCOUNT][REGION].reservations.values())
        running = {each.id for group in groups for each in group.instances if each.state == "running"}
        return running, running

    def _power_off(self, name: str) -> None:
        self._ec2.terminate_instances(InstanceIds=[name])

    def _booted(self, name: str) -> BootedMachine:
        held = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]["Value"]
        end = datetime.now(UTC) + timedelta(hours=6)
        role = {
            "Code": "Success",
            "AccessKeyId": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "SecretAccessKey": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "Token": "token",
            "Expiration": f"{end:%Y-%m-%dT%H:%M:%SZ}",
        }
        told = {
            "/latest/meta-data/instance-id": name,
            "/latest/meta-data/iam/security-credentials/": ROLE,
            f"/latest/meta-data/iam/security-credentials/{ROLE}": json.dumps(role),
        }
        machine = BootedMachine(
            self._directory / name, self._network, base64.b64decode(held), told, "support.imds_main"
        )
        machine.tell({"/latest/meta-data/local-ipv4": machine.address})
        return machine


@dataclass
class AwsWorld:
    """Obeys `DeployWorld`."""

    account: Aws
    bridge: AwsBridge
    directory: Path
    flags: tuple[str, ...]
    cloud: str = "aws"

    def deploy(self, *arguments: str) -> str:
        variables = {**self.account.environment(), **terraform_environment(self.directory)}
        return det_deploy(self.cloud, Det(self.directory / "home"), *arguments, variables=variables)

    def master(self, machine: str) -> BootedMachine:
        return self.bridge.machines[machine]

    def checkpoints(self, bucket: str) -> list[str]:
        told = self.account.client("s3").list_objects_v2(Bucket=bucket, Prefix="checkpoints/")
        return [each["Key"] for each in told.get("Contents", ())]

    def remaining(self) -> list[str]:
        client = self.account.client
        alive = [
            each["InstanceId"]
            for group in client("ec2").describe_instances()["Reservations"]
            for each in group["Instances"]
            if each["State"]["Name"] != "terminated"
        ]
        networks = [each["VpcId"] for each in client("ec2").describe_vpcs()["Vpcs"] if not each["IsDefault"]]
        buckets = [each["Name"] for each in client("s3").list_buckets()["Buckets"]]
        secrets = [
            each["Name"] for each in client("secretsmanager").list_secrets()["SecretList"] if each["Name"] != "database"
        ]
        roles = [each["RoleName"] for each in client("iam").list_roles()["Roles"]]
        addresses = [each["PublicIp"] for each in client("ec2").describe_addresses()["Addresses"]]
        return alive + networks + buckets + secrets + roles + addresses


@contextmanager
def aws_world(directory: Path) -> Iterator[AwsWorld]:
    with ExitStack() as stack:
        network = stack.enter_context(Network().up())
        account = stack.enter_context(aws(network.host))
        database = stack.enter_context(database_of_cluster(network))
        secret = account.secret("database", {"username": USER, "password": PASSWORD})
        bridge = stack.enter_context(AwsBridge(account, directory / "machines", network).watching())
        flags = (
            *("--cluster-id", "vision", "--keypair", "ops", "--inbound-cidr", "10.0.0.0/8"),
            *("--master-image-id", IMAGE, "--compute-image-id", IMAGE, "--aux-image-id", IMAGE),
            *("--compute-agent-instance-type", "m5.large", "--aux-agent-instance-type", "m5.large"),
            *("--no-bucket-tls-only", "--no-bucket-lifecycle", "--max-idle-agent-period", "5s"),
            *("--container-runtime", "process"),
            *("--existing-database", *database, f"password_secret_arn={secret}"),
            *("--pip-options", f"{PIP_OPTIONS} --find-links={wheelhouse(directory / 'wheels')}"),
        )
        yield AwsWorld(account=account, bridge=bridge, directory=directory, flags=flags)
