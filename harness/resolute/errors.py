"""The error tree that every Resolute process shares.

ResoluteError
├── InvalidInput        wrong input: the text names the key, the value and a remedy
├── NotFound            `<kind> '<id>' not found`
├── AlreadyExists       another entity has the name or id
├── Conflict            fenced: a report of an older run, a stale incarnation
├── FailedPrecondition  right request, wrong state
├── PermissionDenied    known caller, not allowed
├── Unauthenticated     unknown caller
├── LimitExceeded       a named limit was reached
└── Unavailable         try again later
"""

from __future__ import annotations


class ResoluteError(Exception):
    """Base of every error with a text for users."""


class InvalidInput(ResoluteError):
    """The request or configuration is wrong; the text names the key, the value and what to do."""


class NotFound(ResoluteError):
    """`NotFound(kind, id)` reads "<kind> '<id>' not found"; with `advice`, a semicolon and what to do follow."""

    def __init__(self, kind: str, key: object, advice: str = "") -> None:
        super().__init__(f"{kind} '{key}' not found{'; ' if advice else ''}{advice}")
        self.kind = kind
        self.key = key


class AlreadyExists(ResoluteError):
    """The name or id is taken."""


class Conflict(ResoluteError):
    """The caller acts for something that has been superseded."""


class FailedPrecondition(ResoluteError):
    """The request is well formed but the thing is not in a state that allows it."""


class PermissionDenied(ResoluteError):
    """The caller is known and may not do this."""


class Unauthenticated(ResoluteError):
    """The caller is not known, or the token is no longer valid."""


class LimitExceeded(ResoluteError):
    """A named limit was reached; the text names it.

    With `retry_after_s` it is temporary: nothing was done, and the same request may succeed after that time.
    """

    def __init__(self, text: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Unavailable(ResoluteError):
    """Not now; the same request may succeed later."""
