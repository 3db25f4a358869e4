"""The master's process: flags, configuration, signals, exit code.

    python -m resolute_master --config-file master.yaml [--port 8080] [--db-path FILE] ...
    python -m resolute_master seal --help        (the key that seals the cluster's secrets)

Without --config-file and without DET_CONFIG_FILE, the master reads /etc/determined/master.yaml where that exists.
Every key of the configuration is also a flag (`--resource-manager-scheduler-type`) and a variable (`DET_PORT`).
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resolute import __version__, logs, printable, private_files
from resolute.clock import SystemClock
from resolute.config import DEFAULT_MASTER_CONFIG_PATH, MasterConfig, load_master_config
from resolute.config.layers import chosen_file
from resolute.errors import ResoluteError
from resolute.ids import SystemIds
from resolute_master import seal_command
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.event_loop import new_event_loop
from resolute_master.flags import parse_flags
from resolute_master.garbage import collecting, survivors_frozen
from resolute_master.pools.clouds import OpenCloud, cloud_of

if TYPE_CHECKING:
    from resolute_master.app import OpenStore

USAGE_ERROR = 2
FAILED = 1

THREAD_TURN_S = 0.0001
"""A thread that computes (SQLite's writer, a long list) yields to the event loop after this time. The loop yields at
each send and receive, a few in a millisecond: with Python's 5 ms it would be blocked most of the time, with 0.5 ms half of it."""


def main(
    arguments: Sequence[str],
    *,
    open_store: OpenStore | None = None,
    open_cloud: OpenCloud = cloud_of,
    usual_file: Path = DEFAULT_MASTER_CONFIG_PATH,
) -> int:
    """0 after a stop on request, 1 when the master failed, 2 when it was not given what it needs."""
    if "-h" in arguments or "--help" in arguments:
        print(seal_command.__doc__ if arguments[0] == "seal" else __doc__)
        return 0
    if arguments[:1] == ["seal"]:
        return seal_command.run(arguments[1:], usual_file=usual_file)
    try:
        given, flags = parse_flags(arguments)
        file = chosen_file(given, os.environ, usual_file)
        config = load_master_config(file, os.environ, flags)
    except ResoluteError as error:
        print(f"resolute_master: {printable.lines(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    sys.setswitchinterval(THREAD_TURN_S)
    atexit.register(gc.freeze)  # else the interpreter visits all objects at its end, for half a second
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(config, str(file or ""), open_store, open_cloud))


async def _run(config: MasterConfig, file: str, open_store: OpenStore | None, open_cloud: OpenCloud) -> int:
    from resolute_master.app import MasterSettings, run_master  # a second: a configuration is refused before

    private_files.keep_private()
    ring = LogRing()
    logs.set_up(level=config.log.level, form=config.log.format, color=config.log.color, beside=(ring,))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    settings = MasterSettings(
        config=config,
        environ=dict(os.environ),
        version=__version__,
        clock=SystemClock(),
        ids=SystemIds(),
        log=ring,
        config_file=file,
        open_store=open_store,
        open_cloud=open_cloud,
    )
    with survivors_frozen():
        collector = asyncio.create_task(collecting(), name="garbage collection")
        try:
            await run_master(settings, stop)
        except ResoluteError as error:
            print(f"resolute_master: {printable.lines(str(error))}", file=sys.stderr)
            return FAILED
        finally:
            collector.cancel()
    return 0
