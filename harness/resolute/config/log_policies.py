"""The effects of a line in a trial's log that matches a pattern.

Patterns are regular expressions as RE2 reads them: without references back and without look-around, so that the time to match
a line grows with its length alone, whatever the pattern is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from resolute.config.base import ConfigModel, NonEmptyText, Text, broken_at, broken_rule
from resolute.config.patterns import compiled

BUILT_IN_LOG_POLICIES: tuple[Mapping[str, str], ...] = (
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
)

MAX_LOG_POLICIES = 100
"""Policies of one experiment: every line is matched against each."""


def _old_form(value: Any) -> Any:
    return value["type"] if isinstance(value, Mapping) and set(value) == {"type"} else value


def _expression(text: str) -> str:
    if not text:
        raise broken_rule("must not be empty, for it would match every line; remove the key to disable a policy")
    try:
        compiled(text)
    except ValueError as error:
        raise broken_rule(f"must be a regular expression of RE2: {error}; correct it") from None
    return text


class LogPolicy(ConfigModel):
    """A name for lines that match a pattern, and what follows."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"name", "pattern", "action"})

    name: NonEmptyText | None = None
    """Label of runs that matched; a name alone switches off an inherited policy."""
    pattern: Annotated[Text, AfterValidator(_expression)] | None = None
    """Regular expression (RE2), found anywhere in a line; a policy without one does nothing."""
    action: Annotated[Literal["cancel_retries", "exclude_node"], BeforeValidator(_old_form)] | None = None
    """`cancel_retries` or `exclude_node`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.name is None and (self.pattern is None or self.action is None):
            raise broken_rule("a log policy needs a name, or both pattern and action")
        return self


def checked_together(policies: tuple[LogPolicy, ...]) -> tuple[LogPolicy, ...]:
    """Refuse two policies of one name, and too many."""
    if len(policies) > MAX_LOG_POLICIES:
        raise broken_rule(f"are {len(policies)}, over the limit of {MAX_LOG_POLICIES}; join patterns with |")
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if policy.name is not None and policy.name in seen:
            raise broken_at(((index, "name"), "log_policies have duplicated names; keep one of them", policy.name))
        seen.add(policy.name or "")
    return policies


LogPolicies = Annotated[tuple[LogPolicy, ...], AfterValidator(checked_together)]
