"""A machine of the local cloud with points: `python -m campaign.machine <orders> <directory>`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from campaign.points import Points
from resolute_agent import machine


def main(arguments: Sequence[str]) -> int:
    orders, directory = Path(arguments[0]), Path(arguments[1]).resolve()
    Points(orders).reached("machine.booting")
    return machine.serve(directory, agent=("-m", "campaign.agent", str(orders)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
