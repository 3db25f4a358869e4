"""A bucket on Google Cloud Storage, through google-cloud-storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from resolute.errors import AlreadyExists, NotFound
from resolute.storage.base import StorageAway, StorageUnavailable
from resolute.storage.bucket import StoredObject

GRANTS = "roles/storage.objectUser"

TIMEOUTS = (10.0, 60.0)
"""Seconds to connect, and to wait for bytes."""

PART_BYTES = 32 * 1024**2
"""A larger file is sent in requests of this size; a failed one is retried."""

PART_RETRIES_S = 20.0
PAGE = 1000


class GcsBucket:
    """Implements `Bucket`. The client uses the machine's own identity (Application Default Credentials)."""

    deletes_at_once = 1

    def __init__(self, bucket: str) -> None:
        self.place = f"gs://{bucket}"
        self._name = bucket
        self._client  # noqa: B018  # a missing client fails here, not in the middle of a save

    def put(self, key: str, content: bytes, *, new: bool = False) -> None:
        condition = {"if_generation_match": 0} if new else {}
        with self._translated_errors("write", key):
            self._blob(key).upload_from_string(
                content, "application/octet-stream", timeout=TIMEOUTS, retry=None, **condition
            )

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else start + length - 1
        with self._translated_errors("read", key):
            try:
                data: bytes = self._blob(key).download_as_bytes(
                    start=start or None, end=end, timeout=TIMEOUTS, retry=None, checksum=None if end else "auto"
                )
            except self._errors.RequestRangeNotSatisfiable:
                return b""
        return data

    def upload(self, key: str, path: Path) -> None:
        with self._translated_errors("write", key):
            self._blob(key, PART_BYTES).upload_from_filename(
                str(path), "application/octet-stream", timeout=TIMEOUTS, retry=self._of_parts
            )

    def download(self, key: str, path: Path) -> None:
        with self._translated_errors("read", key):
            self._blob(key).download_to_filename(str(path), timeout=TIMEOUTS, retry=self._of_parts)

    def page(self, prefix: str, after: str | None = None) -> tuple[Sequence[StoredObject], str | None]:
        with self._translated_errors("list", prefix):
            listed = self._client.list_blobs(
                self._name, prefix=prefix, page_token=after, page_size=PAGE, timeout=TIMEOUTS, retry=None
            )
            page = next(listed.pages, ())
            found = [
                StoredObject(key=each.name, size=each.size, modified=(each.updated or each.time_created).timestamp())
                for each in page
            ]
        return found, listed.next_page_token

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with self._translated_errors("delete", key):
                    self._blob(key).delete(timeout=TIMEOUTS, retry=None)
            except NotFound:
                continue

    def drop_unfinished(self, prefix: str) -> None:
        """Nothing to do: the service drops them after a week."""

    # -- the client ------------------------------------------------------------------------------------------------

    def _blob(self, key: str, part_bytes: int | None = None) -> Any:
        return self._client.bucket(self._name).blob(key, chunk_size=part_bytes)

    @cached_property
    def _client(self) -> Any:
        try:
            from google.auth.exceptions import GoogleAuthError
            from google.cloud import storage
        except ImportError:
            raise StorageUnavailable(
                f"checkpoints cannot be stored in {self.place}: the Python package google-cloud-storage is missing here. Add it to "
                "the image or the environment of the task: pip install 'resolute-ml[gcp]', or pip install google-cloud-storage."
            ) from None
        try:
            client = storage.Client()
        except (GoogleAuthError, OSError) as error:
            raise StorageUnavailable(
                f"{self.place} cannot be used: this machine has no identity there ({error}). Run it as a service account that has "
                f"{GRANTS} on the bucket, or name a key file in GOOGLE_APPLICATION_CREDENTIALS."
            ) from error
        self._widen(client)
        return client

    @staticmethod
    def _widen(client: Any) -> None:
        """Allows as many connections as concurrent files: the client's own adapter keeps ten and warns about more."""
        from requests.adapters import HTTPAdapter

        client._http.mount("https://", HTTPAdapter(pool_connections=4, pool_maxsize=32))
        client._http.mount("http://", HTTPAdapter(pool_connections=4, pool_maxsize=32))

    @property
    def _of_parts(self) -> Any:
        """Retries of requests inside a large file, so that the file need not be sent from its beginning."""
        from google.cloud.storage.retry import DEFAULT_RETRY

        return DEFAULT_RETRY.with_timeout(PART_RETRIES_S)

    @property
    def _errors(self) -> Any:
        import google.api_core.exceptions

        return google.api_core.exceptions

    @contextmanager
    def _translated_errors(self, action: str, key: str) -> Iterator[None]:
        import requests
        from google.auth.exceptions import GoogleAuthError, TransportError
        from google.cloud.exceptions import GoogleCloudError
        from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

        known = self._errors
        try:
            yield
        except known.GoogleAPICallError as error:
            raise self._of_answer(error, error.code, action, key) from error
        except InvalidResponse as error:
            raise self._of_answer(error, error.response.status_code, action, key) from error
        except (TransportError, DataCorruption, known.RetryError, requests.RequestException, OSError) as error:
            raise StorageAway(f"{self.place} does not answer: {error}.") from error
        except (GoogleAuthError, GoogleCloudError) as error:
            raise StorageUnavailable(
                f"{self.place} cannot be used as {self._identity()} ({error}). Run it as a service account that has {GRANTS} on "
                "the bucket."
            ) from error

    def _of_answer(self, error: Exception, status: int | None, action: str, key: str) -> Exception:
        said = str(error)
        if status == 404 and (
            ("bucket" in said.lower() and "object" not in said.lower()) or action in ("write", "list")
        ):
            return StorageUnavailable(
                f"{self.place} cannot be used: there is no such bucket (asked as {self._identity()}). Create it, or name another "
                "in checkpoint_storage.bucket."
            )
        if status == 404:
            return NotFound("object", f"{self.place}/{key}")
        if status == 412:
            return AlreadyExists(f"{self.place}/{key} is already there")
        if status is None or status in (408, 429) or status >= 500:
            return StorageAway(f"{self.place} limits the rate of requests ({said}).")
        if status in (401, 403):
            return StorageUnavailable(
                f"{self.place} refuses to {action} {key!r} to {self._identity()} ({said}). Grant it {GRANTS} on the bucket."
            )
        return StorageUnavailable(f"{self.place} refuses to {action} {key!r} ({said}).")

    def _identity(self) -> str:
        email = getattr(self._client._credentials, "service_account_email", None)
        return str(email) if email else "this machine's identity"
