"""Log policies: RE2's dialect, what is refused at the door, and which layer wins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.config import experiment_defaults, parse_experiment, parse_master_config
from resolute.config.log_policies import MAX_LOG_POLICIES
from resolute.config.patterns import MAX_PATTERN_SIZE
from resolute.ids import SeededIds
from support.config import an_experiment, problems_in

BUILT_IN = ["CUDA OOM", "ECC Error"]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing )"),
        ("gpu(?=fault)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a{2000}", "invalid repetition size"),
        ("((a?b?){60}){15}c", f"over the limit of {MAX_PATTERN_SIZE}"),
        ("", "it would match every line"),
    ],
)
def test_what_re2_does_not_take_or_what_would_take_long_is_refused(pattern: str, why: str) -> None:
    given = an_experiment(log_policies=[{"name": "mine", "pattern": pattern}])
    (line,) = problems_in(parse_experiment, given)
    assert line.startswith("<config>.log_policies[0].pattern: must ")
    assert why in line


def test_too_many_policies_are_refused() -> None:
    own = MAX_LOG_POLICIES - 2  # each experiment has two beside them
    given = [{"name": str(number), "pattern": "x"} for number in range(own + 1)]
    assert len(parse_experiment(an_experiment(log_policies=given[:own])).log_policies) == MAX_LOG_POLICIES
    (line,) = problems_in(parse_experiment, an_experiment(log_policies=given))
    assert line.startswith("<config>.log_policies: are 101, over the limit of 100 ")
    assert line.endswith("; join patterns with |")


def test_a_master_refuses_a_bad_pattern_before_it_starts() -> None:
    for block in (
        {"task_container_defaults": {"log_policies": [{"name": "a", "pattern": "["}]}},
        {"resource_pools": [{"pool_name": "p", "task_container_defaults": {"log_policies": [{"pattern": "["}]}}]},
    ):
        assert any("log_policies[0]" in line for line in problems_in(parse_master_config, block))


def names(config: dict[str, Any], master: dict[str, Any]) -> list[str | None]:
    defaults = experiment_defaults(
        parse_master_config(master), config, ids=SeededIds(1), clock=FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    )
    return [policy.name for policy in parse_experiment(config, defaults=defaults).log_policies]


def test_the_experiment_wins_over_the_pool_the_pool_over_the_cluster_and_all_over_the_built_in_ones() -> None:
    master = {
        "task_container_defaults": {"log_policies": [{"name": "a", "pattern": "x"}, {"name": "b", "pattern": "y"}]},
        "resource_pools": [
            {
                "pool_name": "default",
                "task_container_defaults": {"log_policies": [{"name": "b"}, {"name": "c", "pattern": "z"}]},
            }
        ],
    }
    config = an_experiment(log_policies=[{"name": "c", "pattern": "mine", "action": "cancel_retries"}])
    assert names(config, master) == ["c", "b", "a", *BUILT_IN]
    assert names(an_experiment(log_policies=[{"name": "ECC Error"}]), {}) == ["ECC Error", "CUDA OOM"]
