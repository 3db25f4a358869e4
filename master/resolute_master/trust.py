"""What callers of an https master are to trust, as it is handed to those that this master starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """`file` and `pem` are empty where every machine trusts the certificate already, and where there is no TLS."""

    file: str = ""
    """On the master's machine."""
    pem: str = ""


NO_TRUST = Trust()
