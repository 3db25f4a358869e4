"""Successive halving with ten thousand trials through the engine's cycles: events, bytes written, restoration, memory.

The trials are scripted: each report is a function of the trial's hyperparameter, in an order drawn from a seed. The schedulers of
Optuna and Ray Tune, if installed, run the same script; they keep their state in memory and write nothing. Optuna iterates over all
trials at each report, so it gets a thousand only. Seconds are processor seconds.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import importlib.util
import random
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Spread, Target
from resolute_master.domain.change import Change, JournalEntry, kind_name
from resolute_master.domain.commands import Command, CreateExperiment, RecordReports, StoredReport
from resolute_master.domain.ids import ExperimentId, PoolName, UserId
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.engine.cycle import Cycle
from resolute_master.engine.memory import Memory
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.searcher.events import Create, Stop, TrialExited, ValidationCompleted
from resolute_master.searcher.method import start, tell
from resolute_master.searcher.methods import make
from resolute_master.searcher.records import MemoryRecords
from resolute_master.store.sql.store import SqlStore

TRIALS, FEW, PEER_TRIALS = 10_000, 100, 1_000
AT_ONCE, TOP, DIVISOR = 64, 64, 4
TOGETHER = 16
"""Reports per cycle: a quarter of the running trials."""
SEED = 11
EVENTS_A_SECOND, RATIO, RESTORED_S = 2_000.0, 1.2, 1.0
POOL = PoolName("default")
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
RUNGS = (1, 4, 16, 64)
"""Times of each trial's reports."""


def searcher(trials: int) -> dict[str, Any]:
    return {
        "name": "async_halving",
        "metric": "loss",
        "smaller_is_better": True,
        "num_rungs": len(RUNGS),
        "divisor": DIVISOR,
        "max_trials": trials,
        "max_concurrent_trials": AT_ONCE,
        "max_time": TOP,
        "time_metric": "batches",
    }


def loss(x: float, time_: int) -> float:
    return x + 1.0 / (1 + time_)


def main() -> list[Row]:
    few, many = through_engine(FEW), through_engine(TRIALS)
    restored = restored_s(many)
    peers = _peers()
    rows = [
        Row(
            name=f"events a second, {TRIALS:,} trials, through the engine",
            subject=Spread.one(many.events / many.seconds, "events/s"),
            bound_name="the search method alone, in memory",
            bound=Spread.one(alone(TRIALS), "events/s"),
            result=many.events / many.seconds,
            unit="events/s",
            target=Target(at_least=EVENTS_A_SECOND),
            notes="cycles with their digests, 16 reports each; the store is not in it",
        ),
        Row(
            name=f"rows of the search written for an event, {TRIALS:,} trials",
            subject=Spread.one(many.search_bytes / many.events, "bytes"),
            bound_name=f"with {FEW} trials",
            bound=Spread.one(few.search_bytes / few.events, "bytes"),
            result=(many.search_bytes / many.events) / (few.search_bytes / few.events),
            unit="times as many",
            target=Target(at_most=RATIO),
        ),
        Row(
            name=f"all rows written for an event, {TRIALS:,} trials",
            subject=Spread.one(many.all_bytes / many.events, "bytes"),
            bound_name=f"with {FEW} trials",
            bound=Spread.one(few.all_bytes / few.events, "bytes"),
            result=(many.all_bytes / many.events) / (few.all_bytes / few.events),
            unit="times as many",
            target=Target(at_most=RATIO),
        ),
        Row(
            name=f"restoration of a search of {TRIALS:,} trials from SQLite",
            subject=Spread.one(restored, "s"),
            bound_name="",
            result=restored,
            unit="s",
            target=Target(at_most=RESTORED_S),
            notes="its rows are read and set in order",
        ),
        Row(
            name=f"memory of the rows of a search of {TRIALS:,} trials",
            subject=Spread.one(memory_mb(many), "MB"),
            bound_name="",
        ),
    ]
    return rows + peers


# --------------------------------------------------------------------------------------------------- through the engine


@dataclass(slots=True)
class Measured:
    """A finished search."""

    events: int = 0
    seconds: float = 0.0
    all_bytes: int = 0
    search_bytes: int = 0
    rows: dict[str, tuple[Search | SearchTrial, bytes]] = field(default_factory=dict)


