"""The transformation a password goes through before it leaves the user's machine.

It keeps the clear text out of requests and logs; it is no substitute for the slow hash that the master stores.
"""

from __future__ import annotations

import hashlib

_SALT = "GubPEmmotfiK9TMD6Zdw"


def hash_password(password: str) -> str:
    """128 hexadecimal characters for a password; the empty password stays empty."""
    if not password:
        return ""
    return hashlib.sha512((_SALT + password).encode("utf-8")).hexdigest()
