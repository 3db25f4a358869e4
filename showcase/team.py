"""The users and workspaces of the team, and their experiments, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from resolute.config.yaml_text import dump_yaml
from showcase.setting import TEAMS, Team

SPACE: Mapping[str, Any] = {
    "learning_rate": {"type": "log", "base": 10, "minval": -4.5, "maxval": -1.5},
    "dropout": {"type": "double", "minval": 0.0, "maxval": 0.6},
    "hidden_size": {"type": "categorical", "vals": [128, 256, 512]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The training of a project; times are of one epoch on its usual slots."""

    models: tuple[str, ...]
    epochs: int
    epoch_s: float
    slots: tuple[int, ...]
    pool: str
    floor: float
    best_rate: float
    """log10 of the learning rate with the lowest loss."""
    checkpoint_bytes: int


TASKS: Mapping[str, Task] = {
    "segmentation": Task(
        models=("unet", "deeplab", "segformer"),
        epochs=16,
        epoch_s=800,
        slots=(1, 4, 4),
        pool="gpus",
        floor=0.42,
        best_rate=-3.0,
        checkpoint_bytes=124_000_000,
    ),
    "detection": Task(
        models=("yolo", "detr", "fcos"),
        epochs=18,
        epoch_s=1000,
        slots=(1, 4),
        pool="gpus",
        floor=0.61,
        best_rate=-2.6,
        checkpoint_bytes=168_000_000,
    ),
    "translation": Task(
        models=("transformer-base", "transformer-big"),
        epochs=14,
        epoch_s=1500,
        slots=(4, 8),
        pool="large",
        floor=1.31,
        best_rate=-3.4,
        checkpoint_bytes=840_000_000,
    ),
    "summaries": Task(
        models=("bart", "t5-base"),
        epochs=12,
        epoch_s=1100,
        slots=(4, 8, 16),
        pool="large",
        floor=1.05,
        best_rate=-3.6,
        checkpoint_bytes=880_000_000,
    ),
    "demand": Task(
        models=("tft", "nhits", "deepar"),
        epochs=20,
        epoch_s=300,
        slots=(1,),
        pool="gpus",
        floor=0.24,
        best_rate=-2.8,
        checkpoint_bytes=22_000_000,
    ),
}

WORKDAY_H = (8, 19)
A_DAY = 0.6
"""Mean number of experiments of one user per working day."""

