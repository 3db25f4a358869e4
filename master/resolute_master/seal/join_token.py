"""The cluster's join token: what a machine outside of cloud pools shows to join under a name that is free."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from pathlib import Path

from resolute.config import MasterConfig
from resolute.errors import FailedPrecondition, InvalidInput
from resolute_master.seal.cluster_secrets import ClusterSecrets

SECRET = "agent_join_token"
"""The name of the token among the cluster's secrets."""

FILE = "join-token"
"""The token in `cluster_state_dir`, 0600: for programs of this machine that start agents."""


class JoinToken:
    """The token in force. Agents that have joined have credentials of their own: a new token does not concern them."""

    def __init__(self, value: str, *, kept: ClusterSecrets | None, path: Path | None = None) -> None:
        """Use `open`. `kept` is where the master keeps a token that it made; None: the configuration sets the token."""
        self.value = value
        self._kept = kept
        self._path = path

    @classmethod
    async def open(cls, kept: ClusterSecrets, config: MasterConfig) -> JoinToken:
        """The configured token, else the one that the first start makes. It is in the file when this returns."""
        configured = config.security.agents.join_token
        token = cls(
            configured or await kept.secret(SECRET),
            kept=None if configured else kept,
            path=Path(config.cluster_state_dir) / FILE,
        )
        await token._write()
        return token

    @property
    def configured(self) -> bool:
        """Whether the configuration sets it, so that it cannot be rotated here."""
        return self._kept is None

    def fits(self, given: str) -> bool:
        """Compared in constant time."""
        return hmac.compare_digest(self.value.encode(), given.encode())

    async def rotate(self) -> str:
        """A new token; the one before is refused from now on. Raises `FailedPrecondition` when the configuration sets it."""
        if self._kept is None:
            raise FailedPrecondition(
                "the configuration of the master sets the join token: change security.agents.join_token there and restart "
                "the master, or remove the key and let the master make one"
            )
        made = secrets.token_hex(32)
        await self._kept.put(SECRET, made)
        self.value = made
        await self._write()
        return made

    async def _write(self) -> None:
        """A start writes the file again, so one that was killed between store and file is made up for."""
        if self._path is not None:
            await asyncio.to_thread(_write_private, self._path, self.value + "\n")


def _write_private(path: Path, text: str) -> None:
    """Replace the file as a whole. Raises `InvalidInput`."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"cluster_state_dir: the agents' join token cannot be written to {path}: {error.strerror}; "
            "name a directory that the master may write to"
        ) from error
