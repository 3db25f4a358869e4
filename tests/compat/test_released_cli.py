"""The released `det` drives this master unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.api_released import ReleasedDet
from support.live import PASSWORD, LiveCluster, until

pytestmark = [pytest.mark.needs("determined"), pytest.mark.needs("namespaces")]


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A directory with a configuration, code, and something that must stay at home."""
    directory = tmp_path / "model"
    (directory / "pkg").mkdir(parents=True)
    (directory / "pkg" / "say.py").write_text('print("hello from the code")\n')
    (directory / "data.bin").write_bytes(b"x" * 1000)
    (directory / ".detignore").write_text("*.bin\n")
    (directory / "const.yaml").write_text(
        "name: released\n"
        'entrypoint: "python3 pkg/say.py && ls && sleep 0.5 && echo the end"\n'
        "searcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
        "max_restarts: 0\n"
    )
    return directory


def created(printed: str) -> str:
    """The id in what `experiment create` says."""
    line = next(line for line in printed.splitlines() if line.startswith("Created experiment "))
    return line.removeprefix("Created experiment ").strip()


def test_login_and_who_it_is(det: ReleasedDet, cluster: LiveCluster, tmp_path: Path) -> None:
    assert "determined" in det("user", "whoami")
    assert "admin" in det("user", "list")
    wrong = ReleasedDet(tmp_path / "other", cluster.url, "determined", "wrong")
    refused = wrong.run("user", "whoami")
    assert refused.returncode != 0
    assert PASSWORD not in refused.stdout
    assert "cluster_id" in det("version")


def test_an_experiment_is_created_and_followed_to_its_end(det: ReleasedDet, context: Path) -> None:
    printed = det("experiment", "create", str(context / "const.yaml"), str(context), "-f")
    assert "hello from the code" in printed
    assert "data.bin" not in printed
    assert "the end" in printed
    assert "Trial log stream ended" in printed
    id_ = created(printed)
    assert "COMPLETED" in det("experiment", "describe", id_)
    assert id_ in det("experiment", "list")
    assert det("experiment", "wait", id_)
    logs = det("experiment", "logs", id_)
    assert "hello from the code" in logs and "|| INFO: the end" in logs
    trial = det("experiment", "list-trials", id_, "--csv").splitlines()[-1].split(",")[0]
    tail = det("trial", "logs", trial, "--tail", "1").splitlines()
    assert sum("|| " in line for line in tail) == 1 and any(line.endswith("ended: finished") for line in tail)
    assert "COMPLETED" in det("trial", "describe", trial)
    target = context.parent / "code"
    target.mkdir()
    det("experiment", "download-model-def", id_, "--output-dir", str(target))
    det("experiment", "archive", id_)
    assert "released" not in det("experiment", "list")
    det("experiment", "unarchive", id_)
    det("experiment", "delete", "--yes", id_)
    until("the experiment is gone", lambda: "released" not in det("experiment", "list", "--all"))


def test_bad_input_is_told_in_our_words(det: ReleasedDet, context: Path) -> None:
    (context / "const.yaml").write_text("nmae: x\nentrypoint: run\nsearcher: {name: single, metric: loss}\n")
    refused = det("experiment", "create", str(context / "const.yaml"), str(context), code=1)
    assert "nmae" in refused and "name" in refused and "Traceback" not in refused
    assert "experiment '999' not found" in det("experiment", "describe", "999", code=1)


def test_the_lists_of_every_day(det: ReleasedDet, context: Path) -> None:
    config = (context / "const.yaml").read_text().replace("sleep 0.5", "sleep 600")
    (context / "const.yaml").write_text(config)
    printed = det("experiment", "create", "--paused", str(context / "const.yaml"), str(context))
    id_ = created(printed)
    assert "PAUSED" in det("experiment", "describe", id_)
    det("experiment", "activate", id_)
    until("an agent works for it", lambda: "default-" in det("agent", "list"))
    for command in (("slot", "list"), ("job", "list"), ("task", "list"), ("workspace", "list"), ("master", "info")):
        assert det(*command)
    det("experiment", "set", "name", id_, "renamed")
    det("experiment", "label", "add", id_, "mine")
    shown = det("experiment", "describe", id_)
    assert "renamed" in shown and "mine" in shown
    assert "name: " in det("experiment", "config", id_)
    det("experiment", "kill", id_)
    until("it has ended", lambda: "CANCELED" in det("experiment", "describe", id_))
    assert "1" in det("preview-search", str(context / "const.yaml"))
