"""The addresses of the other programs of a gang, in the variables that frameworks read.

A program that is started as it is gets `MASTER_ADDR` and `MASTER_PORT`; where the gang has several containers, each of which
runs one program, also its rank among them. `torchrun` takes its arguments from `PET_*`: without any of its own it makes one
training of all containers, with a process for each slot.
"""

from __future__ import annotations

from collections.abc import Mapping

from resolute.task_info import RendezvousInfo

DEFAULT_PORT = "29400"
"""Port off-cluster; an allocation has a port of its own."""


def master_variables(chief_address: str, environ: Mapping[str, str], *, nodes: int) -> dict[str, str]:
    """Address of rank 0, for `torch.distributed` and similar libraries."""
    return {
        "MASTER_ADDR": chief_address if nodes > 1 else "127.0.0.1",
        "MASTER_PORT": environ.get("C10D_PORT") or DEFAULT_PORT,
        "DET_CHIEF_IP": chief_address,
    }


def gang_variables(gang: RendezvousInfo, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a program that is started once in each container. Variables that the task has already are unchanged."""
    nodes, rank = len(gang.container_addrs), gang.container_rank
    master = master_variables(gang.container_addrs[0], environ, nodes=nodes)
    found = {
        **master,
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(max(1, gang.container_slot_counts[rank])),
        "PET_MASTER_ADDR": master["MASTER_ADDR"],
        "PET_MASTER_PORT": master["MASTER_PORT"],
    }
    if nodes > 1:
        found |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(nodes),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": str(rank),
            "GROUP_WORLD_SIZE": str(nodes),
        }
        interface = environ.get("DET_INTER_NODE_NETWORK_INTERFACE")
        if interface:
            found |= {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface}
    return {name: value for name, value in found.items() if name not in environ}
