"""The bridge of EC2: machines boot with the user data in moto, and their metadata service publishes their end."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Set
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from resolute_provisioner.clouds.aws.fake_ec2 import REGION, Ec2Front
from support.booted_machines import BootedMachine, Network
from support.cloud_bridge import CloudBridge


class Ec2Bridge(CloudBridge):
    def __init__(self, front: Ec2Front, ec2: Any, directory: Path, network: Network) -> None:
        """`ec2` is a client of `front`."""
        super().__init__(directory, network)
        self._front = front
        self._ends_at: dict[str, float] = {}
        self._ec2 = ec2

    def interrupt(self, machine_id: str, notice_s: float) -> datetime:
        """EC2 interrupts a spot machine: its metadata contains the notice, and it ends after `notice_s`. Returns the announced
        time."""
        ends_at = (datetime.now(UTC) + timedelta(seconds=notice_s)).replace(microsecond=0)
        self._ends_at[machine_id] = time.monotonic() + notice_s
        told = {"action": "terminate", "time": f"{ends_at:%Y-%m-%dT%H:%M:%SZ}"}
        self.machines[machine_id].tell({"/latest/meta-data/spot/instance-action": json.dumps(told)})
        return ends_at

    def recommend_rebalance(self, machine_id: str) -> None:
        told = json.dumps({"noticeTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"})
        self.machines[machine_id].tell({"/latest/meta-data/events/recommendations/rebalance": told})

    def _look(self) -> None:
        for machine_id, ends_at in list(self._ends_at.items()):
            if time.monotonic() >= ends_at:
                del self._ends_at[machine_id]
                self._front.interrupt(machine_id)
        super()._look()

    def _running(self) -> tuple[Set[str], Set[str]]:
        states = {machine_id: machine.state for machine_id, machine in self._front.machines().items()}
        running = {machine_id for machine_id, state in states.items() if state == "running"}
        return running, running | {machine_id for machine_id, state in states.items() if state == "pending"}

    def _power_off(self, name: str) -> None:
        self._front.power_off(name)

    def _booted(self, name: str) -> BootedMachine:
        answer = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")
        user_data = base64.b64decode(answer["UserData"]["Value"])
        assert user_data == self._front.user_data(name), "the machine is not booted with what moto holds"
        told = {"/latest/meta-data/instance-id": name}
        return BootedMachine(self._directory / name, self._network, user_data, told, "support.imds_main")


@contextmanager
def ec2_bridge(front: Ec2Front, directory: Path) -> Iterator[tuple[Ec2Bridge, Network]]:
    network = Network()
    ec2: Any = boto3.client(
        "ec2",
        region_name=REGION,
        endpoint_url=front.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )
    with closing(ec2), network.up(), Ec2Bridge(front, ec2, directory, network).watching() as bridge:
        yield bridge, network
