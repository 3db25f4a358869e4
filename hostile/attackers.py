"""The kinds of attackers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from resolute_master.api.rights import Who


class Attacker(StrEnum):
    """The value is shown in the table of a campaign."""

    NOBODY = "nobody"
    FORGER = "forged token"
    AGENT = "credential of an agent"
    ENDED_TASK = "ended task"
    OTHER_TASK = "other task"
    FROM_TASK = "other user, from a task"
    OTHER = "other user"


COLUMN: Mapping[Attacker, Who] = MappingProxyType(
    {
        Attacker.NOBODY: Who.NOBODY,
        Attacker.FORGER: Who.NOBODY,
        Attacker.AGENT: Who.AGENT,
        Attacker.ENDED_TASK: Who.ENDED_TASK,
        Attacker.OTHER_TASK: Who.OTHER_TASK,
        Attacker.FROM_TASK: Who.OTHER,
        Attacker.OTHER: Who.OTHER,
    }
)
"""The column of `docs/authorisation.md` that says what each may."""

BY_TASK_HEADER = frozenset({Attacker.ENDED_TASK, Attacker.OTHER_TASK})
"""Attackers with the token of a task, which has a header of its own."""


def forged(token: str) -> str:
    """A token with the claims of a good one and no signature, as a careless reader would take it."""
    _, claims, _ = token.split(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).rstrip(b"=").decode()
    return f"{head}.{claims}."
