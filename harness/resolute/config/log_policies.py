"""What is done when a line of a trial's log matches a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from resolute.config.base import ConfigModel, NonEmptyText, Text, broken_at, broken_rule

BUILT_IN_LOG_POLICIES: tuple[Mapping[str, str], ...] = (
    {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
    {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
)


def _old_form(value: Any) -> Any:
    return value["type"] if isinstance(value, Mapping) and set(value) == {"type"} else value


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise broken_rule(f"must be a regular expression; here: {error}") from None
    return text


class LogPolicy(ConfigModel):
    """A name for lines that match a pattern, and what follows."""

    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"name", "pattern", "action"})

    name: NonEmptyText | None = None
    """Label of runs that matched; a name alone switches off an inherited policy."""
    pattern: Annotated[Text, AfterValidator(_expression)] | None = None
    """Regular expression, found anywhere in a line."""
    action: Annotated[Literal["cancel_retries", "exclude_node"], BeforeValidator(_old_form)] | None = None
    """`cancel_retries` or `exclude_node`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.name is None and (self.pattern is None or self.action is None):
            raise broken_rule("a log policy needs a name, or both pattern and action")
        return self


def distinct_names(policies: tuple[LogPolicy, ...]) -> tuple[LogPolicy, ...]:
    """Refuse two policies of one name."""
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        if policy.name is not None and policy.name in seen:
            raise broken_at(((index, "name"), "log_policies have duplicated names; keep one of them", policy.name))
        seen.add(policy.name or "")
    return policies


LogPolicies = Annotated[tuple[LogPolicy, ...], AfterValidator(distinct_names)]
