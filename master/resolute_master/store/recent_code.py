"""Model code that was stored lately and is small: it goes to an agent together with the order to run it.

What is not here is fetched by the task itself, so this may forget anything.
"""

from __future__ import annotations

import base64
from collections import OrderedDict

from resolute.wire.agent_link import MAX_CODE_CHARACTERS

MAX_KEPT_CHARACTERS = 16 * 1024 * 1024
"""Maximum length of all stored code together."""


class RecentCode:
    """Code by the hash of its archive, in base64; the least recently used is dropped first."""

    def __init__(self, most: int = MAX_KEPT_CHARACTERS) -> None:
        self._most = most
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def remember(self, digest: str, archive: bytes) -> None:
        """Does nothing with a large one."""
        if digest in self._kept or 4 * ((len(archive) + 2) // 3) > MAX_CODE_CHARACTERS:
            return
        text = self._kept[digest] = base64.b64encode(archive).decode()
        self._size += len(text)
        while self._size > self._most:
            _, gone = self._kept.popitem(last=False)
            self._size -= len(gone)

    def find(self, digest: str) -> str | None:
        """None when it is not known; empty for the empty hash, which is that of no code."""
        if not digest:
            return ""
        if digest in self._kept:
            self._kept.move_to_end(digest)
        return self._kept.get(digest)
