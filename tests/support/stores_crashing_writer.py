"""A process that commits numbered changes until it is killed, and acknowledges each stored change.

    python stores_crashing_writer.py <database path>

All parts of change n contain n: counters, an effect, a decision, log lines and metrics. The acknowledgement, a line with the
number, is written with one system call after the commit.
"""

from __future__ import annotations

import asyncio
import os
import sys

from resolute_master.domain.change import Change, Counter, Decision
from resolute_master.domain.effects import RemoveCheckpoint
from resolute_master.domain.ids import ExperimentId
from resolute_master.store.base import Snapshot
from resolute_master.store.sql.store import SqlStore
from support.stores import a_line, a_report, an_entry, moment

COUNTERS = 20
LINES = 5
SNAPSHOT_EVERY = 25


def numbered_change(n: int) -> Change:
    return Change(
        journal=an_entry(n),
        upserts=tuple(Counter(id=f"counter-{index}", value=n) for index in range(COUNTERS)),
        outbox_added=(RemoveCheckpoint(uuid=str(n), experiment=ExperimentId(1)),),
        outbox_removed=(f"remove-checkpoint:{n - 1}",),
        logs=tuple(a_line(f"{n}/{index}", log=str(n)) for index in range(LINES)),
        decisions=(Decision(at=moment(n), pool="p", kind="place", subject=str(n), reason="it fits"),),
    )


async def main(path: str) -> None:
    store = await SqlStore.open(f"sqlite:///{path}")
    n = (await store.load()).sequence
    while True:
        n += 1
        await store.commit(numbered_change(n))
        await store.append_metrics([a_report(n, {"n": n}), a_report(n, {"n": n}, group="validation")])
        os.write(1, b"%d\n" % n)
        if n % SNAPSHOT_EVERY == 0:
            await store.save_snapshot(Snapshot(sequence=n, digest=f"digest-{n}", body=b"x" * 10_000), retain=1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
