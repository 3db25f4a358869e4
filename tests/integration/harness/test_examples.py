"""Each example runs off-cluster, resumes, and reports what its configuration says it does."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import sample
from resolute_master.searcher.population import Exploration, explored
from support.harness_master import FakeMaster, packed, task_variables
from support.harness_tasks import Tasks

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
CONFIGURATIONS = sorted(path for path in EXAMPLES.glob("*/*.yaml") if path.parent.name != "distributed")
"""Two ranks train the distributed one: `tests/e2e/test_distributed.py`."""
OF_ONE_PROGRAM = ("digits_pytorch", {"const", "promoting"})
"""Its other configurations differ in the searcher alone: `make nightly` runs them."""


def _tried(path: Path) -> Any:
    directory, every_time = OF_ONE_PROGRAM
    at_night = path.parent.name == directory and path.stem not in every_time
    name = f"{path.parent.name}-{path.stem}"
    return pytest.param(path, id=name, marks=[pytest.mark.nightly] if at_night else [])


def reports(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def context_of(example: Path) -> str:
    return packed({path.name: path.read_text() for path in example.iterdir() if path.suffix in (".py", ".yaml")})


def sampled(hparams: dict[str, Any]) -> dict[str, Any]:
    """Some concrete value for each hyperparameter."""

    def one(value: Any) -> Any:
        if not (isinstance(value, dict) and "type" in value):
            return value
        if value["type"] == "categorical":
            return value["vals"][0]
        return value.get("base", 0) ** value["maxval"] if value["type"] == "log" else value["minval"]

    return {name: one(value) for name, value in hparams.items()}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("path", [_tried(path) for path in CONFIGURATIONS])
def test_configurations_fit_their_programs(master: FakeMaster, tasks: Tasks, tmp_path: Path, path: Path) -> None:
    """A few steps as a managed trial: the searcher's metric is among those reported, the length is kept."""
    config = yaml.safe_load(path.read_text())
    hparams = sampled(config["hyperparameters"])
    length = 3
    if path.parent.name == "digits_pytorch":
        config["searcher"]["max_length"] = {"batches": length}
        master.stored.length = length
        hparams |= {"samples": 300, "reporting_period": 1}
    elif path.parent.name == "core_api":
        config["entrypoint"] += ["--steps", str(length)]
    else:
        hparams["script"] = ["report 3", *hparams["script"][1:]]
    if config["entrypoint"][0] == "python3":
        config["entrypoint"][0] = sys.executable
    master.contexts["3.task"] = context_of(path.parent)
    ended = tasks.run(task_variables(master, tmp_path, hparams=hparams, config=config))
    assert ended.code == 0, ended.err
    assert sorted(master.metrics(5, "training")) == [1, 2, 3]
    (validation,) = master.metrics(5, "validation").values()
    assert config["searcher"]["metric"] in validation
    good_when_large = any(word in config["searcher"]["metric"] for word in ("accuracy", "f1", "auc"))
    assert config["searcher"]["smaller_is_better"] is not good_when_large


def test_the_core_api_example_resumes_to_the_same_line(tasks: Tasks, tmp_path: Path) -> None:
    program = str(EXAMPLES / "core_api" / "train.py")

    def run(directory: Path, *more: str) -> str:
        arguments = [sys.executable, program, "--local-dir", str(directory), *more]
        ended = tasks.finish(tasks.start_command({"PATH": "/usr/bin:/bin"}, arguments))
        assert ended.code == 0, ended.err
        return ended.out

    assert run(tmp_path / "whole") == "step 200: y = 3.02 x + 1.02\n"
    run(tmp_path / "cut", "--steps", "100")
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "cut").glob("checkpoints/*/manifest.json")]
    (uuid,) = [body["uuid"] for body in manifests if body["steps_completed"] == 100]
    run(tmp_path / "cut", "--resume", uuid)
    whole, cut = reports(tmp_path / "whole"), reports(tmp_path / "cut")
    assert whole[-1]["metrics"] == cut[-1]["metrics"] and whole[-1]["group"] == "validation"
    losses = [[line["metrics"]["loss"] for line in lines if line.get("group") == "training"] for lines in (whole, cut)]
    assert losses[0] == losses[1]


@pytest.mark.nightly
@pytest.mark.needs("torch")
def test_the_model_learns_to_read_the_digits(tasks: Tasks, tmp_path: Path) -> None:
    program = str(EXAMPLES / "digits_pytorch" / "model_def.py")
    ended = tasks.finish(
        tasks.start_command(
            {"PATH": "/usr/bin:/bin"},
            [sys.executable, program, "--local", "--steps", "300", "--local-dir", str(tmp_path)],
        )
    )
    assert ended.code == 0, ended.err
    lines = reports(tmp_path)
    losses = [line["metrics"]["loss"] for line in lines if line.get("group") == "training"]
    assert len(losses) == 300, "every step's loss is reported"
    assert sum(losses[-20:]) < 0.5 * sum(losses[:20])
    (validation,) = [line["metrics"] for line in lines if line.get("group") == "validation"]
    assert validation["accuracy"] > 0.6


@pytest.mark.needs("torch")
def test_a_copy_of_population_based_training_can_load_the_weights_of_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the search may draw for a copy: a width that differs from the source's would fail the trial."""
    for name in ("data", "model_def"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(EXAMPLES / "digits_pytorch"))
    model: Any = importlib.import_module("model_def")
    space = yaml.safe_load((EXAMPLES / "digits_pytorch" / "pbt.yaml").read_text())["hyperparameters"]
    draws = Generator(5)
    how = Exploration(resample_probability=0.5, perturb_factor=0.5)
    for _ in range(10):
        source = sample(space, draws)
        copy = explored(space, source, how, draws)
        assert copy != source
        one, other = (model.Reader(int(each["width"]), float(each["dropout"])) for each in (source, copy))
        other.load_state_dict(one.state_dict())
