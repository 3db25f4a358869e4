"""Latency of the first page of an experiment search with many experiments: filtered by a hyperparameter, sorted by a metric.

    python -m benchmarks.filtered [--experiments 100000] [--database sqlite|postgres]

Each experiment has ended, with one trial that has reported two validations. A page has a hundred rows. The filter matches a tenth
or a half of the experiments. The benchmark also reads the downsampled series of a trial with a million reports, as a chart does.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cluster import Client
from benchmarks.reads import as_row, filled, named, on_databases, timed
from benchmarks.report import Row
from resolute.config import load_master_config
from resolute.wire.states import ExperimentState
from resolute_master.app import open_store
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Validation
from resolute_master.store.base import Store
from support.stores import a_change, a_job, a_trial, an_experiment

EXPERIMENTS, REPORTS = 100_000, 1_000_000
AT_ONCE, BATCH = 1_000, 5_000
CALLS = 10
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def main(arguments: list[str] | None = None) -> list[Row]:
    return on_databases("filtered", arguments, {"experiments": EXPERIMENTS, "reports": REPORTS}, _measured)


def _measured(database: str, db: Mapping[str, Any] | None, wanted: argparse.Namespace) -> list[Row]:
    with filled(db, 0, partial(_store, wanted=wanted)) as running, closing(running.client()) as client:
        rows = [
            _searched(
                client, "a page by hyperparameter (a tenth), by the searcher's metric", 0.1, "searcherMetricsVal"
            ),
            _searched(client, "the same by any metric", 0.1, "validation.loss.min"),
            _searched(client, "a page by hyperparameter (a half), by any metric", 0.5, "validation.loss.min"),
            _series(client),
        ]
    return [named(row, database) for row in rows]


def _searched(client: Client, name: str, below: float, sort: str) -> Row:
    field = {"kind": "field", "columnName": "hp.lr", "operator": "<", "value": below}
    group = {"kind": "group", "conjunction": "and", "children": [field]}
    body = {"filter": json.dumps({"filterGroup": group}), "sort": f"{sort}=asc", "limit": 100}
    found = client.post("/api/v1/experiments-search", body)
    taken = [timed(lambda: client.post("/api/v1/experiments-search", body)) for _ in range(CALLS)]
    return as_row(name, taken, 300.0, notes=f"{found['pagination']['total']:,} fit")


def _series(client: Client) -> Row:
    path = "/api/v1/trials/time-series?trialIds=1&metricNames=loss&group=training"
    points = len(client.get(path)["trials"][0]["metrics"][0]["data"])
    taken = [timed(lambda: client.send("GET", path)) for _ in range(CALLS)]
    return as_row("a series of a million reports", taken, 150.0, notes=f"{points} points")


async def _store(config_file: Path, wanted: argparse.Namespace) -> None:
    store = await open_store(load_master_config(config_file, {}, {}))
    try:
        choice = random.Random(1)
        for first in range(1, wanted.experiments + 1, AT_ONCE):
            await _experiments(store, choice, range(first, min(first + AT_ONCE, wanted.experiments + 1)))
        for first in range(3, wanted.reports + 1, BATCH):
            steps = range(first, min(first + BATCH, wanted.reports + 1))
            await store.append_metrics([_report(1, step, choice.random(), "training") for step in steps])
    finally:
        await store.close()


async def _experiments(store: Store, choice: random.Random, numbers: range) -> None:
    config = {
        "searcher": {"name": "single", "metric": "loss", "max_length": 1, "smaller_is_better": True},
        "resources": {"slots_per_trial": 1, "resource_pool": "default"},
        "max_restarts": 5,
        "hyperparameters": {},
        "labels": [],
    }
    reports: list[MetricReport] = []
    entities: list[Any] = []
    for number in numbers:
        loss, rate = choice.random(), choice.random()
        best = Validation(steps_completed=2, metric=loss, at=BEGIN, metrics={"loss": loss})
        over = {"state": ExperimentState.COMPLETED, "ended_at": BEGIN + timedelta(seconds=number)}
        hparams = {"lr": rate, "layers": number % 7}
        entities += [
            an_experiment(number, config=config, best_trial=TrialId(number), best_validation=loss, **over),
            a_trial(number, experiment=number, hparams=hparams, best_validation=best, **over),
            a_job(number, ended=True),
        ]
        reports += [_report(number, step, loss + 1 / step, "validation") for step in range(1, 3)]
    sequence = (await store.load()).sequence + 1
    await store.commit(a_change(sequence, upserts=tuple(entities)))
    await store.append_metrics(reports)


def _report(trial: int, step: int, loss: float, group: str) -> MetricReport:
    return MetricReport(
        trial_id=TrialId(trial),
        run_id=1,
        group=group,
        steps_completed=step,
        reported_at=BEGIN + timedelta(seconds=step),
        metrics={"loss": loss, "accuracy": 1 - loss},
    )


if __name__ == "__main__":
    import sys

    for each in main(sys.argv[1:]):
        print(each.name, each.subject.text(), each.notes)
