"""The folder of one run, with all files of the cluster, the reference and the checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths below `root`, which is also the state directory of the cluster."""

    root: Path

    @property
    def master_config(self) -> Path:
        return self.root / "master.yaml"

    @property
    def database(self) -> Path:
        return self.root / "resolute.db"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def bucket(self) -> Path:
        """Copy of the checkpoints of a bucket."""
        return self.root / "bucket.json"

    @property
    def login(self) -> Path:
        """Directory for the login of `det` in this run, in place of the user's own."""
        return self.root / "login"

    @property
    def pool(self) -> Path:
        """The local cloud's folder of the pool."""
        return self.root / "pools" / "default"

    @property
    def reference(self) -> Path:
        return self.root / "reference"

    @property
    def observed(self) -> Path:
        """Records of the observer, which reads the API while the cluster runs."""
        return self.root / "observed"

    def create(self) -> None:
        for path in (self.checkpoints, self.login, self.reference, self.observed):
            path.mkdir(parents=True, exist_ok=True)
