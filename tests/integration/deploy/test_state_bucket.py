"""The state in a bucket with a lock, and the locked provider: real Terraform, and an S3 on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resolute_deploy.aws.deployment import DEPLOYMENT
from resolute_deploy.cluster_directory import LOCK, ClusterDirectory
from resolute_deploy.terraform import Terraform, TerraformFailed, find_terraform
from support.deployed_aws import REGION, Aws, aws
from support.live import until
from support.terraform import terraform_environment

pytestmark = pytest.mark.needs("terraform")

SLOW = """
resource "terraform_data" "slow" {
  provisioner "local-exec" {
    command = "while [ ! -e go ]; do sleep 0.1; done"
  }
}
"""
KEY = "resolute/vision/terraform.tfstate"


@pytest.fixture
def account() -> Iterator[Aws]:
    with aws() as made:
        made.client("s3").create_bucket(Bucket="states")
        yield made


def machine(account: Aws, directory: Path) -> Terraform:
    """Terraform on the machine of one user of the shared cluster. The backend is the deployment's, reached by path."""
    environ = {**os.environ, **account.environment(), **terraform_environment(directory)}
    backend = DEPLOYMENT.backend("states", {"region": REGION}, "vision")["s3"]
    kept: dict[str, Any] = {"terraform": {"backend": {"s3": {**backend, "use_path_style": True}}}}
    (directory / "backend.tf.json").write_text(json.dumps(kept))
    (directory / "main.tf").write_text(SLOW)
    terraform = find_terraform(directory, environ)
    terraform.init()
    return terraform


def keys(account: Aws) -> list[str]:
    return [each["Key"] for each in account.client("s3").list_objects_v2(Bucket="states").get("Contents", ())]


def test_two_people_share_a_state_and_only_one_changes_it_at_a_time(account: Aws, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = machine(account, tmp_path / "one"), machine(account, tmp_path / "two")
    command = [str(one.program), "apply", "-auto-approve", "-input=false", "-no-color"]
    applying = subprocess.Popen(command, cwd=one.directory, env=dict(one.environ), stdout=subprocess.DEVNULL)
    try:
        until("the state is locked", lambda: f"{KEY}.tflock" in keys(account))
        with pytest.raises(
            TerraformFailed, match=r"the state is locked by \S+ since .* UTC \(apply\); run the command again"
        ):
            two.plan("plan.out")
    finally:
        (one.directory / "go").touch()
        assert applying.wait(120) == 0
    assert keys(account) == [KEY]
    assert two.resources() == ["terraform_data.slow"]
    assert [each["change"]["actions"] for each in two.plan("plan.out")["resource_changes"]] == [["no-op"]]


def test_a_lock_that_a_killed_run_has_left_is_freed_by_the_command_that_the_message_names(
    account: Aws, tmp_path: Path
) -> None:
    terraform = machine(account, tmp_path)
    terraform.check_lock()
    applying = subprocess.Popen(
        [str(terraform.program), "apply", "-auto-approve", "-input=false"],
        cwd=tmp_path,
        env=dict(terraform.environ),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until("the state is locked", lambda: f"{KEY}.tflock" in keys(account))
    finally:
        os.killpg(applying.pid, signal.SIGKILL)
        applying.wait()
    with pytest.raises(TerraformFailed) as refused:
        terraform.check_lock()
    (command,) = re.findall(r"this frees the state: `(.+)`$", str(refused.value))
    answered = command.replace("force-unlock", "force-unlock -force").split()
    subprocess.run(answered, env=dict(terraform.environ), check=True, stdout=subprocess.DEVNULL)
    terraform.check_lock()


def test_the_provider_of_the_module_is_the_locked_one(tmp_path: Path) -> None:
    environ = {**os.environ, **terraform_environment(tmp_path / "settings")}
    cluster = ClusterDirectory.of(tmp_path, "aws", "vision")
    terraform = cluster.prepare({}, environ, None)
    shipped = (cluster.module / LOCK).read_text()
    terraform.init()
    assert (cluster.module / LOCK).read_text() == shipped, "the package is one of those that are locked"
    other = shipped.replace("h1:", "h1:other").replace("zh:", "zh:0")
    (cluster.module / LOCK).write_text(other)
    with pytest.raises(TerraformFailed, match="checksums"):
        terraform.init()
