"""A configuration as lines: what they say is the configuration, and what its owner has set is marked."""

from __future__ import annotations

import yaml

from resolute_web.configuration import lines_of

CONFIG = {
    "name": "a: b # c",
    "labels": ["x", "y"],
    "description": None,
    "searcher": {"name": "single", "max_time": 3, "smaller_is_better": True, "text": "two\nlines"},
    "data": {},
    "bind_mounts": [],
    "a key: with signs": 0.5,
}


def test_the_lines_are_the_configuration() -> None:
    lines = lines_of(CONFIG, "")
    assert yaml.safe_load("\n".join(line.text for line in lines)) == CONFIG
    assert "bind_mounts: []" in [line.text for line in lines]


def test_lines_that_the_owner_set_are_marked() -> None:
    lines = lines_of(CONFIG, "name: x\nsearcher: {max_time: 3}\n")
    own = [line.text.strip() for line in lines if line.own]
    assert own == ["name: 'a: b # c'", "searcher:", "max_time: 3"]
