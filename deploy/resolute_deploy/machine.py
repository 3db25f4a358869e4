"""Runs on the master's machine and brings it to the state in the cluster's bucket: `cluster/desired.json`.

Each iteration reads the desired state. If it has changed, the program installs the release, fetches the secrets, renders the
configuration, restarts the master, and writes the result to `cluster/status.json`, which `det deploy` reads. Every step may be
interrupted and is then repeated from its beginning. The program imports the cloud's library and the standard library only: the
release has its own environment.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from resolute_cli.passwords import new_password
from resolute_deploy.cloud import CloudMachine, ClusterBucket, SecretStore, cloud_machine
from resolute_deploy.machine_service import MasterService, service_of_this_machine

EVERY_S = 15.0
SECRETS_EVERY_S = 60.0
READY_S = 300.0


class MachineFailed(Exception):
    """A step failed. The text is for the user of `det deploy`."""


class Machine:
    """`directory` persists between boots and contains releases, secrets and the configuration."""

    def __init__(
        self,
        cloud: CloudMachine,
        bucket: str,
        service: MasterService,
        directory: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cloud = cloud
        self._bucket: ClusterBucket = cloud.bucket(bucket)
        self._store: SecretStore = cloud.secrets()
        self._service = service
        self._directory = directory
        self._clock = clock
        self._sleep = sleep
        self._applied = ""
        self._secrets_at = float("-inf")
        self._stages: list[dict[str, Any]] = []

    def follow(self) -> None:
        """For ever."""
        while True:
            self.turn()
            self._sleep(EVERY_S)

    def turn(self) -> None:
        """One iteration. An error is written to the status, and the next iteration tries again."""
        version = ""
        try:
            version, desired = self._bucket.desired()
            if version != self._applied:
                self._apply(version, desired)
                self._applied = version
            elif self._clock() - self._secrets_at >= SECRETS_EVERY_S:
                self._write_database_password(desired)
        except Exception as error:
            told = str(error) if isinstance(error, MachineFailed) else f"{type(error).__name__}: {error}"
            print(f"resolute: {told}", file=sys.stderr, flush=True)
            self._tell(version, error=told)

    def _apply(self, version: str, desired: Mapping[str, Any]) -> None:
        self._stages = self._stages_of_boot()
        self._stage(version, "release", lambda: self._install(desired))
        self._stage(version, "secrets", lambda: self._write_secrets(desired))
        self._stage(version, "configuration", lambda: self._configure(desired))
        self._stage(version, "start", lambda: self._service.start(self._environment(), desired.get("log")))
        self._stage(version, "ready", self._wait_until_ready)
        authority = self._service.state_directory / "tls" / "ca.pem"
        if authority.exists():
            self._bucket.put("ca.pem", authority.read_bytes())
        self._tell(version, ready=True)

    def _stage(self, version: str, name: str, work: Callable[[], object]) -> None:
        self._tell(version, stage=name)
        began = self._clock()
        work()
        took = round(self._clock() - began, 1)
        if took > 0 or not any(each["stage"] == name for each in self._stages):
            self._stages.append({"stage": name, "seconds": took})

    def _tell(self, version: str, *, stage: str = "", error: str = "", ready: bool = False) -> None:
        told = {"desired": version, "stage": stage, "error": error, "ready": ready, "stages": self._stages}
        try:
            self._bucket.put("status.json", json.dumps(told).encode())
        except Exception as failure:
            print(f"resolute: the status cannot be written: {failure}", file=sys.stderr, flush=True)

    def _stages_of_boot(self) -> list[dict[str, Any]]:
        file = self._directory / "boot.stages"
        lines = file.read_text().splitlines() if file.exists() else []
        return [{"stage": line.split()[0], "seconds": float(line.split()[1])} for line in lines]

    # ------------------------------------------------------------------------------------------------------------ release

    def _install(self, desired: Mapping[str, Any]) -> None:
        began = self._clock()
        release = self._directory / "releases" / desired["wheel_sha256"]
        if not (release / "complete").exists():
            wheel = self._fetched(desired)
            subprocess.run(["rm", "-rf", str(release)], check=True)
            _checked("make an environment", "python3", "-m", "venv", str(release))
            python = str(release / "bin" / "python")
            pip = [python, "-m", "pip", "install", "--quiet", *desired["pip_options"].split()]
            _checked("unpack the wheel", *pip, "--no-deps", str(wheel))
            lock = _checked("find its packages", python, "-c", _WHERE_THE_LOCK_IS).strip()
            _checked("install its packages", *pip, "--require-hashes", "-r", lock)
            (release / "complete").touch()
        current = self._directory / "current"
        fresh = self._directory / "current.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(release)
        fresh.replace(current)
        if Path(sys.prefix).resolve() != release.resolve():
            # This program is part of the release as well. The new process reports the time that this one took.
            with (self._directory / "boot.stages").open("a") as stages:
                stages.write(f"release {self._clock() - began:.0f}\n")
            self._service.hand_over()
            python = str(current / "bin" / "python")
            os.execv(python, [python, "-m", "resolute_deploy.machine", *sys.argv[1:]])

    def _fetched(self, desired: Mapping[str, Any]) -> Path:
        file = self._directory / PurePosixPath(desired["wheel"]).name
        content = self._bucket.get(desired["wheel"])
        if hashlib.sha256(content).hexdigest() != desired["wheel_sha256"]:
            raise MachineFailed(f"{desired['wheel']} is not the wheel that was uploaded")
        file.write_bytes(content)
        return file

    # ------------------------------------------------------------------------------------------------------------ secrets

    def _write_secrets(self, desired: Mapping[str, Any]) -> None:
        seal = self._store.value_or_new(desired["seal_secret"], lambda: secrets.token_hex(32))
        _write_secret(self._directory / "seal.key", seal + "\n", self._service.owner)
        password = self._store.value_or_new(desired["password_secret"], new_password)
        _write_secret(self._directory / "initial-password", password, None)
        self._write_database_password(desired)

    def _write_database_password(self, desired: Mapping[str, Any]) -> None:
        """Writes the database's present password: if its service has changed it, the next connection uses the new one."""
        database = desired["facts"]["database"]
        password = self._cloud.database_password(self._store, database)
        fields = (database["host"], str(database["port"]), database["name"], database["user"], password)
        line = ":".join(field.replace("\\", "\\\\").replace(":", "\\:") for field in fields)
        _write_secret(self._directory / "pgpass", line + "\n", self._service.owner)
        self._secrets_at = self._clock()

    # ------------------------------------------------------------------------------------------------------ configuration

    def _configure(self, desired: Mapping[str, Any]) -> None:
        python = self._directory / "current" / "bin" / "python"
        done = subprocess.run(
            [str(python), "-m", "resolute_deploy.master_config", "--directory", str(self._directory)],
            input=json.dumps(
                {**desired, "addresses": [*desired["addresses"], *self._cloud.own_addresses(), "localhost"]}
            ),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MachineFailed(f"the configuration is wrong: {done.stderr.strip()}")
        _write_secret(self._directory / "master.yaml", done.stdout, self._service.owner)

    def _environment(self) -> dict[str, str]:
        told = {
            "PGPASSFILE": str(self._directory / "pgpass"),
            "DET_SECURITY_INITIAL_USER_PASSWORD": (self._directory / "initial-password").read_text(),
        }
        passed = (*self._cloud.passed_variables, "PIP_CONFIG_FILE")
        return told | {name: os.environ[name] for name in passed if name in os.environ}

    def _wait_until_ready(self) -> None:
        end = self._clock() + READY_S
        while not self._service.serves():
            if self._clock() > end:
                raise MachineFailed(f"the master does not serve after {READY_S:.0f} s: {self._service.last_words()}")
            self._sleep(1.0)


_WHERE_THE_LOCK_IS = "from resolute_deploy.shipped import shipped; print(shipped('requirements.lock'))"


def _checked(what: str, *command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise MachineFailed(f"cannot {what}: {' '.join(said)}")
    return done.stdout


def _write_secret(file: Path, text: str, owner: str | None) -> None:
    """Writes a file atomically; only its owner can read it."""
    fresh = file.with_name(file.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    if owner is not None:
        subprocess.run(["chown", f"{owner}:", str(fresh)], check=True)
    fresh.replace(file)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloud", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    args = parser.parse_args(arguments)
    cloud = cloud_machine(args.cloud)
    service = service_of_this_machine(args.directory, cloud.log_stream)
    Machine(cloud, args.bucket, service, args.directory).follow()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