def through_engine(trials: int) -> Measured:
    """Runs a search to its end, with at most `together` reports per cycle. No trial holds slots, so that a stopped trial ends at
    once."""
    memory = Memory(ClusterState(), {POOL: PoolPolicy(name=POOL)}, sequence=0, digest="", now=BEGIN)
    measured = Measured()
    config = {
        "name": "search",
        "hyperparameters": SPACE,
        "searcher": searcher(trials),
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
    }
    create = CreateExperiment(
        owner=UserId(1),
        config=config,
        original_config="",
        context_hash="",
        pool=POOL,
        priority=42,
        weight=1.0,
        max_slots=None,
        seed=SEED,
        activate=True,
    )
    _cycle(memory, create, measured)
    rng = random.Random(SEED)
    live: dict[int, tuple[Trial, int]] = {trial.id: (trial, 0) for trial in memory.state.all(Trial)}
    gc.collect()
    while live:
        chosen = rng.sample(sorted(live), min(TOGETHER, len(live)))
        reports = tuple(_report(*live[id_], measured.events) for id_ in chosen)
        change = _cycle(memory, RecordReports(reports=reports), measured)
        measured.events += len(reports)
        for id_ in chosen:
            live[id_] = (live[id_][0], live[id_][1] + 1)
        for entity in () if change is None else change.upserts:
            if not isinstance(entity, Trial):
                continue
            if entity.state.gone:
                live.pop(entity.id, None)
            else:
                live.setdefault(entity.id, (entity, 0))
    return measured


def _report(trial: Trial, rung: int, at: int) -> StoredReport:
    return StoredReport(
        trial=trial.id,
        run_id=1,
        steps_completed=RUNGS[rung],
        validation={"loss": loss(float(trial.hparams["x"]), RUNGS[rung]), "batches": RUNGS[rung]},
        reported_at=BEGIN + timedelta(seconds=at),
    )


def _cycle(memory: Memory, command: Command, measured: Measured) -> Change | None:
    begun = time.process_time()
    now = BEGIN + timedelta(seconds=measured.events)
    outcome = Cycle(memory, now=now, entropy=str(measured.events)).run([command])
    if outcome.change is not None:
        memory.absorb(outcome.change, outcome.snapshots, outcome.digest)
    measured.seconds += time.process_time() - begun
    (reply,) = outcome.replies
    if isinstance(reply, Exception):
        raise reply
    if outcome.change is not None:
        for entity, body in zip(outcome.change.upserts, outcome.change.bodies, strict=True):
            measured.all_bytes += len(body)
            if isinstance(entity, Search | SearchTrial):
                measured.search_bytes += len(body)
                measured.rows[f"{kind_name(type(entity))} {entity.id}"] = (entity, body)
    return outcome.change


def alone(trials: int) -> float:
    """Events per second of the search method with its rows in a dict."""
    method, records = make(searcher(trials), SPACE), MemoryRecords(ExperimentId(1))
    search, actions = start(method, ExperimentId(1), SEED, records)
    points = {a.request_id: a.hparams["x"] for a in actions if isinstance(a, Create)}
    live = [(id_, 0) for id_ in points]
    rng, events, begun = random.Random(SEED), 0, time.process_time()
    while live:
        at = rng.randrange(len(live))
        request_id, rung = live[at]
        time_ = RUNGS[rung]
        event = ValidationCompleted(
            request_id=request_id, metric=loss(points[request_id], time_), steps_completed=time_, time=time_
        )
        search, actions = tell(method, search, records, event)
        events += 1
        live[at] = (request_id, rung + 1)
        for action in actions:
            if isinstance(action, Create):
                points[action.request_id] = action.hparams["x"]
                live.append((action.request_id, 0))
            elif isinstance(action, Stop):
                live.pop(at)
                search, _ = tell(method, search, records, TrialExited(request_id=action.request_id, reason=None))
    return events / (time.process_time() - begun)


