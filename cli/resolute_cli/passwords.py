"""Generated passwords."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable

LETTERS = string.ascii_letters + string.digits


def new_password(choose: Callable[[str], str] = secrets.choice) -> str:
    """20 letters and digits, with each kind that the master's rule requires."""
    while True:
        password = "".join(choose(LETTERS) for _ in range(20))
        if (
            any(c.isupper() for c in password)
            and any(c.islower() for c in password)
            and any(c.isdigit() for c in password)
        ):
            return password
