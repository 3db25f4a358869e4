"""One stream of a CloudWatch group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

STREAM = "master"
LONGEST = 250_000
"""Characters of a line; CloudWatch takes 256 KiB of bytes with its own 26."""


class CloudWatchStream:
    """Implements `LogStream`. It sends lines in the order of their arrival."""

    def __init__(self, client: Any, group: str, stream: str = STREAM) -> None:
        self._client = client
        self._group = group
        self._stream = stream
        try:
            client.create_log_stream(logGroupName=group, logStreamName=stream)
        except client.exceptions.ResourceAlreadyExistsException:
            pass

    @classmethod
    def of_this_machine(cls, group: str) -> CloudWatchStream:
        import boto3

        return cls(boto3.client("logs"), group)

    def send(self, lines: Sequence[tuple[int, str]]) -> bool:
        """Sends `lines` with their times in milliseconds. Returns false if they must be sent again."""
        import botocore.exceptions

        events = [{"timestamp": at, "message": line[:LONGEST] or " "} for at, line in lines]
        try:
            self._client.put_log_events(logGroupName=self._group, logStreamName=self._stream, logEvents=events)
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
            return False
        return True
