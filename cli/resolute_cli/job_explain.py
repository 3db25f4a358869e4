"""`det job explain`: what a job waits for, the jobs ahead of it, what blocks it, and what would start it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from resolute.wire.rest.why import BlockingWork, ExplainJobResponse, JobBlockers, JobStart, JobWhatIf, NamedWork
from resolute_cli.invocation import Invocation
from resolute_cli.render import Renderer, time_text

SHARE = "82 to 90 %"
"""Fraction of the starts that are in their range, by the number of completed simulations, which the basis contains."""
NAMES_SHOWN = 8
"""Longer lists are cut on the terminal; JSON has them."""


def explain(cli: Invocation, args: argparse.Namespace) -> None:
    show_explanation(cli.render, cli.api().queue.explain(args.job_id))


def show_explanation(render: Renderer, answer: ExplainJobResponse) -> None:
    """As sentences, or with a format as the message."""
    if render.format == "json":
        render.value(answer)
        return
    for line in explanation_lines(answer):
        render.line(line)


def explanation_lines(answer: ExplainJobResponse) -> Iterator[str]:
    return _with_experiments(_lines(answer), answer.named)


def _with_experiments(lines: Iterable[str], named: Iterable[NamedWork]) -> Iterator[str]:
    """Behind the first mention of each job and allocation, which experiment it is of."""
    unnamed = {each.id: f" (experiment {each.experiment_id}, {each.name})" for each in named}
    for line in lines:
        yield re.sub(r"[\w.-]*\w", lambda word: word[0] + unnamed.pop(word[0], ""), line)


def _lines(answer: ExplainJobResponse) -> Iterator[str]:
    yield f"Job {answer.job_id} is {answer.state}: {answer.reason}"
    yield from (f"  - {detail}" for detail in answer.details)
    if answer.start is not None:
        yield _start(answer.start)
    if answer.first_ahead:
        yield f"Ahead of it: {_names(answer.first_ahead, answer.jobs_ahead)}"
    if answer.blockers is not None:
        yield "Blocked by the following; without all of it, the job would start now:"
        yield from (f"  - {line}" for line in _blockers(answer.blockers))
    if answer.what_if:
        yield "Changes that would start it:"
        yield from (f"  - {found.text}: {_when(found)}" for found in answer.what_if)
    for unknown in answer.gave_up:
        yield f"Not determined: {unknown}."
    if answer.cycle and answer.at is not None:
        yield f"This is the pool after cycle {answer.cycle}, at {time_text(answer.at)}."


def _start(start: JobStart) -> str:
    if start.expected_at is None:
        return f"No estimate of its start: {start.basis}."
    latest = "beyond the simulated time" if start.latest is None else time_text(start.latest)
    span = f"{time_text(start.earliest)} to {latest}"
    return f"Expected to start {time_text(start.expected_at)} (with {SHARE}: {span}); based on {start.basis}."


def _blockers(blockers: JobBlockers) -> Iterator[str]:
    if blockers.max_slots is not None:
        yield f"its job's max_slots of {blockers.max_slots}"
    for agent in blockers.agents:
        yield f"agent {agent.agent_id}, which {agent.reason}"
    if blockers.blocked_agents:
        yield f"agents that are blocked for it: {_names(blockers.blocked_agents, len(blockers.blocked_agents))}"
    for work in blockers.running[:NAMES_SHOWN]:
        yield _work(work)
    if blockers.running_count > NAMES_SHOWN:
        yield f"{blockers.running_count - NAMES_SHOWN} more running allocations"
    if blockers.ahead_together:
        yield f"{blockers.ahead_count} that would get the slots first ({_names(blockers.ahead, blockers.ahead_count)})"
        return
    for id_ in blockers.ahead[:NAMES_SHOWN]:
        yield f"{id_}, which would get the slots first"
    if blockers.ahead_count > NAMES_SHOWN:
        yield f"{blockers.ahead_count - NAMES_SHOWN} more that would get the slots first"


def _work(work: BlockingWork) -> str:
    where = _names(work.agent_ids, len(work.agent_ids)) or "no agent"
    slots = f"{work.slots} slot(s)" if work.slots else "an auxiliary place"
    return f"{work.allocation_id} of job {work.job_id}, which {'is vacating' if work.leaving else 'holds'} {slots} on {where}"


def _when(found: JobWhatIf) -> str:
    if not found.after_count:
        return "now"
    return (
        f"when {_names(found.after, found.after_count)} {'has' if found.after_count == 1 else 'have'} saved and ended"
    )


def _names(names: tuple[str, ...], count: int) -> str:
    shown = names[:NAMES_SHOWN]
    return ", ".join(shown) + (f" and {count - len(shown)} more" if count > len(shown) else "")
