"""`python -m resolute.launch.process_per_slot [--nproc N] -- CMD ARG...`: one process per slot of this container.

Each process gets its ranks in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK and GROUP_WORLD_SIZE, and where
rank 0 listens from MASTER_ADDR and MASTER_PORT; its output lines get the prefix `[rank=N] `. When one process fails, the others
of this container are ended and we exit with its code, upon which the master ends the other containers. Off-cluster, `--nproc`
says how many to start.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from resolute.errors import InvalidInput, ResoluteError
from resolute.launch.child import FORWARDED, die_with_parent, exit_code_of
from resolute.launch.gang_variables import master_variables
from resolute.task_info import LOG_FORMAT, RendezvousInfo, TaskInfo, environment

logger = logging.getLogger("resolute.launch.process_per_slot")

GRACE_S = 3.0
"""Time for the other processes to end after SIGTERM when one has failed; all are gone within 5 s."""
POLL_S = 0.05
LINE_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Number of processes in this container and in total, and the number of the first one in this container."""

    local_size: int
    world_size: int
    first_rank: int
    node_rank: int
    nodes: int
    chief_address: str
    gang_token: str


def layout_of(gang: RendezvousInfo, *, slots: int, nproc: int | None, gang_token: str) -> Layout:
    """One process per slot, at least one; `nproc` overrides the number in every container."""
    counts = [nproc or max(1, count) for count in gang.container_slot_counts] or [nproc or max(1, slots)]
    node = gang.container_rank
    return Layout(
        local_size=counts[node],
        world_size=sum(counts),
        first_rank=sum(counts[:node]),
        node_rank=node,
        nodes=len(counts),
        chief_address=gang.container_addrs[0],
        gang_token=gang_token,
    )


def variables_of(layout: Layout, local_rank: int) -> dict[str, str]:
    """Environment variables of the process with this local rank."""
    rank = layout.first_rank + local_rank
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(layout.world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(layout.local_size),
        "GROUP_RANK": str(layout.node_rank),
        "GROUP_WORLD_SIZE": str(layout.nodes),
        "DET_CHIEF_IP": layout.chief_address,
        "RESOLUTE_GANG_TOKEN": layout.gang_token,
        "PYTHONUNBUFFERED": "1",
    }


class Group:
    """The processes of this container."""

    def __init__(self, command: Sequence[str], layout: Layout, environ: Mapping[str, str]) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._pumps: list[threading.Thread] = []
        prepare = die_with_parent()
        for local_rank in range(layout.local_size):
            child = subprocess.Popen(
                list(command),
                env={**environ, **_master(layout, environ), **variables_of(layout, local_rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=prepare,
                process_group=0,  # so that its own children (data loaders) can be ended with it
            )
            self._children.append(child)
        # Threads start after the last fork: a fork of a threaded process may copy a held lock.
        for local_rank, child in enumerate(self._children):
            rank = layout.first_rank + local_rank
            for source, target in ((child.stdout, sys.stdout.buffer), (child.stderr, sys.stderr.buffer)):
                if source is not None:
                    pump = threading.Thread(target=copy_lines, args=(source, target, rank), daemon=True)
                    pump.start()
                    self._pumps.append(pump)

    def signal(self, number: int) -> None:
        for child in self._children:
            if child.poll() is None:
                _signal_group(child, number)

    def wait(self) -> int:
        """Waits for the processes. 0 if all ended successfully; otherwise ends the others and returns the code of the first that
        failed."""
        while True:
            codes = [child.poll() for child in self._children]
            failed = [code for code in codes if code]
            if failed:
                logger.error("a process ended with code %d: ending the others", exit_code_of(failed[0]))
                self._end_all()
                return exit_code_of(failed[0])
            if all(code == 0 for code in codes):
                self._finish_output()
                return 0
            time.sleep(POLL_S)

    def _end_all(self) -> None:
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(child.poll() is None for child in self._children):
            time.sleep(POLL_S)
        for child in self._children:
            _signal_group(child, signal.SIGKILL)  # also what a dead process left behind in its group
            child.wait()
        self._finish_output()

    def _finish_output(self) -> None:
        for pump in self._pumps:
            pump.join(timeout=1.0)


def _master(layout: Layout, environ: Mapping[str, str]) -> dict[str, str]:
    """The address for the rendezvous of the processes, unless the task has it already."""
    found = master_variables(layout.chief_address, environ, nodes=layout.nodes)
    return {name: environ.get(name) or value for name, value in found.items()}


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        pass  # already gone, as intended


_WRITING = threading.Lock()


def copy_lines(source: IO[bytes], target: IO[bytes], rank: int) -> None:
    """Copy output, each line with its rank; a carriage return ends a line, so that progress bars become lines."""
    prefix = b"[rank=%d] " % rank
    rest = b""
    while data := os.read(source.fileno(), 1 << 16):
        *lines, rest = (rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(rest) > LINE_LIMIT:
            lines, rest = [*lines, rest], b""
        if lines:
            _write(target, b"".join(prefix + line + b"\n" for line in lines))
    if rest:
        _write(target, prefix + rest + b"\n")


def _write(target: IO[bytes], data: bytes) -> None:
    with _WRITING:  # stdout and stderr of all ranks may end in the same file
        target.write(data)
        target.flush()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute.launch.process_per_slot", description=__doc__)
    parser.add_argument("--nproc", type=int, help="processes in each container (default: one per slot)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- command and its arguments")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        if not command:
            raise InvalidInput("no command was given; write it after `--`")
        if options.nproc is not None and options.nproc < 1:
            raise InvalidInput(f"--nproc is {options.nproc}; at least one process is needed")
        return _run(command, options.nproc)
    except FileNotFoundError:
        logger.error("command not found: %s", command[0])
        return 127
    except ResoluteError as error:
        logger.error("%s", error)
        return 1


def _run(command: Sequence[str], nproc: int | None) -> int:
    environ = environment()
    info = TaskInfo.from_env(environ)
    if info is None:
        alone = RendezvousInfo(container_addrs=("127.0.0.1",), container_rank=0, container_slot_counts=(nproc or 1,))
        layout = layout_of(alone, slots=1, nproc=nproc, gang_token=secrets.token_hex(16))
    else:
        layout = layout_of(info.rendezvous(), slots=len(info.slot_ids), nproc=nproc, gang_token=info.allocation_id)
    early: list[int] = []
    group: Group | None = None

    def forward(number: int, frame: Any) -> None:
        if group is None:
            early.append(number)
        else:
            group.signal(number)

    for forwarded in FORWARDED:
        signal.signal(forwarded, forward)
    group = Group(command, layout, environ)
    for number in early:
        group.signal(number)
    return group.wait()


if __name__ == "__main__":
    sys.exit(main())
