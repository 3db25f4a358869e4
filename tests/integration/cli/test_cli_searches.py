"""What the command line says of searches."""

from __future__ import annotations

import json
from pathlib import Path

from support.cli_shell import Shell


def test_a_search_is_explained_and_previewed(det: Shell, tmp_path: Path) -> None:
    out = det.ok("experiment", "explain-search", "1")
    assert "Search single: 1 trials, 50.0% done; a smaller loss is better" in out
    assert "it trains" in out
    assert json.loads(det.ok("experiment", "explain-search", "1", "--json"))["trials"][0]["reason"] == "it trains"
    assert det("experiment", "explain-search", "1", "--trial-id", "77") == 1
    assert "has no trial 77" in det.err
    listed = det.ok("trial", "list", "1")
    assert [cell.strip() for cell in listed.splitlines()[0].split("|")][-4:] == ["Search", "Rung", "Rank", "Why"]
    assert "it trains" in listed
    (trial,) = json.loads(det.ok("trial", "list", "1", "--json"))
    assert trial["search"]["reason"] == "it trains"
    config = tmp_path / "search.yaml"
    config.write_text("name: x\nsearcher: {name: adaptive_asha}\n")
    for words in (("preview-search", str(config)), ("experiment", "create", str(config), "--preview")):
        out = det.ok(*words)
        assert "Search adaptive_asha: 4 trial(s)" in out
        assert [cell.strip() for cell in out.splitlines()[-1].split("|")] == ["4", "9 batches"]