def restored_s(measured: Measured) -> float:
    """Seconds in which a starting master reads and orders the rows of the search."""

    async def run(path: Path) -> float:
        store = await SqlStore.open(f"sqlite:///{path}")
        entry = JournalEntry(sequence=1, at=BEGIN, entropy="", commands=b"[]", adopted=b"[]", digest="d")
        await store.commit(Change(journal=entry, upserts=tuple(entity for entity, _ in measured.rows.values())))
        begun = time.process_time()
        rows = await store.search_rows(ExperimentId(1))
        ClusterState(rows)
        seconds = time.process_time() - begun
        await store.close()
        if len(rows) != len(measured.rows) - 1:
            raise RuntimeError(f"{len(rows)} rows were read of {len(measured.rows) - 1}")
        return seconds

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder) / "search.db"))


def memory_mb(measured: Measured) -> float:
    """Memory of the decoded rows and of their sorted results, in MB."""
    from resolute_master.store.encoding import decode_entities

    bodies = [body for entity, body in measured.rows.values() if isinstance(entity, SearchTrial)]
    tracemalloc.start()
    state = ClusterState(decode_entities(kind_name(SearchTrial), bodies))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del state
    return held / 1e6


# ---------------------------------------------------------------------------------------------------------------- peers


def _peers() -> list[Row]:
    rows: list[Row] = []
    for name, module, play, trials in (
        ("Optuna's SuccessiveHalvingPruner", "optuna", _optuna, PEER_TRIALS),
        ("Ray Tune's ASHAScheduler", "ray", _ray, TRIALS),
    ):
        if importlib.util.find_spec(module) is None:
            print(f"{name} is not measured: pip install {module}", file=sys.stderr)
            continue
        rows.append(
            Row(
                name=f"{name}, {trials:,} trials",
                subject=Spread.one(play(trials), "events/s"),
                bound_name="the search method alone, on as many",
                bound=Spread.one(alone(trials), "events/s"),
            )
        )
    return rows


def _script(trials: int, report: Callable[[int, float, int], bool]) -> float:
    """Events per second of a scheduler that decides, for a trial, its loss and its time, whether the trial continues."""
    rng, points = random.Random(SEED), random.Random(SEED + 1)
    xs = [points.random() for _ in range(trials)]
    live, begun_trials, events = [(trial, 0) for trial in range(AT_ONCE)], AT_ONCE, 0
    begun = time.process_time()
    while live:
        at = rng.randrange(len(live))
        trial, rung = live[at]
        events += 1
        if report(trial, loss(xs[trial], RUNGS[rung]), RUNGS[rung]) and rung + 1 < len(RUNGS):
            live[at] = (trial, rung + 1)
            continue
        live.pop(at)
        if begun_trials < trials:
            live.append((begun_trials, 0))
            begun_trials += 1
    return events / (time.process_time() - begun)


def _optuna(trials: int) -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=DIVISOR)
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=SEED))
    asked: dict[int, Any] = {}

    def report(trial: int, value: float, time_: int) -> bool:
        if trial not in asked:
            asked[trial] = study.ask({"x": optuna.distributions.FloatDistribution(0.0, 1.0)})
        asked[trial].report(value, time_)
        pruned = asked[trial].should_prune()
        if pruned or time_ == TOP:
            if pruned:
                study.tell(asked[trial], state=optuna.trial.TrialState.PRUNED)
            else:
                study.tell(asked[trial], value)
        return not pruned

    return _script(trials, report)


def _ray(trials: int) -> float:
    tune: Any = importlib.import_module("ray.tune.schedulers")
    scheduler = tune.ASHAScheduler(
        time_attr="batches", metric="loss", mode="min", max_t=TOP, grace_period=1, reduction_factor=DIVISOR
    )

    class Stub:
        """The attributes of a trial that the scheduler reads."""

        def __init__(self, trial_id: str) -> None:
            self.trial_id = trial_id

    known: dict[int, Stub] = {}

    def report(trial: int, value: float, time_: int) -> bool:
        if trial not in known:
            known[trial] = Stub(str(trial))
            scheduler.on_trial_add(None, known[trial])
        result = {"loss": value, "batches": time_}
        return bool(scheduler.on_trial_result(None, known[trial], result) == tune.TrialScheduler.CONTINUE)

    return _script(trials, report)
