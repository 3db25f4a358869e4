"""Reads the results of a campaign: the master's API, the tasks' event logs, the cloud's files, the checkpoint storage, the
database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from campaign import leaks
from campaign.cluster import STEPS, CampaignCluster
from campaign.work import EVERYTHING, Work
from resolute.clock import SystemClock
from resolute.storage import DirectoryStorage
from resolute.storage.directory import IN_USE
from resolute.storage.manifest import files_below
from resolute.testing.event_log import read_event_log
from resolute.wire.rest.experiments import GetExperimentsQuery
from resolute_provisioner.clouds.local.files import process_lives
from resolute_provisioner.clouds.records import parse_time, read_json
from support.event_log_checker import TrialRecord, judge
from support.live import record_of, until

ALL_DONE_S = 600.0
"""Time limit for running work after the last kill."""

SWEPT_AFTER = timedelta(hours=25)
"""Age after which the next task sweeps the unfinished checkpoints of killed writers."""

CONNECTIONS = 12
"""Maximum number of a master's database connections, after any number of disconnections."""


@dataclass(slots=True)
class Findings:
    """Violations as sentences, and the numbers of checked objects."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.leaked)


def findings(cluster: CampaignCluster, work: Work) -> Findings:
    """Waits for all work to end, ends the cluster, and checks the results. Raises `AssertionError` for work that does not end."""
    found = Findings()
    work.close()
    _wait_for_all(cluster)
    _submissions(cluster, work, found)
    found.leaked += leaks.left("a container's directory", _container_directories(cluster))
    records = _records(cluster, work)
    _event_logs(cluster, records, found)
    until("no machine is left", lambda: not cluster.machines(), within_s=120)
    until("the books are closed", lambda: _books_closed(cluster), within_s=60)
    _machines(cluster, found)
    _checkpoints(cluster, records, found)
    held = cluster.connections()
    if held > CONNECTIONS:
        found.leaked.append(f"{held} connections to the database are open, {CONNECTIONS} are enough")
    cluster.stop()
    found.leaked += leaks.left("a process", cluster.left_over())
    if cluster.server is not None:
        until("the database has no client", lambda: cluster.connections() == 0)
    found.leaked += leaks.uploads(*_uploads(cluster))
    return found


def _wait_for_all(cluster: CampaignCluster) -> None:
    query = GetExperimentsQuery(limit=EVERYTHING)

    def over() -> bool:
        return all(e.details.end_time is not None for e in cluster.client.list_experiments(query))

    until("all work has ended", over, within_s=ALL_DONE_S, every_s=1.0)


def _submissions(cluster: CampaignCluster, work: Work, found: Findings) -> None:
    stored = [(e.id, e.details.name) for e in cluster.client.list_experiments(GetExperimentsQuery(limit=EVERYTHING))]
    problems = leaks.submissions(work.asked, work.acknowledged, stored)
    found.doubled += [text for text in problems if "times" in text]
    found.lost += [text for text in problems if "times" not in text]
    found.seen["experiments"] = len(stored)


def _container_directories(cluster: CampaignCluster) -> list[str]:
    """On live machines, ended containers are removed as soon as their output is stored."""

    def there() -> list[str]:
        alive = [files.directory for files, _ in cluster.machines_on_file() if process_lives(read_json(files.started))]
        return [str(path) for directory in alive for path in (directory / "state" / "containers").glob("*")]

    try:
        until("the containers' directories are gone", lambda: not there(), within_s=20)
    except AssertionError:
        return there()
    return []


def _records(cluster: CampaignCluster, work: Work) -> list[TrialRecord]:
    lost = cluster.lost_machines()
    experiments = [cluster.client.get_experiment(id_) for id_ in sorted(work.acknowledged.values())]
    return [record_of(experiment, steps=STEPS, lost=lost, spoken=True) for experiment in experiments]


def _event_logs(cluster: CampaignCluster, records: Sequence[TrialRecord], found: Findings) -> None:
    event_log = read_event_log(cluster.event_log)
    problems = judge(event_log, records)
    found.lost += problems.lost
    found.doubled += problems.doubled
    found.seen["runs"] = len({(e["trial_id"], e["trial_run_id"]) for e in event_log})
    for event in ("step", "save"):
        found.seen[f"{event}s in event logs"] = sum(e["event"] == event for e in event_log)
    found.seen["log lines"] = sum(len(record.said or ()) for record in records)


# ------------------------------------------------------------------------------------------------------------ machines


def _books_closed(cluster: CampaignCluster) -> bool:
    return all(i.state in ("gone", "refused") for i in cluster.client.cluster.instances())


def _machines(cluster: CampaignCluster, found: Findings) -> None:
    ledger = {row.instance_id: row for row in cluster.client.cluster.ledger().instances}
    book = []
    for instance in cluster.client.cluster.instances():
        row = ledger[instance.id].row if instance.id in ledger else None
        booked = (row.useful_s + row.starting_s + row.checkpointing_s + row.lost_s + row.idle_s) if row else 0.0
        book.append(
            leaks.Recorded(
                name=instance.id,
                token=instance.token,
                launched=instance.paid_from is not None,
                paid_from=_seconds(instance.paid_from),
                paid_until=_seconds(instance.paid_until),
                paid_s=row.paid_s if row else 0.0,
                booked_s=booked,
            )
        )
    made = sum(int((read_json(root / "cloud.json") or {}).get("machines", 0)) for root in cluster.pool_roots())
    bill = _bill(cluster)
    problems = leaks.machines(bill, book, made=made)
    found.doubled += [text for text in problems if "times" in text]
    found.leaked += [text for text in problems if "times" not in text]
    found.seen["machines"] = len(bill)


def _bill(cluster: CampaignCluster) -> list[leaks.Billed]:
    bill = []
    for files, record in cluster.machines_on_file():
        started, gone = read_json(files.started), read_json(files.gone)
        paid_from = parse_time((started or {}).get("paid_from"))
        paid_until = parse_time((gone or {}).get("at")) if started is not None else None
        bill.append(
            leaks.Billed(
                name=record["instance_id"],
                token=record["token"],
                paid_from=_seconds(paid_from),
                paid_until=_seconds(paid_until),
                ended=gone is not None and not process_lives(read_json(files.host)) and not process_lives(started),
            )
        )
    return bill


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


# --------------------------------------------------------------------------------------------------------- checkpoints


def _checkpoints(cluster: CampaignCluster, records: Sequence[TrialRecord], found: Findings) -> None:
    """Runs the product's sweep, so that checkpoints that it removes later do not count as leaked."""
    storage = DirectoryStorage(cluster.storage)
    files = {uuid: sorted(files_below(cluster.storage / uuid)) for uuid in storage.list()}
    rows = {
        uuid: sorted(cluster.client.get_checkpoint(uuid).details.resources)
        for record in records
        for uuid in record.checkpoints
    }
    found.leaked += leaks.checkpoints(rows, files)
    swept = storage.sweep(SystemClock().now() + SWEPT_AFTER)
    own = {cluster.event_log.name, cluster.orders.name}
    known = {*files, *own, IN_USE}
    found.leaked += leaks.left(
        "in the storage", sorted(p.name for p in cluster.storage.iterdir() if p.name not in known)
    )
    found.seen["checkpoints"] = len(rows)
    found.seen["unfinished checkpoints for the sweep"] = len(swept)


# ------------------------------------------------------------------------------------------------------------ database


def _uploads(cluster: CampaignCluster) -> tuple[set[str], set[str]]:
    """Hashes of stored contexts, and hashes that experiments reference."""
    stored = set(cluster.select("SELECT digest FROM contexts"))
    bodies: list[Mapping[str, str]] = [json.loads(body) for body in cluster.select("SELECT body FROM experiments")]
    return stored, {body["context_hash"] for body in bodies if body["context_hash"]}


def replay(cluster: CampaignCluster) -> str:
    """The result of the journal's replay. Raises `AssertionError` if a cycle differs."""
    assert cluster.server is None
    command = [sys.executable, "-m", "resolute_master.replay", str(cluster.database_file)]
    done = subprocess.run(
        [*command, "--config-file", str(cluster.config_file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
