"""Leaves the certificates of the machine unread while a library is imported that reads them for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

PLACE = "SSL_CERT_FILE"
"""Where OpenSSL looks for them first, when a TLS context with the machine's certificates is made."""


@contextmanager
def left_unread() -> Iterator[None]:
    """For the import of aiohttp: it makes the context of a client whom the master does not have, which takes 50 ms. Contexts that
    are made afterwards have the machine's certificates."""
    before = os.environ.get(PLACE)
    os.environ[PLACE] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ[PLACE]
        else:
            os.environ[PLACE] = before
