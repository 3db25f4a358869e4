"""The folder of one run: everything that the cluster, the reference and the judge leave lies in it."""

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
        """Where the checkpoints are, when they go to a bucket."""
        return self.root / "bucket.json"

    @property
    def login(self) -> Path:
        """Where `det` keeps its login in this run, instead of in the user's own directory."""
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
        """What the judge saw through the API while the cluster lived."""
        return self.root / "observed"

    def create(self) -> None:
        for path in (self.checkpoints, self.login, self.reference, self.observed):
            path.mkdir(parents=True, exist_ok=True)
