"""`make demo CLOUD=aws`: a production cluster from nothing to nothing, on an AWS of this machine.

Terraform and its provider are the real ones, and so are boto3, PostgreSQL and the machines' user data; the account is moto, and its
machines are processes in namespaces of their own. Needs root, Terraform with the AWS provider, and PostgreSQL.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from support.booted_machines import can_boot
from support.deploy_story import Story, deploy_story
from support.deployed_aws import aws_world
from support.postgres import find_programs
from support.terraform import terraform_runs

NEEDS = (
    (can_boot, "root, `ip` and network namespaces, for the machines"),
    (terraform_runs, "terraform, and a mirror of the AWS provider (RESOLUTE_TERRAFORM_MIRROR)"),
    (lambda: find_programs() is not None, "PostgreSQL, for the database"),
)


def claims(story: Story) -> dict[str, bool]:
    """What was promised, and whether it came true."""
    return {
        "the master serves TLS with a certificate that `up` has fetched": story.certificate.startswith("-----BEGIN"),
        "the experiment was trained on a machine that the master bought": (
            story.experiment["experiment"]["state"].endswith("COMPLETED") and len(story.world.bridge.machines) == 2
        ),
        "its checkpoint is in the bucket": any(key.endswith("/weights") for key in story.objects),
        "a second `up` has nothing to change": "Nothing would change" in story.again,
        "`down` leaves nothing in the account": story.left == [],
    }


def main() -> int:
    """0 when every claim was proven."""
    console = Console(highlight=False, soft_wrap=True)
    missing = [what for there, what in NEEDS if not there()]
    if missing:
        console.print(f"This demonstration needs {'; '.join(missing)}.", style="red")
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="resolute-demo-cloud-") as directory,
        aws_world(Path(directory)) as world,
    ):
        console.print(f"An AWS account answers at {world.account.url}")
        try:
            told = claims(deploy_story(world, lambda text: console.print(text, markup=False)))
        except AssertionError as error:
            console.print(f"The demonstration failed: {error}", style="red", markup=False)
            return 1
    for text, true in told.items():
        console.print(f"{'proven' if true else 'NOT proven':>10}  {text}", style=None if true else "red", markup=False)
    console.print(f"{sum(told.values())} of {len(told)} claims proven")
    return 0 if all(told.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
