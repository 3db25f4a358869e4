"""Which lines of a trial's log its policies are about, and whom they speak of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from resolute.wire.states import LogPolicyAction
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import MatchedLine, RecordLogMatches
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.trial import Trial
from resolute_master.engine import log_matching
from resolute_master.engine.engine import Engine
from resolute_master.engine.log_matching import LogMatching
from resolute_master.store.memory import MemoryStore
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running
from support.stores import a_line

EXCLUDE = {"pattern": "bad gpu", "action": "exclude_node"}
CANCEL = {"name": "hopeless", "pattern": "^no such file$", "action": "cancel_retries"}
NAMED = {"name": "slow", "pattern": "(?i)slow"}


@asynccontextmanager
async def a_trial(*policies: dict[str, Any]) -> AsyncIterator[tuple[Engine, Trial]]:
    """Its one run is on `agent-1`."""
    async with running(an_engine(MemoryStore())) as engine:
        await AgentByHand(engine).register()
        await an_experiment(engine, await a_user(engine), {**a_config(), "log_policies": list(policies)})
        (trial,) = engine.state.all(Trial)
        yield engine, trial


def line(trial: Trial, text: str, **changes: Any) -> LogRecord:
    given = {"task_id": trial.task_id, "allocation_id": f"{trial.task_id}.1", "agent_id": "agent-1", "log": text + "\n"}
    return a_line("0", **{**given, **changes})


async def matches_of(engine: Engine, *lines: LogRecord) -> tuple[MatchedLine, ...]:
    matching = LogMatching(engine)
    return matching.news(await matching.hits(lines))


async def found(engine: Engine, *lines: LogRecord) -> list[tuple[str | None, str, str | None, str]]:
    """Name, pattern, agent and line of each match."""
    matches = await matches_of(engine, *lines)
    return [(m.name, m.pattern, m.agent, m.line) for m in matches]


async def test_a_line_is_matched_without_its_end_by_each_policy_that_has_a_pattern() -> None:
    async with a_trial(EXCLUDE, CANCEL, {"name": "CUDA OOM"}) as (engine, trial):
        lines = [line(trial, "CUDA out of memory"), line(trial, "no such file"), line(trial, "a bad gpu, it seems")]
        assert await found(engine, *lines) == [
            ("hopeless", "^no such file$", "agent-1", "no such file"),
            (None, "bad gpu", "agent-1", "a bad gpu, it seems"),
        ]


async def test_one_line_an_agent_and_policy_is_enough() -> None:
    async with a_trial(EXCLUDE) as (engine, trial):
        await AgentByHand(engine, "agent-2").register()
        lines = [line(trial, f"bad gpu {n}", agent_id=f"agent-{1 + n % 2}") for n in range(6)]
        assert [match[2:] for match in await found(engine, *lines)] == [
            ("agent-1", "bad gpu 0"),
            ("agent-2", "bad gpu 1"),
        ]


@pytest.mark.parametrize(
    "changes",
    [
        {"log": '  "log_policies": [{"pattern": "bad gpu"}]\n'},
        {"source": "master"},
        {"task_id": "99.unknown"},
    ],
)
async def test_a_printed_configuration_the_masters_own_lines_and_others_lines_are_skipped(
    changes: dict[str, Any],
) -> None:
    async with a_trial(EXCLUDE) as (engine, trial):
        assert await found(engine, line(trial, "bad gpu")) != []
        assert await found(engine, line(trial, "bad gpu", **changes)) == []


async def test_where_a_posted_line_comes_from_is_known_from_its_run() -> None:
    async with a_trial(EXCLUDE) as (engine, trial):
        for changes in ({"agent_id": ""}, {"agent_id": "", "allocation_id": None}):
            assert [match[2] for match in await found(engine, line(trial, "bad gpu", **changes))] == ["agent-1"]
        # An agent that is not here can be given no work: nothing follows, however often the line comes.
        assert await found(engine, line(trial, "bad gpu", agent_id="elsewhere")) == []


async def test_a_line_of_a_gang_that_names_no_member_labels_and_excludes_nobody() -> None:
    policy = {"name": "broken", **EXCLUDE}
    async with running(an_engine(MemoryStore())) as engine:
        for name in ("agent-1", "agent-2"):
            await AgentByHand(engine, name).register()
        await an_experiment(engine, await a_user(engine), {**a_config(slots=4), "log_policies": [policy]})
        (trial,) = engine.state.all(Trial)
        nobody = line(trial, "bad gpu", agent_id="", container_id="")
        (match,) = await matches_of(engine, nobody)
        assert (match.name, match.agent) == ("broken", None)
        await engine.submit(RecordLogMatches(matches=(match,)))
        (trial,) = engine.state.all(Trial)
        assert (trial.log_policy_matched, trial.blocked_agents) == ("broken", ())
        assert await matches_of(engine, nobody) == ()
        (allocation,) = engine.state.all(Allocation)
        second = allocation.containers[1]
        (match,) = await matches_of(engine, line(trial, "bad gpu", agent_id="", container_id=second.id))
        assert match.agent == second.agent


async def test_of_the_named_policies_the_last_one_that_matched_is_the_label() -> None:
    async with a_trial(NAMED, CANCEL) as (engine, trial):
        lines = [line(trial, "so SLOW"), line(trial, "no such file"), line(trial, "slow again")]
        matches = await matches_of(engine, *lines)
        assert [(m.name, m.action) for m in matches] == [("slow", None), (None, LogPolicyAction.CANCEL_RETRIES)]


async def test_what_could_take_long_is_looked_through_beside_the_event_loop() -> None:
    async with a_trial({"name": "large", "pattern": "(a?b?){200}c"}) as (engine, trial):
        lines = [line(trial, "ab" * 4000) for _ in range(8)]
        assert sum(len(one.log) for one in lines) * log_matching.policy_size("(a?b?){200}c") > log_matching.LARGE
        assert await found(engine, *lines, line(trial, "abc")) == [("large", "(a?b?){200}c", "agent-1", "abc")]
