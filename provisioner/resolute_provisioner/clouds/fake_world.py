"""The environment of the conformance suite of the cloud port: a simulated cloud of one provider, and its controls.

The module `fake` of each provider's package has `open_world`, which obeys `OpenWorld`. It may import what only tests install.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.model import Offer, RefusalKind


class World(Protocol):
    """One cloud and its controls."""

    cloud: Cloud

    def reopened(self) -> Cloud:
        """The same cloud, as opened by another process."""
        ...

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None:
        """Reclaim a machine, `notice_s` after a notice or without one."""
        ...

    def machine_is_there(self, provider_id: str) -> bool:
        """Whether the machine really exists, whatever the port reports."""
        ...


class OpenWorld(Protocol):
    """Made in `directory`; the first launches are refused as in `refusals`, and requests are for `offer`."""

    def __call__(
        self, directory: Path, offer: Offer, refusals: tuple[RefusalKind, ...]
    ) -> AbstractContextManager[World]: ...
