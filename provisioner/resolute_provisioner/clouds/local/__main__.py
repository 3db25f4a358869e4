"""The machines of a local pool, by hand.

python -m resolute_provisioner.clouds.local list <root>
python -m resolute_provisioner.clouds.local interrupt <root> <instance id> [--notice SECONDS] [--reason TEXT]
python -m resolute_provisioner.clouds.local stop-all <root>
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from resolute.clock import SystemClock
from resolute.errors import NotFound
from resolute_provisioner.clouds.local.cloud import as_listed, order_interruption, stop_all
from resolute_provisioner.clouds.local.files import machines


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute_provisioner.clouds.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("list", "show every machine"),
        ("interrupt", "interrupt a machine"),
        ("stop-all", "end every machine and wait for it"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("root", type=Path)
        if name == "interrupt":
            command.add_argument("instance_id")
            command.add_argument("--notice", type=float, default=None, metavar="SECONDS")
            command.add_argument("--reason", default="")
    given = parser.parse_args(arguments)
    clock = SystemClock()
    match given.command:
        case "interrupt":
            try:
                order_interruption(given.root, given.instance_id, notice_s=given.notice, reason=given.reason)
            except NotFound as error:
                print(error, file=sys.stderr)
                return 1
        case "stop-all":
            left = stop_all(given.root, clock=clock)
            if left:
                print(f"still there: {', '.join(left)}", file=sys.stderr)
                return 1
        case _:
            for files, record in machines(given.root):
                each = as_listed(files, record, clock)
                since = each.paid_from.isoformat(timespec="seconds") if each.paid_from else "-"
                print(f"{each.provider_id}\t{each.pool}\t{each.observed.value}\t{since}\t{each.message}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
