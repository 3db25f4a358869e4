"""The documents below `cluster/` in the cluster's bucket, and its secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from resolute_deploy.cloud import FOLDER


class S3Bucket:
    """Implements `ClusterBucket`."""

    def __init__(self, s3: Any, name: str) -> None:
        self._s3 = s3
        self._name = name

    @classmethod
    def of_this_machine(cls, name: str) -> S3Bucket:
        import boto3

        return cls(boto3.client("s3"), name)

    def desired(self) -> tuple[str, dict[str, Any]]:
        answer = self._s3.get_object(Bucket=self._name, Key=f"{FOLDER}/desired.json")
        return answer["ETag"].strip('"'), json.loads(answer["Body"].read())

    def get(self, key: str) -> bytes:
        content: bytes = self._s3.get_object(Bucket=self._name, Key=key)["Body"].read()
        return content

    def found(self, name: str) -> bytes | None:
        try:
            return self.get(f"{FOLDER}/{name}")
        except self._s3.exceptions.NoSuchKey:
            return None

    def put(self, name: str, content: bytes) -> None:
        self._s3.put_object(Bucket=self._name, Key=f"{FOLDER}/{name}", Body=content)


class SecretsManager:
    """Implements `SecretStore`; the name of a secret is its ARN."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    def of_this_machine(cls) -> SecretsManager:
        import boto3

        return cls(boto3.client("secretsmanager"))

    def value(self, secret: str) -> str:
        text: str = self._client.get_secret_value(SecretId=secret)["SecretString"]
        return text

    def value_or_new(self, secret: str, make: Callable[[], str]) -> str:
        try:
            return self.value(secret)
        except self._client.exceptions.ResourceNotFoundException:
            self._client.put_secret_value(SecretId=secret, SecretString=make())
            return self.value(secret)
