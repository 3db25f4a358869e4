"""Google Cloud for `det deploy gcp`: one project for Terraform, master and agents, without an account."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from resolute_provisioner.clouds.gcp.fake_compute_engine import PROJECT, Times
from support.booted_machines import BootedMachine, Network
from support.deployed import PIP_OPTIONS, database_of_cluster, det_deploy, wheelhouse
from support.det import Det
from support.gce_bridge import GceBridge
from support.google_project import REGION, GoogleProject, google_project
from support.postgres import PASSWORD
from support.terraform_provider import google_provider

FLAGS = ("--cluster-id", "vision", "--project-id", PROJECT, "--region", REGION)
METADATA = "169.254.169.254"
ACCOUNT = "instance/service-accounts/default/"


@dataclass
class GooglePerson:
    """Runs `det deploy gcp ...` with the project's credentials."""

    project: GoogleProject
    det: Det
    wheel: Path

    @property
    def directory(self) -> Path:
        return self.det.home / ".local" / "share" / "resolute" / "deploy" / "gcp" / "vision"

    def deploy(self, *arguments: str) -> str:
        return det_deploy("gcp", self.det, *arguments, variables={})

    def refused(self, *arguments: str) -> str:
        ran = self.det.run("deploy", "gcp", *arguments, within_s=600)
        assert ran.returncode == 1, f"{ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stderr


@contextmanager
def google_person(directory: Path, address: str = "127.0.0.1", times: Times | None = None) -> Iterator[GooglePerson]:
    with ExitStack() as stack:
        world = stack.enter_context(google_project(directory, address, times))
        # The path of a socket is short.
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tf-")))
        provider = stack.enter_context(google_provider(world.project, sockets))
        det = Det(directory / "home")
        det.environ |= {**world.environ, **provider}
        wheel = directory / "resolute_ml-0.1.0-py3-none-any.whl"
        wheel.write_bytes(b"a wheel")
        yield GooglePerson(project=world.project, det=det, wheel=wheel)


class DeployedBridge(GceBridge):
    """Machines have an account of the project, and register their address."""

    def _booted(self, name: str) -> BootedMachine:
        machine = super()._booted(name)
        token = {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}
        account = {"email": "machine@example.org", "scopes": ["cloud-platform"], "aliases": ["default"]}
        machine.tell(
            {
                "/": "computeMetadata/",
                "project/project-id": PROJECT,
                "instance/network-interfaces/0/ip": machine.address,
                ACCOUNT: json.dumps(account),
                f"{ACCOUNT}token": json.dumps(token),
            }
        )
        return machine


@dataclass
class GoogleWorld:
    """Obeys `DeployWorld`."""

    person: GooglePerson
    bridge: DeployedBridge
    directory: Path
    flags: tuple[str, ...]
    variables: Mapping[str, str]
    cloud: str = "gcp"

    def deploy(self, *arguments: str) -> str:
        return det_deploy(self.cloud, self.person.det, *arguments, variables=self.variables)

    def master(self, machine: str) -> BootedMachine:
        return self.bridge.machines[machine.rpartition("/")[2]]

    def checkpoints(self, bucket: str) -> list[str]:
        return self.person.project.objects(bucket, "checkpoints/")

    def remaining(self) -> list[str]:
        return self.person.project.remaining()


@contextmanager
def google_world(directory: Path) -> Iterator[GoogleWorld]:
    with ExitStack() as stack:
        network = stack.enter_context(Network().up())
        person = stack.enter_context(google_person(directory, network.host, Times(operation_s=0.2, staging_s=0.3)))
        database = stack.enter_context(database_of_cluster(network))
        secret = person.project.secret("database", PASSWORD)
        bridge = DeployedBridge(person.project.engine, directory / "machines", network)
        stack.enter_context(bridge.watching())
        flags = (
            *(*FLAGS, "--inbound-cidr", "10.0.0.0/8", "--preemptible"),
            *("--compute-agent-instance-type", "n1-standard-8", "--gpu-num", "0", "--max-idle-agent-period", "5s"),
            *("--container-runtime", "process"),
            *("--existing-database", *database, f"password_secret={secret}"),
            *("--pip-options", f"{PIP_OPTIONS} --find-links={wheelhouse(directory / 'wheels')}"),
        )
        variables = {"GCE_METADATA_HOST": METADATA}
        yield GoogleWorld(person=person, bridge=bridge, directory=directory, flags=flags, variables=variables)
