"""The documents below `cluster/` in the cluster's bucket, and its secrets."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

from resolute_deploy.cloud import FOLDER
from resolute_deploy.gcp.api import GoogleApi


class GoogleBucket:
    """Implements `ClusterBucket`."""

    def __init__(self, client: Any, name: str) -> None:
        self._bucket = client.bucket(name)

    @classmethod
    def of_this_machine(cls, name: str) -> GoogleBucket:
        from google.cloud import storage

        return cls(storage.Client(), name)

    def desired(self) -> tuple[str, dict[str, Any]]:
        content = self.get(f"{FOLDER}/desired.json")
        return hashlib.sha256(content).hexdigest(), json.loads(content)

    def get(self, key: str) -> bytes:
        content: bytes = self._bucket.blob(key).download_as_bytes()
        return content

    def found(self, name: str) -> bytes | None:
        from google.api_core.exceptions import NotFound

        try:
            return self.get(f"{FOLDER}/{name}")
        except NotFound:
            return None

    def put(self, name: str, content: bytes) -> None:
        from google.cloud.storage.retry import DEFAULT_RETRY

        # A repeated write is harmless: no other program writes the document.
        blob = self._bucket.blob(f"{FOLDER}/{name}")
        blob.upload_from_string(content, content_type="application/octet-stream", retry=DEFAULT_RETRY)


class SecretManager:
    """Implements `SecretStore`; the name of a secret is `projects/PROJECT/secrets/NAME`."""

    def __init__(self, api: GoogleApi) -> None:
        self._api = api

    @classmethod
    def of_this_machine(cls) -> SecretManager:
        return cls(GoogleApi.of_this_machine())

    def value(self, secret: str) -> str:
        told = self._api.get("secretmanager", f"v1/{secret}/versions/latest:access")
        return base64.b64decode(told["payload"]["data"]).decode()

    def value_or_new(self, secret: str, make: Callable[[], str]) -> str:
        if self._api.found("secretmanager", f"v1/{secret}/versions/latest:access") is None:
            data = base64.b64encode(make().encode()).decode()
            self._api.post("secretmanager", f"v1/{secret}:addVersion", {"payload": {"data": data}})
        return self.value(secret)
