"""What the command line does with checkpoints, templates, logs and places of experiments, against the real API."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolute.logs import TextFormatter
from resolute_master.api.resources.master import ROOT_LOGGERS
from support.api import World, an_api
from support.checkpoints import UUIDS, removing, settled, with_checkpoints
from support.cli_real import Shell


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with an_api(tmp_path / "storage") as made:
        (tmp_path / "storage").mkdir(exist_ok=True)
        yield made


@pytest.fixture
def det(world: World, tmp_path: Path) -> Shell:
    return Shell(world, tmp_path)


async def test_files_of_checkpoints_are_verified_fetched_and_removed(world: World, det: Shell, tmp_path: Path) -> None:
    await with_checkpoints(world, tmp_path / "storage", 2)
    said = await det("checkpoint", "verify", UUIDS[1])
    assert "is as it was saved: 3 file(s)" in said and "sizes and hashes" in said
    assert (await det("checkpoint", "download", UUIDS[1], "-q", "-o", str(tmp_path / "copy"))).strip() == str(
        tmp_path / "copy"
    )
    assert (tmp_path / "copy" / "model" / "weights.pt").read_bytes() == b"w" * 100
    weights = tmp_path / "storage" / UUIDS[1] / "model" / "weights.pt"
    weights.write_bytes(b"W" * 100)
    assert "the content of model/weights.pt is not what was saved" in await det(
        "checkpoint", "verify", UUIDS[1], code=1
    )
    async with removing(world):
        kept = await det("checkpoint", "rm", UUIDS[1], "--glob", "**/*.pt", typed="n\n")
        assert "Nothing was removed" in kept and weights.exists()
        await det("checkpoint", "rm", UUIDS[1], "--glob", "**/*.pt", "--yes")
        await det("checkpoint", "rm", UUIDS[2])
        await settled(world)
    assert not weights.exists()
    assert "3 file(s)" in await det("checkpoint", "verify", UUIDS[2])


async def test_how_much_is_kept_of_an_experiment(world: World, det: Shell, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path / "storage", 3)
    await agent.run_all()
    number = str(trial.experiment_id)
    counts = ("--save-experiment-best", "0", "--save-trial-best", "0", "--save-trial-latest", "1")
    async with removing(world):
        shown = await det("experiment", "set", "gc-policy", number, *counts, typed="no\n")
        assert UUIDS[1] in shown and UUIDS[2] in shown and UUIDS[3] not in shown and "Nothing was changed" in shown
        await det("experiment", "set", "gc-policy", number, *counts, "--yes")
        await settled(world)
    assert [name for name in os.listdir(tmp_path / "storage") if name in UUIDS] == [UUIDS[3]]
    await det("experiment", "set", "gc-policy", number, "--save-trial-best", "1", code=2)

    await det("experiment", "set", "log-retention", number, "--days", "3")
    await det("trial", "set", "log-retention", str(trial.id), "--forever")
    found = await world.context.store.trial(trial.id)
    assert found is not None and found.log_retention_days == -1
    await det("trial", "set", "log-retention", "1", "--days", "3", "--forever", code=2)
    await det("experiment", "delete-tb-files", number)

    await det("workspace", "create", "vision")
    await det("project", "create", "vision", "digits")
    assert "project 'digits' of workspace 'vision'" in await det("experiment", "move", number, "vision", "digits")
    assert "project 'none' not found" in await det("experiment", "move", number, "vision", "none", code=1)


async def test_logs_of_tasks_are_shown_and_cleaned_up(world: World, det: Shell, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path / "storage", 1)
    await agent.run_all()
    assert f"Trial {trial.id} run 1" in await det("task", "logs", trial.task_id)
    assert "Deleted 0 rows of log entries." in await det("task", "cleanup-logs")
    await det("trial", "set", "log-retention", str(trial.id), "--days", "0")
    said = await det("task", "cleanup-logs")
    assert said.startswith("Deleted ") and "Deleted 0" not in said
    assert "not found" in await det("task", "logs", "none", code=1)


async def test_templates_have_their_six_verbs(det: Shell, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("max_restarts: 3\n")
    (tmp_path / "u.yaml").write_text("max_restarts: 4\n")
    await det("workspace", "create", "vision")
    await det("template", "create", "few", str(tmp_path / "t.yaml"), "-w", "vision")
    assert "few" in await det("template", "create", "few", str(tmp_path / "t.yaml"), code=1)
    (listed,) = await det.json("tpl", "list", "-d")
    assert listed["name"] == "few" and listed["config"] == {"max_restarts": 3}
    assert "vision" in await det("template", "list")
    await det("template", "set", "few", str(tmp_path / "u.yaml"))
    assert await det.json("template", "describe", "few") == {"max_restarts": 4}
    await det("template", "set-value", "config", "few", str(tmp_path / "t.yaml"))
    assert await det.json("template", "describe", "few") == {"max_restarts": 3}
    (tmp_path / "t.yaml").write_text("- a list\n")
    assert "must be a mapping" in await det("template", "set", "few", str(tmp_path / "t.yaml"), code=2)
    await det("template", "rm", "few")
    assert await det.json("template", "list") == []


async def test_a_search_is_previewed(det: Shell, tmp_path: Path) -> None:
    config = tmp_path / "search.yaml"
    config.write_text("name: s\nentrypoint: x\nsearcher: {name: random, metric: loss, max_trials: 4}\n")
    said = await det("preview-search", str(config))
    assert "random" in said and "Trials" in said and "Training Time" in said
    assert "Expected time and cost on pool default: unknown: how long one unit of training takes is unknown" in said
    assert "give --seconds-per-unit" in said
    said = await det(
        "preview-search", str(config), "--config", "searcher.max_length.batches=10", "--seconds-per-unit", "9"
    )
    assert (
        "no machine for a trial of 1 slot(s)" in said
        or "With 9 s for one batch, as given; as if nothing else ran" in said
    )
    assert [row["count"] for row in (await det.json("preview-search", str(config)))["trials"]] == [4]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_the_master_s_log_is_set_until_its_next_start(det: Shell) -> None:
    logger = logging.getLogger(ROOT_LOGGERS[0])
    before = logger.level
    terminal = Terminal()
    shown = logging.StreamHandler(terminal)
    shown.setFormatter(TextFormatter(color=True))
    logging.getLogger().addHandler(shown)
    try:
        await det("master", "config", "set", "--log.level", "error", "--log.color", "off")
        assert logger.level == logging.ERROR
        logger.error("without colours")
        assert "Set log.color on" in await det("master", "config", "set", "--log.color", "on")
        assert logger.level == logging.ERROR
        logger.error("with colours")
    finally:
        logger.setLevel(before)
        logging.getLogger().removeHandler(shown)
    plain, red = terminal.getvalue().splitlines()
    assert "without colours" in plain and "\x1b" not in plain
    assert "with colours" in red and red.startswith("\x1b[31m")
    assert "nothing to set" in await det("master", "config", "set", code=2)


async def test_what_was_removed_is_shown_with_its_reason(world: World, det: Shell, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path / "storage", 4, counts={"save_trial_latest": 2})
    number = str(trial.experiment_id)
    assert "Removed Because" not in await det("checkpoint", "list", number, "--all")
    async with removing(world):
        await agent.run_all()
        await settled(world)
        await det("checkpoint", "delete", UUIDS[3], "--yes")
        await det("checkpoint", "rm", UUIDS[4], "--glob", "**/*.pt", "--yes")
        await settled(world)
    listed = await det("checkpoint", "list", number, "--all")
    assert "Removed Because" in listed
    rows = {row["uuid"]: row.get("removal") for row in await det.json("checkpoint", "list", number, "--all")}
    counts = "save_experiment_best 0, save_trial_best 1, save_trial_latest 2"
    why = f"its policy does not keep it ({counts}), and nothing refers to it"
    assert rows[UUIDS[1]] == rows[UUIDS[2]] == why
    assert (rows[UUIDS[3]], rows[UUIDS[4]]) == ("on request", "files that match **/*.pt, on request")
    assert "DELETED" in await det("checkpoint", "describe", UUIDS[1])
    lines = await det("trial", "logs", str(trial.id))
    for told in (
        f"checkpoint {UUIDS[3]} of step 3 is removed: on request",
        f"a part of checkpoint {UUIDS[4]} of step 4 is removed: files that match **/*.pt, on request",
    ):
        assert lines.count(told) == 1
