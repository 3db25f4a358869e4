"""The local files of a deployed cluster: the given variables, the working copy of its module, and the state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute_deploy.shipped import shipped
from resolute_deploy.terraform import Terraform, find_terraform
from resolute_deploy.variables import Variable, read_variables

GIVEN = "variables.json"
PLACE = "state.json"
"""File with the location of the state: a bucket, or empty for this directory."""
LOCK = ".terraform.lock.hcl"
"""Version and checksums of the providers, shipped with a module; Terraform accepts no other package."""
SHARED = "shared"
"""Files that the modules of all clouds read, beside their directories."""


def default_state_path(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_DATA_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "share")
    return Path(base, "resolute", "deploy")


def module_variables(cloud: str) -> tuple[Variable, ...]:
    """The flags of a cloud, those of the module first."""
    module = shipped("terraform") / cloud
    return read_variables((module / "variables.tf", module / "root" / "variables.tf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDirectory:
    """`<state path>/<cloud>/<cluster id>`."""

    path: Path
    cloud: str

    @classmethod
    def of(cls, state_path: Path, cloud: str, cluster_id: str) -> ClusterDirectory:
        return cls(path=state_path / cloud / cluster_id, cloud=cloud)

    @property
    def cluster_id(self) -> str:
        return self.path.name

    @property
    def module(self) -> Path:
        return self.path / "module"

    @property
    def state(self) -> Path:
        return self.path / "terraform.tfstate"

    @property
    def wheels(self) -> Path:
        """The directory for the wheel of the running version."""
        return self.path / "wheel"

    def any_wheel(self) -> str:
        """A file in place of the wheel for verbs that only read or destroy: Terraform reads it, and nothing installs it."""
        found = sorted(self.wheels.glob("*.whl"))
        if found:
            return str(found[-1])
        self.wheels.mkdir(parents=True, exist_ok=True)
        (self.wheels / "none").touch()
        return str(self.wheels / "none")

    @property
    def authority(self) -> Path:
        """The certificate authority of the master."""
        return self.path / "ca.pem"

    def given(self) -> dict[str, Any]:
        """The variables of earlier runs of `up`. Raises `InvalidInput` if the file cannot be read."""
        file = self.path / GIVEN
        try:
            values: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        except ValueError as error:
            raise InvalidInput(
                f"{file} is not what `det deploy` wrote ({error}); restore it, or give every flag again"
            ) from error
        return values

    def keep(self, values: Mapping[str, Any]) -> None:
        """Writes the variables before anything is created, so that `down` uses the same ones."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self.path / (GIVEN + ".new")
        fresh.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
        fresh.replace(self.path / GIVEN)

    def state_bucket(self, asked: str | None) -> str:
        """The bucket of the state; empty if the state is in this directory.

        Raises `InvalidInput` if `asked` is another one: the state there does not contain the cluster.
        """
        file = self.path / PLACE
        if not file.exists():
            return asked or ""
        kept: str = json.loads(file.read_text())["bucket"]
        if asked and asked != kept:
            raise InvalidInput(
                f"--state-bucket {asked}: the state of {self.cluster_id} is in "
                f"{f'the bucket {kept}' if kept else str(self.path)}; leave the flag out"
            )
        return kept

    def keep_state_bucket(self, bucket: str) -> None:
        """Writes the location of the state, before anything is created."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / PLACE).write_text(json.dumps({"bucket": bucket}) + "\n")

    def prepare(
        self, values: Mapping[str, Any], environ: Mapping[str, str], backend: Mapping[str, Any] | None
    ) -> Terraform:
        """A working copy of the module with these variables, ready for Terraform."""
        source = shipped("terraform") / self.cloud
        self.module.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.module / "modules", ignore_errors=True)
        for file in self.module.glob("*.tf*"):
            file.unlink()
        for file in source.glob("*.tf"):
            shutil.copy(file, self.module / file.name)
        for file in (source / "root").glob("*.tf"):
            shutil.copy(file, self.module / f"root_{file.name}")
        shutil.copytree(source / "modules", self.module / "modules")
        shutil.copytree(shipped("terraform") / SHARED, self.path / SHARED, dirs_exist_ok=True)
        kept = dict(backend) if backend else {"local": {"path": str(self.state)}}
        (self.module / "backend.tf.json").write_text(json.dumps({"terraform": {"backend": kept}}, indent=2))
        (self.module / "terraform.tfvars.json").write_text(json.dumps(values, indent=2, sort_keys=True))
        terraform = replace(find_terraform(self.module, environ), state_file=None if backend else self.state)
        locked = source / "root" / LOCK
        if locked.exists() and terraform.program.name == "terraform":  # tofu takes its providers from another registry
            shutil.copy(locked, self.module / LOCK)
        return terraform

    def check(self, values: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        """Runs the module's checks of its variables, without a provider and without the cloud.

        Raises `InvalidInput`, with flags in place of the names of variables.
        """
        source = shipped("terraform") / self.cloud
        trial = self.path / "check"
        shutil.rmtree(trial, ignore_errors=True)
        trial.mkdir(parents=True)
        try:
            shutil.copy(source / "variables.tf", trial / "variables.tf")
            shutil.copy(source / "root" / "variables.tf", trial / "root_variables.tf")
            shutil.copy(source / "checks.tf", trial / "checks.tf")
            (trial / "terraform.tfvars.json").write_text(json.dumps(values))
            terraform = find_terraform(trial, environ)
            terraform.init()
            terraform.validate_variables()
        except InvalidInput as error:
            raise InvalidInput(in_flags(str(error), module_variables(self.cloud))) from None
        finally:
            shutil.rmtree(trial, ignore_errors=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    def forget(self) -> None:
        """After `down`."""
        shutil.rmtree(self.path)


def known_clusters(state_path: Path, cloud: str) -> Iterator[ClusterDirectory]:
    for directory in sorted((state_path / cloud).glob("*")):
        if (directory / GIVEN).exists():
            yield ClusterDirectory(path=directory, cloud=cloud)


def in_flags(text: str, variables: tuple[Variable, ...]) -> str:
    """Replaces the names of variables in the module's messages by flags, which users know."""
    for variable in sorted(variables, key=lambda each: -len(each.name)):
        if "_" in variable.name:
            text = text.replace(variable.name, variable.flag)
    return text
