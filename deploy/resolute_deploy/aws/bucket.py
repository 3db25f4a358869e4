"""The cluster's bucket below `cluster/`, and its secrets, as the master's machine and `det deploy` see them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

FOLDER = "cluster"


class ClusterBucket:
    """Documents by which `det deploy` and the master's machine tell each other what is wanted and what is."""

    def __init__(self, s3: Any, name: str) -> None:
        self._s3 = s3
        self._name = name

    @classmethod
    def of_this_machine(cls, name: str) -> ClusterBucket:
        import boto3

        return cls(boto3.client("s3"), name)

    def desired(self) -> tuple[str, dict[str, Any]]:
        """Its version and itself."""
        answer = self._s3.get_object(Bucket=self._name, Key=f"{FOLDER}/desired.json")
        return answer["ETag"].strip('"'), json.loads(answer["Body"].read())

    def get(self, key: str) -> bytes:
        """An object of the bucket by its whole key."""
        content: bytes = self._s3.get_object(Bucket=self._name, Key=key)["Body"].read()
        return content

    def found(self, name: str) -> bytes | None:
        """A document of the folder; None while it is not there."""
        try:
            return self.get(f"{FOLDER}/{name}")
        except self._s3.exceptions.NoSuchKey:
            return None

    def put(self, name: str, content: bytes) -> None:
        self._s3.put_object(Bucket=self._name, Key=f"{FOLDER}/{name}", Body=content)


class SecretStore:
    """Secrets Manager."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    def of_this_machine(cls) -> SecretStore:
        import boto3

        return cls(boto3.client("secretsmanager"))

    def value(self, arn: str) -> str:
        text: str = self._client.get_secret_value(SecretId=arn)["SecretString"]
        return text

    def value_or_new(self, arn: str, make: Callable[[], str]) -> str:
        """The value, made where there is none yet."""
        try:
            return self.value(arn)
        except self._client.exceptions.ResourceNotFoundException:
            self._client.put_secret_value(SecretId=arn, SecretString=make())
            return self.value(arn)
