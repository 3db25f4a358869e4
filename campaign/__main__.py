"""`python -m campaign [--seed N] [--kills N] [--store sqlite,postgres] [--folder DIRECTORY]`."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaign import report
from campaign.cluster import CampaignCluster
from campaign.director import Director
from campaign.evidence import findings, replay
from campaign.kill_plan import Kind, plan
from campaign.report import Campaign
from campaign.work import Work
from support.postgres import PostgresServer, postgres_server

STORES = ("sqlite", "postgres")
SERVER_KINDS = (Kind.DATABASE,)
"""Kinds of kills that need a database server."""


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if all kills happened, enough of them inside an operation, and nothing was lost, doubled or leaked; else 1."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description="Kill everything, count what is lost.")
    parser.add_argument("--seed", type=int, default=20260101, help="of the order of the kills (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=250, help="of each kind, over all stores (default: %(default)s)")
    parser.add_argument("--store", default=",".join(STORES), help="sqlite, postgres or both (default: %(default)s)")
    parser.add_argument(
        "--folder",
        type=Path,
        help="a new one, which is kept (default: a temporary one, kept on failure)",
    )
    given = parser.parse_args(arguments)
    stores = given.store.split(",")
    if unknown := sorted(set(stores) - set(STORES)):
        parser.error(f"--store: {', '.join(unknown)} is none of {', '.join(STORES)}")
    signal.signal(signal.SIGTERM, _interrupted)
    folder = Path(given.folder or tempfile.mkdtemp(prefix="resolute-campaign-")).resolve()
    began = time.monotonic()
    print(f"everything lies in {folder}", flush=True)
    campaigns: list[Campaign] = []
    for number, store in enumerate(stores):
        share = _share(given.kills, number, stores)
        print(f"{store}: seed {given.seed}, kills {', '.join(f'{n} x {k}' for k, n in share.items())}", flush=True)
        campaigns.append(_on(store, folder / store, given.seed + number, share))
    text, code = report.outcome(campaigns)
    print(f"\n{text}\nseed {given.seed}; {time.monotonic() - began:.0f} s")
    if code == 0 and given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _interrupted(number: int, _: object) -> None:
    """SIGTERM ends the cluster too, as Ctrl-C does."""
    raise KeyboardInterrupt


def _share(kills: int, number: int, stores: Sequence[str]) -> dict[Kind, int]:
    """Number of kills of each kind for a store. Kinds that need a database server apply to PostgreSQL only; the others are
    divided."""
    own = kills // len(stores) + (number < kills % len(stores))
    return {
        kind: kills if kind in SERVER_KINDS else own
        for kind in Kind
        if kind not in SERVER_KINDS or stores[number] == "postgres"
    }


def _on(store: str, folder: Path, seed: int, kills: Mapping[Kind, int]) -> Campaign:
    if store == "postgres":
        with postgres_server() as server:
            return campaign(folder, seed, kills, server)
    return campaign(folder, seed, kills, None)


def campaign(folder: Path, seed: int, kills: Mapping[Kind, int], server: PostgresServer | None) -> Campaign:
    """Executes one plan on one cluster. Returns the kills and the findings."""
    folder.mkdir(parents=True)
    cluster = CampaignCluster(folder, server)
    began = time.monotonic()
    try:
        cluster.start()
        work = Work(cluster)
        work.start()
        director = Director(cluster, plan(seed, kills, server=server is not None), work, seed=seed)
        director.run()
        print(
            f"{len(director.done) + len(director.extra)} kills in {time.monotonic() - began:.0f} s (seed {seed})",
            flush=True,
        )
        found = findings(cluster, work)
        found.lost += [f"a master ended by itself with {code}" for code in director.ended_by_itself]
        if server is None:
            print(replay(cluster))
    finally:
        cluster.stop()
    store = "sqlite" if server is None else "postgres"
    done = Campaign(store=store, asked=kills, done=director.done, extra=director.extra, found=found)
    print(f"{report.table(done.killed)}\n{report.summary(found)}\n{time.monotonic() - began:.0f} s", flush=True)
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
