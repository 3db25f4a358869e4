"""A rack of simulated machines for the conformance suite: a shell script turns them on and off, and files record which are on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from resolute.clock import SystemClock
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.command.cloud import CommandCloud, CommandSettings
from resolute_provisioner.clouds.command.programs import REFUSALS
from resolute_provisioner.model import Offer, RefusalKind

OTHER_FAILURE = 1
"""Exit status of a program that does not report the result of its order."""

RACK = """\
#!/bin/sh
# rack on|off|list [machine]: refuses to turn on as often as `statuses` has lines, each with its exit status.
cd "$(dirname "$0")" || exit 1
case $1 in
  on)
    if [ -s statuses ]; then
      read -r status <statuses
      tail -n +2 statuses >statuses.new
      mv statuses.new statuses
      echo "the rack refuses $2" >&2
      exit "$status"
    fi
    cat >"boot-$2"
    : >"on/$2" ;;
  off) rm -f "on/$2" ;;
  list) ls on ;;
esac
"""


class Rack:
    """Some machines, of which those in `on` run."""

    def __init__(self, directory: Path, names: Sequence[str] = ("node-1", "node-2", "node-3")) -> None:
        self.directory = directory
        self.names = tuple(names)
        self.on = directory / "on"
        self.on.mkdir(parents=True)
        self.program = directory / "rack"
        self.program.write_text(RACK, encoding="utf-8")
        self.program.chmod(0o755)

    def refuse(self, *kinds: RefusalKind) -> None:
        """The next orders to turn on, in this order."""
        statuses = {error.kind: status for status, error in REFUSALS.items()}
        lines = [f"{statuses.get(kind, OTHER_FAILURE)}\n" for kind in kinds]
        (self.directory / "statuses").write_text("".join(lines), encoding="utf-8")

    def settings(self, root: Path, instance_type: str, zone: str) -> CommandSettings:
        return CommandSettings(
            root=root,
            launch=(str(self.program), "on"),
            end=(str(self.program), "off"),
            list=(str(self.program), "list"),
            limit_s=30.0,
            machines={(instance_type, zone): self.names},
            boot_script=lambda boot: f"#!/bin/sh\n# {boot.agent_id}\n",
            environ=os.environ,
        )


class RackWorld:
    """A `World` of the conformance suite."""

    def __init__(self, directory: Path, offer: Offer, refusals: tuple[RefusalKind, ...]) -> None:
        self.rack = Rack(directory / "rack")
        self.rack.refuse(*refusals)
        self._settings = self.rack.settings(directory / "pool", offer.instance_type, offer.zone)
        self.cloud: Cloud = self.reopened()

    def reopened(self) -> Cloud:
        return CommandCloud(self._settings, clock=SystemClock())

    async def interrupt(self, provider_id: str, notice_s: float | None) -> None:
        await asyncio.sleep(notice_s or 0.0)
        (self.rack.on / provider_id.partition("/")[0]).unlink()

    def machine_is_there(self, provider_id: str) -> bool:
        return (self.rack.on / provider_id.partition("/")[0]).exists()


@contextmanager
def open_world(directory: Path, offer: Offer, refusals: tuple[RefusalKind, ...]) -> Iterator[RackWorld]:
    """A world for the conformance suite."""
    yield RackWorld(directory, offer, refusals)
