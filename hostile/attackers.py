"""The kinds of attackers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from resolute_master.api.rights import Role


class Attacker(StrEnum):
    """A kind of attacker. The value is its name in the table of a campaign."""

    UNAUTHENTICATED = "unauthenticated"
    FORGER = "forged token"
    AGENT = "credential of an agent"
    ENDED_TASK = "ended task"
    OTHER_TASK = "other task"
    FROM_TASK = "other user, from a task"
    OTHER = "other user"


COLUMN: Mapping[Attacker, Role] = MappingProxyType(
    {
        Attacker.UNAUTHENTICATED: Role.UNAUTHENTICATED,
        Attacker.FORGER: Role.UNAUTHENTICATED,
        Attacker.AGENT: Role.AGENT,
        Attacker.ENDED_TASK: Role.ENDED_TASK,
        Attacker.OTHER_TASK: Role.OTHER_TASK,
        Attacker.FROM_TASK: Role.OTHER,
        Attacker.OTHER: Role.OTHER,
    }
)
"""Column of `docs/authorisation.md` with the permissions of each kind."""

BY_TASK_HEADER = frozenset({Attacker.ENDED_TASK, Attacker.OTHER_TASK})
"""Attackers with a task token, which has its own header."""


def forged(token: str) -> str:
    """A token with valid claims and no signature, which a careless verifier would accept."""
    _, claims, _ = token.split(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "typ": "JWT"}).encode()).rstrip(b"=").decode()
    return f"{head}.{claims}."