NOTES = (
    "Twice the crop size: **better on small objects**, and the loss still falls at the end.\n\n- try 40 epochs\n- warm up longer",
    "Baseline for the report. Compare with the one of last week before anything else is changed.",
    "Mixed precision makes no difference to the metric here, and the epochs take a third less.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A submission: user, place, and configuration text."""

    person: str
    workspace: str
    project: str
    config: Mapping[str, Any]

    @property
    def text(self) -> str:
        return dump_yaml(dict(self.config))


def people() -> list[tuple[str, Team]]:
    return [(person, team) for team in TEAMS for person in team.people]


def waits_s(rng: random.Random, now: datetime) -> float:
    """Seconds until the team's next submission. The rate by day on weekdays is twelve times the rate at other times."""
    per_hour = len(people()) * A_DAY / (WORKDAY_H[1] - WORKDAY_H[0])
    waited_s = 0.0
    while True:
        waited_s += rng.expovariate(per_hour / 3600.0)
        then = now + timedelta(seconds=waited_s)
        working = then.weekday() < 5 and WORKDAY_H[0] <= then.hour < WORKDAY_H[1]
        if working or rng.random() < 1 / 12:
            return waited_s


def draw(rng: random.Random, number: int) -> Submission:
    person, team = rng.choice(people())
    project = rng.choice(team.projects)
    return _submission(rng, number, person, team, project)


def _submission(rng: random.Random, number: int, person: str, team: Team, project: str) -> Submission:
    task, kind = TASKS[project], rng.random()
    model = rng.choice(task.models)
    epochs = max(6, round(task.epochs * rng.choice((0.5, 1, 1, 1.5))))
    searches = kind < 0.06
    slots = 1 if searches else rng.choice(task.slots)
    pool = "gpus" if slots < 4 or (searches and slots < 8) else task.pool
    if project == "demand" and kind > 0.8:
        pool, slots = "workstations", 1
    config: dict[str, Any] = {
        "name": f"{model} {rng.choice(NAMES)}" if not searches else f"{model} search",
        "labels": sorted(rng.sample(LABELS, rng.choice((0, 1, 1, 2)))),
        "workspace": team.workspace,
        "project": project,
        "entrypoint": "python3 -m determined.launch.torch_distributed python3 train.py"
        if slots > 1
        else "python3 train.py",
        "hyperparameters": SPACE if searches else _chosen(rng, task),
        "searcher": _searcher(rng, epochs, searches=searches),
        "resources": {
            "slots_per_trial": slots,
            "resource_pool": pool,
            "priority": rng.choices((20, 42, 60), (1, 8, 2))[0],
        },
        "max_restarts": 3,
        "data": {
            "epochs": epochs,
            "epoch_s": round(task.epoch_s * rng.uniform(0.7, 1.3) * (0.4 if searches else 1.0), 1),
            "save_every": rng.choice((3, 4, 5)),
            "save_s": 12.0,
            "load_s": rng.choice((30.0, 60.0, 90.0)),
            "floor": task.floor,
            "best_rate": task.best_rate,
            "checkpoint_bytes": task.checkpoint_bytes,
            "pace": epochs / 4,
            "failures": _failures(rng, epochs),
        },
    }
    if rng.random() < 0.25:
        config["description"] = rng.choice(DESCRIPTIONS)
    return Submission(person=person, workspace=team.workspace, project=project, config=config)


NAMES = (
    "baseline",
    "wider",
    "with warm-up",
    "large crops",
    "cosine",
    "mixed precision",
    "more data",
    "clean labels",
    "v2",
)
LABELS = ("baseline", "paper", "ablation", "night", "release")
DESCRIPTIONS = (
    "As the baseline, with twice the batch.",
    "For the report of this month.",
    "Does the augmentation help at all?",
    "The settings of the best trial of the search, for longer.",
)


def _chosen(rng: random.Random, task: Task) -> dict[str, Any]:
    return {
        "learning_rate": round(10 ** (task.best_rate + rng.gauss(0.0, 0.35)), 6),
        "dropout": rng.choice((0.0, 0.1, 0.2, 0.3)),
        "hidden_size": rng.choice((128, 256, 512)),
    }


def _searcher(rng: random.Random, epochs: int, *, searches: bool) -> dict[str, Any]:
    common: dict[str, Any] = {"metric": "validation_loss", "smaller_is_better": True}
    if not searches:
        return {"name": "single", **common}
    if rng.random() < 0.25:
        return {"name": "random", "max_trials": 8, "max_concurrent_trials": 4, **common}
    return {
        "name": "adaptive_asha",
        "max_trials": rng.choice((9, 12, 16)),
        "max_concurrent_trials": 6,
        "max_time": epochs,
        "time_metric": "epochs",
        "mode": "standard",
        **common,
    }


def _failures(rng: random.Random, epochs: int) -> list[int]:
    """Occasional failures that a restart fixes, and rarely enough failures to fail the trial."""
    draw = rng.random()
    if draw < 0.06:
        return [max(1, epochs // 3)] * 4
    return [rng.randint(2, epochs - 1)] if draw < 0.16 else []


def shown_at_last(rng: random.Random) -> Sequence[tuple[float, Submission]]:
    """Experiments that are live at the present, with seconds before it: a search, a long training on many slots, one that waits for
    machines, and short ones whose curves grow."""
    found = []
    for before_s, project, searches, slots, epochs, epoch_s in (
        (7200.0, "translation", False, 8, 40, 300.0),
        (5400.0, "segmentation", True, 1, 27, 130.0),
        (4200.0, "detection", False, 4, 60, 110.0),
        (1500.0, "summaries", False, 16, 24, 240.0),
        (900.0, "summaries", False, 16, 24, 240.0),
        (600.0, "demand", False, 1, 400, 6.0),
        (240.0, "segmentation", False, 4, 300, 8.0),
    ):
        team = next(each for each in TEAMS if project in each.projects)
        drawn = _submission(rng, 0, rng.choice(team.people), team, project)
        task, config = TASKS[project], dict(drawn.config)
        config["name"] = f"{task.models[0]} {'search' if searches else 'for the release'}"
        config["hyperparameters"] = SPACE if searches else _chosen(rng, task)
        config["searcher"] = (
            {
                **_searcher(rng, epochs, searches=False),
                "name": "adaptive_asha",
                "max_trials": 16,
                "max_concurrent_trials": 8,
            }
            | {"max_time": epochs, "time_metric": "epochs", "mode": "standard"}
            if searches
            else _searcher(rng, epochs, searches=False)
        )
        pool = "large" if slots >= 8 else "gpus"
        config["resources"] = {"slots_per_trial": slots, "resource_pool": pool, "priority": 42}
        config["data"] = {**config["data"], "epochs": epochs, "epoch_s": epoch_s, "pace": epochs / 4, "failures": []}
        found.append(
            (before_s, Submission(person=drawn.person, workspace=team.workspace, project=project, config=config))
        )
    return found
