"""What Terraform says, in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resolute.errors import InvalidInput
from resolute_deploy.cluster_directory import ClusterDirectory
from resolute_deploy.terraform import TerraformFailed, failure_in_words, find_terraform

CHECKS = """
╷
│ Error: Invalid value for variable
│
│   on variables.tf line 4:
│    4: variable "cluster_id" {
│     ├────────────────
│     │ var.cluster_id is "V"
│
│ The cluster_id must have 3 to 30 small letters, digits and dashes, begin with
│ a letter and not end with a dash.
│
│ This was checked by the validation rule at variables.tf:8,3-13.
╵
╷
│ Error: Resource precondition failed
│
│   on checks.tf line 6, in resource "terraform_data" "checks":
│    6:       condition     = var.spot || var.spot_max_price == null
│     ├────────────────
│     │ var.spot is false
│
│ spot_max_price needs spot.
╵
"""


def test_failed_checks_are_their_own_words() -> None:
    assert failure_in_words(CHECKS).splitlines() == [
        "The cluster_id must have 3 to 30 small letters, digits and dashes, begin with a letter and not end with a dash.",
        "spot_max_price needs spot.",
    ]


def test_any_other_error_keeps_its_summary() -> None:
    text = (
        "\nError: creating S3 Bucket (b): BucketAlreadyExists\n\n  with aws_s3_bucket.this,\n  on main.tf line 3:\n\n"
    )
    assert failure_in_words(text) == "creating S3 Bucket (b): BucketAlreadyExists"


def test_what_is_no_error_is_repeated() -> None:
    assert failure_in_words("terraform: command  failed\n") == "terraform: command failed"


def program(directory: Path, name: str, says: str) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)


LOCKED = """
Error: Error acquiring the state lock

Error message: writing "gs://states/resolute/vision/default.tflock" failed:
googleapi: Error 412: At least one of the pre-conditions you specified did
not hold., conditionNotMet
Lock Info:
  ID:        1764157163479332
  Path:      gs://states/resolute/vision/default.tflock
  Operation: OperationTypeApply
  Who:       ana@laptop
  Version:   1.11.4
  Created:   2026-11-26 11:39:23.479332838 +0000 UTC
  Info:


Terraform acquires a state lock to protect the state from being written
by multiple users at the same time.
"""


def test_a_state_that_is_locked_says_by_whom_and_how_it_is_freed(tmp_path: Path) -> None:
    program(tmp_path / "bin", "terraform", '{"terraform_version": "1.11.4"}')
    terraform = find_terraform(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    (tmp_path / "bin" / "terraform").write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{LOCKED}\nEND\nexit 1\n")
    with pytest.raises(TerraformFailed) as refused:
        terraform.check_lock()
    assert str(refused.value) == (
        "the state is locked by ana@laptop since 2026-11-26 11:39:23 UTC (apply); run the command again when that has ended. "
        f"If that run was killed, this frees the state: `terraform -chdir={tmp_path} force-unlock 1764157163479332`"
    )


def test_an_apply_that_meets_a_lock_says_the_same(tmp_path: Path) -> None:
    program(tmp_path / "bin", "terraform", '{"terraform_version": "1.11.4"}')
    terraform = find_terraform(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    summary, _, detail = LOCKED.strip().removeprefix("Error: ").partition("\n\n")
    event = {"type": "diagnostic", "@level": "error", "diagnostic": {"summary": summary, "detail": detail}}
    (tmp_path / "event").write_text(json.dumps(event) + "\n")
    (tmp_path / "bin" / "terraform").write_text(f"#!/bin/sh\ncat {tmp_path / 'event'}\nexit 1\n")
    with pytest.raises(
        TerraformFailed, match=r"^the state is locked by ana@laptop since .* force-unlock 1764157163479332`$"
    ):
        terraform.destroy(lambda step: None)


def test_the_bucket_of_the_state_is_remembered(tmp_path: Path) -> None:
    cluster = ClusterDirectory.of(tmp_path, "gcp", "vision")
    assert (cluster.state_bucket(None), cluster.state_bucket("states")) == ("", "states")
    cluster.keep_state_bucket("states")
    assert (cluster.state_bucket(None), cluster.state_bucket("states")) == ("states", "states")
    with pytest.raises(InvalidInput, match="--state-bucket others: the state of vision is in the bucket states; leave"):
        cluster.state_bucket("others")
    cluster.keep_state_bucket("")
    with pytest.raises(InvalidInput, match=r"--state-bucket states: the state of vision is in /.*/gcp/vision; leave"):
        cluster.state_bucket("states")


def test_a_missing_program_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"neither terraform nor tofu is on the PATH.*https://"):
        find_terraform(tmp_path, {"PATH": str(tmp_path)})


def test_an_old_one_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "bin", "terraform", '{"terraform_version": "1.5.7"}')
    with pytest.raises(InvalidInput, match=r"is version 1\.5\.7, and deploying needs 1\.6 or newer"):
        find_terraform(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})


def test_opentofu_will_do(tmp_path: Path) -> None:
    program(tmp_path / "bin", "tofu", '{"terraform_version": "1.9.1"}')
    found = find_terraform(tmp_path, {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})
    assert (found.program.name, found.version) == ("tofu", (1, 9, 1))
