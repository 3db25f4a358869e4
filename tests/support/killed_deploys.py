"""Runs `det deploy` and kills it with SIGKILL."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time

import psutil

from support.deployed import det_deploy
from support.det import Det

SEEDS = range(1, int(os.environ.get("RESOLUTE_DEPLOY_KILLS", "1")) + 1)
SAME = ("up", "--cluster-id", "vision", "--dry-run", "--no-preflight-checks")
DOWN = ("down", "--cluster-id", "vision", "--yes", "--delete-checkpoints")
UNHURRIED = ("--no-wait-for-master", "--no-preflight-checks")


class Person:
    """Runs for one cluster, `vision`."""

    def __init__(self, cloud: str, det: Det) -> None:
        self.cloud = cloud
        self.det = det
        self.module = det.home / ".local" / "share" / "resolute" / "deploy" / cloud / "vision" / "module"

    def run(self, *arguments: str) -> str:
        return det_deploy(self.cloud, self.det, *arguments, variables={})

    def run_and_kill(self, chance: random.Random, *arguments: str, log: str, resources: int) -> None:
        """Kills the run when some of `resources` are done; one time in four without its Terraform, which continues."""
        done, with_terraform = chance.randint(0, resources), chance.random() < 0.75
        running = subprocess.Popen(
            self.det.command("deploy", self.cloud, *arguments),
            env=self.det.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while running.poll() is None and self._done(log) < done:
            time.sleep(0.02)
        running.kill()
        running.wait()
        if with_terraform:
            found = self._terraforms()
            for process in found:
                process.kill()
            psutil.wait_procs(found, timeout=60)

    def _done(self, log: str) -> int:
        file = self.module / log
        return file.read_text().count('"type":"apply_complete"') if file.exists() else 0

    def _terraforms(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd() == str(self.module):
                    found.append(process)
            except (psutil.AccessDenied, psutil.NoSuchProcess, FileNotFoundError):
                continue
        return found

    def forget(self, *types: str) -> list[str]:
        """Removes all resources of some types from the state, as if Terraform had been killed before it recorded them."""

        def terraform(*arguments: str) -> list[str]:
            command = ["terraform", f"-chdir={self.module}", "state", *arguments]
            return subprocess.run(
                command, env=self.det.environ, check=True, capture_output=True, text=True
            ).stdout.split()

        addresses = [each for each in terraform("list") if re.sub(r"\[[^]]*\]", "", each).split(".")[-2] in types]
        terraform("rm", *addresses)
        return addresses
