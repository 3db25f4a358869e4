"""What is shipped for Grafana and Prometheus asks for series that the master has, in words that Prometheus reads."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.observed import an_observed_api, samples

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
BOARD = json.loads((DEPLOY / "grafana" / "resolute.json").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
CONFIG = DEPLOY / "prometheus" / "prometheus.yaml"

SERIES = re.compile(r"\b(?:resolute|process|python)_\w+")
LABELS = re.compile(r"(?:by|ignoring|on) \(([^)]*)\)|([a-z_]+)\s*(?:=~|!~|!=|=)")
ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every panel and every alert."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


async def test_every_query_asks_for_series_and_labels_that_there_are(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path) as (world, _):
        found = await samples(world)
    missing = [(where, name) for where, expr in queries() for name in SERIES.findall(expr) if name not in found.names]
    assert missing == []
    assert len({name for _, expr in queries() for name in SERIES.findall(expr)}) > 30


async def test_every_metric_is_explained_in_the_documents(tmp_path: Path) -> None:
    text = (DEPLOY.parent / "docs" / "observability.md").read_text()
    async with an_observed_api(tmp_path) as (world, _):
        ours = {f"{f.name}_total" if f.type == "counter" else f.name for f in (await samples(world)).families}
    ours = {name for name in ours if name.startswith("resolute_")}
    assert {name for name in ours if f"`{name}`" not in text} == set()
    assert {name for name in re.findall(r"^\| `(resolute_\w+)`", text, re.M) if name not in ours} == set()


def test_the_board_is_one_that_grafana_imports() -> None:
    assert (BOARD["uid"], BOARD["title"], BOARD["schemaVersion"] >= 36) == ("resolute", "Resolute", True)
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"]))) - {"__rate_interval"}
    assert used <= variables
    for panel in panels():
        assert panel["title"] and panel["targets"] and panel["datasource"]["uid"] == "${datasource}"


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


@pytest.mark.needs("promtool")
def test_prometheus_reads_rules_and_queries(tmp_path: Path) -> None:
    """The board's queries too: as rules, with Grafana's variables filled in."""
    for command in (
        ["promtool", "check", "rules", str(DEPLOY / "prometheus" / "alerts.yaml")],
        ["promtool", "check", "config", "--syntax-only", str(CONFIG)],
        ["promtool", "check", "rules", str(board_as_rules(tmp_path))],
    ):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def board_as_rules(directory: Path) -> Path:
    filled = [
        expr.replace("$__rate_interval", "1m").replace("$job", "resolute").replace("$pool", "default")
        for where, expr in queries()
        if where.startswith("panel")
    ]
    rules = [{"record": f"board:query_{number}", "expr": expr} for number, expr in enumerate(filled)]
    file = directory / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    return file
