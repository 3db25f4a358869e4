"""One log of Cloud Logging."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from resolute.errors import ResoluteError
from resolute_deploy.gcp.api import GoogleApi

LONGEST = 200_000
"""Characters of a line; Cloud Logging takes 256 KiB of an entry."""


class CloudLog:
    """Implements `LogStream`. `name` is `projects/PROJECT/logs/NAME`."""

    def __init__(self, api: GoogleApi, name: str) -> None:
        self._api = api
        self._name = name

    @classmethod
    def of_this_machine(cls, name: str) -> CloudLog:
        return cls(GoogleApi.of_this_machine(), name)

    def send(self, lines: Sequence[tuple[int, str]]) -> bool:
        try:
            self._api.post("logging", "v2/entries:write", self._entries(lines))
        except ResoluteError:
            return False
        return True

    def _entries(self, lines: Sequence[tuple[int, str]]) -> dict[str, Any]:
        return {
            "logName": self._name,
            "resource": {"type": "global"},
            "entries": [
                {
                    "timestamp": datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z"),
                    "textPayload": line[:LONGEST] or " ",
                }
                for at, line in lines
            ],
        }
