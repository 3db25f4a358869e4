"""Matches stored lines of trials' logs with the log policies of their experiments.

Lines are matched after they are stored and before their sender gets the answer: a master that is killed in between receives
the same lines again, skips those that are stored, and matches all of them again. So no line is missed, and an agent that waits
until the output of a task is stored reports no end of a task before its last line is matched.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from resolute.config.patterns import compiled
from resolute.wire.states import LogPolicyAction
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import MatchedLine
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AgentId, AllocationId, TaskId
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.lifecycle import log_policies
from resolute_master.lifecycle.cluster import ClusterState

log = logging.getLogger(__name__)

PRINTED_CONFIGURATION = '"log_policies":'
"""Text of lines that show a configuration, in which each pattern occurs."""

LARGE = 64 * 1024 * 128
"""Bytes times instructions that are matched in the event loop, in about a millisecond, and 40 ms at worst. Larger batches are
matched in a thread."""

_OF_THE_WHOLE_TEXT = re.compile(r"\\[Az]|\(\?\w*-")
"""For a pattern that refers to the start or end of the text, or turns flags off: it is matched line by line."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One log policy that has a pattern."""

    name: str | None
    pattern: str
    action: LogPolicyAction | None


Hit = tuple[Policy, LogRecord]
"""A policy, and a line that matches it."""


@lru_cache(maxsize=128)
def _expressions(pattern: str) -> tuple[Any, Any | None]:
    """The expression for a single line, and one for many lines joined by newlines, which matches if it matches any of the lines.
    The second is None if the pattern does not permit it."""
    alone = compiled(pattern)
    if _OF_THE_WHOLE_TEXT.search(pattern):
        return alone, None
    try:
        return alone, compiled(f"(?m:{pattern})")
    except ValueError:  # an open quotation (\Q), or just too large
        return alone, None


def in_some_line(pattern: str, text: bytes) -> bool:
    """False if the pattern matches none of these lines, joined by newlines. Then no line need be matched alone.

    Most lines match nothing: to match all of them at once costs a sixth of matching each.
    """
    _, joined = _expressions(pattern)
    return joined is None or joined.search(text) is not None


def lines_with(pattern: str, lines: Sequence[bytes]) -> list[int]:
    """Indexes of the lines that match the pattern."""
    alone, _ = _expressions(pattern)
    return [number for number, line in enumerate(lines) if alone.search(line) is not None]


def by_task(records: Sequence[LogRecord]) -> dict[TaskId, list[LogRecord]]:
    """The lines of each task, in order. Lines of one batch mostly belong to one task."""
    lines: dict[TaskId, list[LogRecord]] = {}
    for task, following in groupby(records, attrgetter("task_id")):
        lines.setdefault(task, []).extend(following)
    return lines


class LogMatching:
    """Reads the committed state; changes nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def _state(self) -> ClusterState:
        return self._engine.state

    async def hits(self, records: Sequence[LogRecord]) -> dict[TaskId, list[Hit]]:
        """The matches of these lines with the policies of their trials, in the order of the lines, by task; tasks without a match
        are left out."""
        found: dict[TaskId, list[Hit]] = {}
        for task, lines in by_task(records).items():
            trial = self._trial_of(task)
            experiment = self._state.get(Experiment, trial.experiment_id) if trial is not None else None
            if trial is not None and experiment is not None:
                policies = policies_of(experiment)
                size = sum(len(line.log) for line in lines) * sum(policy_size(policy.pattern) for policy in policies)
                if size > LARGE:
                    hits = await asyncio.to_thread(_hits, policies, lines)
                else:
                    hits = _hits(policies, lines)
                if hits:
                    found[task] = hits
        return found

    def news(self, hits: Mapping[TaskId, Sequence[Hit]]) -> tuple[MatchedLine, ...]:
        """Matches that would change their trials: at most one line per policy and agent."""
        trials = ((self._trial_of(task), of_task) for task, of_task in hits.items())
        return tuple(match for trial, of_task in trials if trial is not None for match in self._news(trial, of_task))

    def _trial_of(self, task: TaskId) -> Trial | None:
        request = task.partition(".")[2]
        return next((t for t in self._state.find(Trial, "trial_of_request", request) if t.task_id == task), None)

    def _news(self, trial: Trial, hits: Sequence[Hit]) -> Iterator[MatchedLine]:
        told: set[tuple[Policy, AgentId | None]] = set()
        label = next((policy.name for policy, _ in reversed(hits) if policy.name is not None), None)
        for policy, record in hits:
            agent = self._agent_of(record)
            if (policy, agent) in told:
                continue
            told.add((policy, agent))
            match = MatchedLine(
                trial=trial.id,
                allocation=record.allocation_id,
                agent=agent,
                name=policy.name if policy.name == label else None,
                pattern=policy.pattern,
                action=policy.action,
                line=record.log.rstrip("\n")[: log_policies.MAX_LINE_LENGTH],
            )
            if log_policies.is_news(trial, match):
                yield match

    def _agent_of(self, record: LogRecord) -> AgentId | None:
        """The existing agent that wrote the line. A posted line may only name its container, or neither."""
        if record.agent_id:
            return AgentId(record.agent_id) if self._state.get(Agent, record.agent_id) is not None else None
        allocation = self._state.get(Allocation, record.allocation_id or AllocationId(""))
        if allocation is None:
            allocation = next(iter(self._state.find(Allocation, "allocations_of_task", record.task_id)), None)
        containers = allocation.containers if allocation is not None else ()
        named = [c for c in containers if c.id == record.container_id] or list(containers)
        agents = {container.agent for container in named}
        return agents.pop() if len(agents) == 1 else None


def policies_of(experiment: Experiment) -> tuple[Policy, ...]:
    """Policies that can match."""
    return tuple(
        policy for entry in experiment.log_policies if entry.get("pattern") and (policy := _policy(entry)) is not None
    )


def _policy(entry: Mapping[str, Any]) -> Policy | None:
    action, pattern = entry.get("action"), str(entry["pattern"])
    try:
        _expressions(pattern)
    except ValueError as error:
        # It was accepted when the experiment was made: by a version that took it.
        log.warning("a log policy has a pattern that cannot be read any more and is left out: %s: %s", pattern, error)
        return None
    return Policy(entry.get("name"), pattern, LogPolicyAction(action) if action is not None else None)


def policy_size(pattern: str) -> int:
    """Instructions of the pattern."""
    size: int = _expressions(pattern)[0].programsize
    return size


def _hits(policies: Sequence[Policy], records: Sequence[LogRecord]) -> list[Hit]:
    """Each policy with each line that matches it, in the order of the lines, then of the policies."""
    text = "\n".join([record.log for record in records]).encode(errors="replace")
    near = [(place, policy) for place, policy in enumerate(policies) if in_some_line(policy.pattern, text)]
    if not near:
        return []
    shown = [r for r in records if r.source != "master" and PRINTED_CONFIGURATION not in r.log]
    lines = [record.log.rstrip("\n").encode(errors="replace") for record in shown]
    found = [(number, place, policy) for place, policy in near for number in lines_with(policy.pattern, lines)]
    return [(policy, shown[number]) for number, _, policy in sorted(found, key=lambda hit: hit[:2])]
