"""Runs a recorded journal again from its snapshot and compares every digest.

It needs the store's journal and snapshots and the pools under which they were recorded, and no master, agents or clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from resolute.errors import InvalidInput
from resolute_master.domain.change import JournalEntry
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.cycle import Cycle
from resolute_master.engine.journal import decode_commands, decode_entities, decode_state
from resolute_master.engine.memory import Memory
from resolute_master.store.base import Snapshot, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first cycle whose replay differs from the record."""

    sequence: int
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The result of a replay. `cycles` were run again; `divergence` is None if all equal the record."""

    first: int
    cycles: int
    digest: str
    """Digest of the last replayed cycle."""
    divergence: Divergence | None


async def replay(
    snapshot: Snapshot, journal: AsyncIterator[JournalEntry], pools: Mapping[PoolName, PoolPolicy]
) -> Replay:
    """Run the entries after the snapshot. `pools` is the configuration under which they were recorded."""
    memory: Memory | None = None
    cycles = 0
    async for entry in journal:
        if memory is None:
            memory = Memory(
                decode_state(snapshot.body), pools, sequence=snapshot.sequence, digest=snapshot.digest, now=entry.at
            )
        adopted = decode_entities(entry.adopted)
        cycle = Cycle(memory, now=entry.at, entropy=entry.entropy, adopted=adopted)
        outcome = cycle.run(decode_commands(entry.commands))
        replayed = outcome.change.journal.digest if outcome.change else "(nothing changed)"
        if outcome.change is None or replayed != entry.digest:
            found = Divergence(sequence=entry.sequence, recorded=entry.digest, replayed=replayed)
            return Replay(first=snapshot.sequence + 1, cycles=cycles, digest=memory.digest, divergence=found)
        memory.absorb(outcome.change, outcome.snapshots, outcome.digest)
        memory.let_go(adopted)
        cycles += 1
    digest = memory.digest if memory is not None else snapshot.digest
    return Replay(first=snapshot.sequence + 1, cycles=cycles, digest=digest, divergence=None)


async def replay_store(store: Store, pools: Mapping[PoolName, PoolPolicy]) -> Replay:
    """Replays everything in a store. Raises `InvalidInput` if there is no snapshot to begin at."""
    snapshots = await store.snapshots()
    if not snapshots:
        raise InvalidInput("the database holds no snapshot: no master has run on it yet")
    return await replay(snapshots[0], store.journal(snapshots[0].sequence), pools)
