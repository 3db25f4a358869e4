"""What some commands need of the master's distribution, which is not part of every installation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from resolute.errors import FailedPrecondition


@contextmanager
def loading(what: str, parts: str = "cli") -> Iterator[None]:
    """Around the import of a part of the master: names the package to install if it cannot be loaded.

    Raises `FailedPrecondition` in place of `ImportError`. `what` names the part for the user, `parts` the extras that bring it.
    """
    try:
        yield
    except ImportError as error:
        raise FailedPrecondition(
            f"{what} cannot be loaded here ({error}); install the distribution with it: pip install 'resolute-ml[{parts}]'"
        ) from None
