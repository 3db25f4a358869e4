"""Passwords that the master's machine makes."""

from __future__ import annotations

import secrets
import string


def new_password() -> str:
    """20 letters and digits, of each kind that the master's rule asks for."""
    letters = string.ascii_letters + string.digits
    while True:
        password = "".join(secrets.choice(letters) for _ in range(20))
        if (
            any(c.isupper() for c in password)
            and any(c.islower() for c in password)
            and any(c.isdigit() for c in password)
        ):
            return password
