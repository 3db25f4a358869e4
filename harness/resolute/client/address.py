"""The canonical form of a master's address, which is the key of the token cache and the beginning of every URL."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from resolute.errors import InvalidInput

DEFAULT_ADDRESS = "localhost:8080"


def canonical_address(text: str) -> str:
    """`scheme://host:port` and the path prefix, if any, without a slash at the end.

    Without a scheme it is http on port 8080; with one, the scheme's own port. Raises `InvalidInput`.
    """
    given = text.strip()
    explicit = "://" in given
    try:
        parts = urlsplit(given if explicit else f"http://{given}")
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"master address {text!r}: {error}; write it like http://host:8080") from None
    if parts.scheme not in ("http", "https"):
        raise InvalidInput(f"master address {text!r}: the scheme {parts.scheme!r} is not http or https")
    if not parts.hostname:
        raise InvalidInput(f"master address {text!r}: the host is missing; write it like http://host:8080")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInput(f"master address {text!r}: remove user, query and fragment; write it like http://host:8080")
    if port is None:
        port = (443 if parts.scheme == "https" else 80) if explicit else 8080
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def address_from(environ: Mapping[str, str], given: str | None = None) -> str:
    """The canonical address: as given, else `DET_MASTER`, else `DET_MASTER_ADDR`, else this machine on port 8080."""
    return canonical_address(given or environ.get("DET_MASTER") or environ.get("DET_MASTER_ADDR") or DEFAULT_ADDRESS)
