"""`python -m resolute.launch.torch_distributed [TORCHRUN ARG... --] PROGRAM ARG...`: torchrun over the whole gang.

Runs in every container; each starts a process for each of its slots, and all are one training. Each process gets RANK,
WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; its output lines get the prefix `[rank=N] `. A process that fails ends
the others. PROGRAM is a command, or a file that ends in .py.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from resolute.errors import InvalidInput, ResoluteError
from resolute.launch import child
from resolute.launch.gang_variables import master_variables
from resolute.task_info import LOG_FORMAT, RendezvousInfo, TaskInfo, environment

logger = logging.getLogger("resolute.launch.torch_distributed")


def command_of(arguments: Sequence[str], gang: RendezvousInfo, master: tuple[str, str]) -> list[str]:
    """The command line of torchrun. Raises `InvalidInput` when no program is named."""
    options, program = list[str](), list(arguments)
    if "--" in program:
        place = program.index("--")
        options, program = program[:place], program[place + 1 :]
    if not program:
        raise InvalidInput("no program was given; write it after the arguments of torchrun and `--`")
    if program[0].endswith(".py"):
        program = [sys.executable, *program]
    address, port = master
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", str(len(gang.container_addrs)), "--node_rank", str(gang.container_rank)),
        *("--nproc_per_node", str(max(1, gang.container_slot_counts[gang.container_rank]))),
        *("--max_restarts", "0", "--master_addr", address, "--master_port", port),
        *options,
        *("--no_python", sys.executable, "-m", "resolute.launch.wrap_rank", "--", *program),
    ]


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    if given[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    environ = environment()
    try:
        info = TaskInfo.from_env(environ)
        alone = RendezvousInfo(container_addrs=("127.0.0.1",), container_rank=0, container_slot_counts=(1,))
        gang = info.rendezvous() if info is not None else alone
        variables = master_variables(gang.container_addrs[0], environ, nodes=len(gang.container_addrs))
        command = command_of(given, gang, (variables["MASTER_ADDR"], variables["MASTER_PORT"]))
    except ResoluteError as error:
        logger.error("%s", error)
        return 1
    # What the launcher gave one program a container is not what each of several processes is to have.
    kept = {name: value for name, value in environ.items() if not name.startswith("PET_")}
    kept = {**kept, "DET_CHIEF_IP": variables["DET_CHIEF_IP"], "USE_TORCH_DISTRIBUTED": "True"}
    if os.getpid() == 1:
        return child.run(command, kept)
    return child.become(command, kept)


if __name__ == "__main__":
    sys.exit(main())
