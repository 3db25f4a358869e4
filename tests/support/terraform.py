"""Terraform with the AWS provider from a local mirror, so that tests need no registry."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

PROVIDER = Path("registry.terraform.io/hashicorp/aws")
VARIABLE = "RESOLUTE_TERRAFORM_MIRROR"
USUAL_MIRRORS = ("/opt/tf-plugins", "/usr/local/share/terraform/plugins", "~/.terraform.d/plugins")


def provider_mirror() -> Path | None:
    """A directory of `terraform providers mirror`; None if there is none."""
    named = os.environ.get(VARIABLE)
    candidates = [Path(named)] if named else [Path(each).expanduser() for each in USUAL_MIRRORS]
    return next((each for each in candidates if (each / PROVIDER).is_dir()), None)


def terraform_runs() -> bool:
    return shutil.which("terraform") is not None and provider_mirror() is not None


def terraform_environment(directory: Path) -> Mapping[str, str]:
    """Environment variables with which Terraform uses providers from the mirror only."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "terraform.rc"
    settings.write_text(
        "disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n"
        f'    path    = "{provider_mirror()}"\n    include = ["registry.terraform.io/hashicorp/*"]\n  }}\n}}\n'
    )
    return {"TF_CLI_CONFIG_FILE": str(settings), "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
