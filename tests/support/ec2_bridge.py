"""What EC2 does with a launch, done here: machines that moto has running are booted with the user data that it holds, those that
it ends lose their power, and those that power themselves off are ended in moto."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from support.booted_machines import BootedMachine, Network
from support.moto_ec2 import REGION, Ec2Front

LOOK_S = 0.2


class Ec2Bridge:
    def __init__(self, front: Ec2Front, directory: Path, network: Network) -> None:
        self.machines: dict[str, BootedMachine] = {}
        """Every one that was ever booted, by EC2's id."""
        self._front = front
        self._directory = directory
        self._network = network
        self._ends_at: dict[str, float] = {}
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ec2: Any = boto3.client(
            "ec2",
            region_name=REGION,
            endpoint_url=front.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )

    @contextmanager
    def watching(self) -> Iterator[Ec2Bridge]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            for machine in self.machines.values():
                machine.remove()
            self._ec2.close()
        self.check()

    def check(self) -> None:
        """Raises what has broken the bridge."""
        if self._failure is not None:
            raise self._failure

    def living(self) -> list[str]:
        return sorted(name for name, machine in self.machines.items() if machine.runs)

    def interrupt(self, machine_id: str, notice_s: float) -> datetime:
        """EC2 takes a spot machine back: its metadata says so, and after `notice_s` it is gone. Returns the time told."""
        ends_at = (datetime.now(UTC) + timedelta(seconds=notice_s)).replace(microsecond=0)
        self._ends_at[machine_id] = time.monotonic() + notice_s
        told = {"action": "terminate", "time": f"{ends_at:%Y-%m-%dT%H:%M:%SZ}"}
        self.machines[machine_id].tell({"/latest/meta-data/spot/instance-action": json.dumps(told)})
        return ends_at

    def recommend_rebalance(self, machine_id: str) -> None:
        told = json.dumps({"noticeTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"})
        self.machines[machine_id].tell({"/latest/meta-data/events/recommendations/rebalance": told})

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_S):
                self._look()
        except BaseException as error:
            self._failure = error

    def _look(self) -> None:
        for machine_id, ends_at in list(self._ends_at.items()):
            if time.monotonic() >= ends_at:
                del self._ends_at[machine_id]
                self._front.interrupt(machine_id)
        states = {
            each["InstanceId"]: each["State"]["Name"]
            for reservation in self._ec2.describe_instances()["Reservations"]
            for each in reservation["Instances"]
        }
        for machine_id, state in states.items():
            machine = self.machines.get(machine_id)
            if machine is None and state == "running":
                self._boot(machine_id)
            elif machine is not None and machine.powered_itself_off and state == "running":
                self._front.power_off(machine_id)
            elif machine is not None and machine.runs and state not in ("pending", "running"):
                machine.cut()

    def _boot(self, machine_id: str) -> None:
        answer = self._ec2.describe_instance_attribute(InstanceId=machine_id, Attribute="userData")
        user_data = base64.b64decode(answer["UserData"]["Value"])
        assert user_data == self._front.user_data(machine_id), "the machine is not booted with what moto holds"
        self.machines[machine_id] = BootedMachine(
            self._directory / machine_id,
            self._network,
            user_data,
            {"/latest/meta-data/instance-id": machine_id},
            "support.imds_main",
        )


@contextmanager
def ec2_bridge(front: Ec2Front, directory: Path) -> Iterator[tuple[Ec2Bridge, Network]]:
    network = Network()
    with network.up(), Ec2Bridge(front, directory, network).watching() as bridge:
        yield bridge, network
