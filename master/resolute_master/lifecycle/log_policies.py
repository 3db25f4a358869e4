"""Log policies: the effect of a line in a trial's log on its later runs.

The run that wrote the line continues. The match is stored with the trial; it applies at the trial's next failure
(`trials.allocation_ended`), and at once to a run that is pending.
"""

from __future__ import annotations

from resolute.wire.states import LogPolicyAction
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import MatchedLine
from resolute_master.domain.copies import replace
from resolute_master.domain.trial import LogMatch, Trial
from resolute_master.lifecycle.step import Step

MAX_LINE_LENGTH = 1000
"""Characters of a matching line that are kept for display."""


def is_news(trial: Trial, match: MatchedLine) -> bool:
    """Whether recording the match would change the trial.

    A line of unknown origin excludes no agent.
    """
    if trial.state.gone:
        return False
    if match.name is not None and match.name != trial.log_policy_matched:
        return True
    if match.action is LogPolicyAction.EXCLUDE_NODE and match.agent is None:
        return False
    return match.action is not None and not _is_known(trial, match)


def record(step: Step, match: MatchedLine) -> None:
    """Records a match. A repeated one, or one after the end of the trial, changes nothing."""
    trial = step.get(Trial, match.trial)
    if trial is None or not is_news(trial, match):
        return
    if match.name is not None:
        trial = replace(trial, log_policy_matched=match.name)
        step.put(trial)
    if match.action is None or _is_known(trial, match):
        return
    if match.action is LogPolicyAction.CANCEL_RETRIES:
        _keep(step, trial, match)
    # An agent that is not here any more can be given no work: there is nothing to keep the trial from.
    elif match.agent is not None and step.get(Agent, match.agent) is not None:
        _exclude(step, _keep(step, trial, match), match)


def _is_known(trial: Trial, match: MatchedLine) -> bool:
    agent = match.agent if match.action is LogPolicyAction.EXCLUDE_NODE else None
    return (match.action, match.pattern, agent) in {(m.action, m.pattern, m.agent) for m in trial.log_matches}


def _keep(step: Step, trial: Trial, match: MatchedLine) -> Trial:
    assert match.action is not None
    kept = LogMatch(
        action=match.action,
        pattern=match.pattern,
        line=match.line[:MAX_LINE_LENGTH],
        agent=match.agent if match.action is LogPolicyAction.EXCLUDE_NODE else None,
    )
    trial = replace(trial, log_matches=(*trial.log_matches, kept))
    step.put(trial)
    return trial


def _exclude(step: Step, trial: Trial, match: MatchedLine) -> None:
    step.log(
        trial.task_id,
        match.allocation,
        f"No later run of trial {trial.id} will be placed on agent {match.agent}: a line of its log matches the log policy "
        f"{described(match)} (therefore will not schedule on {match.agent})",
        level="WARNING",
    )
    for allocation in step.find(Allocation, "allocations_of_task", trial.task_id):
        if allocation.assigned_at is None and not allocation.ended:
            step.put(replace(allocation, blocked_agents=trial.blocked_agents))


def described(match: MatchedLine) -> str:
    """The name and pattern of the policy, as text."""
    return f"'{match.name}' ({match.pattern})" if match.name is not None else f"'{match.pattern}'"
