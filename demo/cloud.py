"""`make demo CLOUD=aws` and `make demo CLOUD=gcp`: creates and destroys a production cluster on an emulated cloud.

Terraform, the vendor's client libraries, PostgreSQL and the machines' boot scripts are real. moto emulates AWS, with Terraform's
real provider. A fake that is checked with Google's discovery documents emulates Google Cloud, with a provider that is generated
from the published schema. Machines are processes in separate namespaces. The demonstration needs root, Terraform and PostgreSQL,
and for AWS a mirror of its provider.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from support.booted_machines import can_boot
from support.deploy_scenario import Scenario, deploy_scenario
from support.deployed import DeployWorld
from support.deployed_aws import aws_world
from support.deployed_gcp import google_world
from support.postgres import find_programs
from support.terraform import terraform_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An emulated cloud. `needs` lists its requirements."""

    world: Callable[[Path], AbstractContextManager[DeployWorld]]
    runs: Callable[[], bool]
    needs: str


STAGES: Mapping[str, Stage] = {
    "aws": Stage(
        world=aws_world,
        runs=terraform_runs,
        needs="terraform, and a mirror of the AWS provider (RESOLUTE_TERRAFORM_MIRROR)",
    ),
    "gcp": Stage(world=google_world, runs=lambda: shutil.which("terraform") is not None, needs="terraform"),
}
NEEDS = (
    (can_boot, "root, `ip` and network namespaces, for the machines"),
    (lambda: find_programs() is not None, "PostgreSQL, for the database"),
)


def claims(scenario: Scenario) -> dict[str, bool]:
    """The claims, and whether each holds."""
    return {
        "the master serves TLS with a certificate that `up` has fetched": scenario.certificate.startswith("-----BEGIN"),
        "the experiment was trained on a machine that the master bought": (
            scenario.experiment["experiment"]["state"].endswith("COMPLETED")
            and len(scenario.world.bridge.machines) == 2
        ),
        "its checkpoint is in the bucket": any(key.endswith("/weights") for key in scenario.objects),
        "a second `up` has nothing to change": "Nothing would change" in scenario.again,
        "`down` leaves nothing in the account": scenario.left == [],
    }


def main() -> int:
    """Returns 0 if every claim holds."""
    console = Console(highlight=False, soft_wrap=True)
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in STAGES:
        console.print(f"CLOUD={name}: there is no such demonstration; take {' or '.join(STAGES)}.", style="red")
        return 2
    stage = STAGES[name]
    missing = [what for there, what in (*NEEDS, (stage.runs, stage.needs)) if not there()]
    if missing:
        console.print(f"This demonstration needs {'; '.join(missing)}.", style="red")
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="resolute-demo-cloud-") as directory,
        stage.world(Path(directory)) as world,
    ):
        try:
            told = claims(deploy_scenario(world, lambda text: console.print(text, markup=False)))
        except AssertionError as error:
            console.print(f"The demonstration failed: {error}", style="red", markup=False)
            return 1
    for text, true in told.items():
        console.print(f"{'proven' if true else 'NOT proven':>10}  {text}", style=None if true else "red", markup=False)
    console.print(f"{sum(told.values())} of {len(told)} claims proven")
    return 0 if all(told.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
