"""What Terraform says, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.errors import InvalidInput
from resolute_deploy.terraform import failure_in_words, find_terraform

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
