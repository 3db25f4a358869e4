"""A container of Azure Blob Storage, through azure-storage-blob."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from resolute.errors import AlreadyExists, NotFound
from resolute.storage.base import StorageAway, StorageUnavailable
from resolute.storage.bucket import StoredObject

GRANTS = "the role Storage Blob Data Contributor"

CONNECT_S, READ_S = 10, 60
PARTS_AT_ONCE = 4
PART_BYTES = 16 * 1024**2
PAGE = 1000


class AzureContainer:
    """Implements `Bucket`. With an `account_url` alone, the machine's own identity is used (package azure-identity), unless the
    address carries a signature."""

    deletes_at_once = 1

    def __init__(
        self,
        container: str,
        *,
        connection_string: str | None = None,
        account_url: str | None = None,
        credential: str | None = None,
    ) -> None:
        self.place = f"azure://{container}"
        self._container = container.rstrip("/")
        self._connection_string = connection_string or None
        self._account_url = account_url or None
        self._credential = credential or None
        self.place = f"{self._client.primary_endpoint.partition('?')[0].rstrip('/')}"

    def put(self, key: str, content: bytes, *, new: bool = False) -> None:
        with self._translated_errors("write", key):
            self._client.get_blob_client(key).upload_blob(content, overwrite=not new)

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        with self._translated_errors("read", key):
            try:
                data: bytes = self._client.download_blob(key, offset=start, length=length).readall()
            except self._errors.HttpResponseError as error:
                if error.status_code == 416:
                    return b""
                raise
        return data

    def upload(self, key: str, path: Path) -> None:
        with self._translated_errors("write", key), open(path, "rb") as file:
            self._client.get_blob_client(key).upload_blob(file, overwrite=True, max_concurrency=PARTS_AT_ONCE)

    def download(self, key: str, path: Path) -> None:
        with self._translated_errors("read", key), open(path, "wb") as file:
            self._client.download_blob(key, max_concurrency=PARTS_AT_ONCE).readinto(file)

    def page(self, prefix: str, after: str | None = None) -> tuple[Sequence[StoredObject], str | None]:
        with self._translated_errors("list", prefix):
            pages = self._client.list_blobs(name_starts_with=prefix, results_per_page=PAGE).by_page(after)
            page = next(pages, ())
            found = [
                StoredObject(key=each.name, size=each.size, modified=each.last_modified.timestamp()) for each in page
            ]
        return found, pages.continuation_token or None

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with self._translated_errors("delete", key):
                    self._client.delete_blob(key, delete_snapshots="include")
            except NotFound:
                continue

    def drop_unfinished(self, prefix: str) -> None:
        """Nothing to do: the service drops them after a week."""

    # -- the client ------------------------------------------------------------------------------------------------

    @cached_property
    def _client(self) -> Any:
        try:
            from azure.storage.blob import BlobServiceClient
        except ImportError:
            raise StorageUnavailable(
                f"checkpoints cannot be stored in {self.place}: the Python package azure-storage-blob is missing here. Add it to "
                "the image or the environment of the task: pip install 'resolute-ml[azure]', or pip install azure-storage-blob."
            ) from None
        options: dict[str, Any] = {
            "connection_timeout": CONNECT_S,
            "read_timeout": READ_S,
            "retry_total": 1,
            "initial_backoff": 0,
            "increment_base": 1,
            "random_jitter_range": 1,
            "max_block_size": PART_BYTES,
            "max_single_put_size": 2 * PART_BYTES,
            "max_single_get_size": PART_BYTES,
            "max_chunk_get_size": PART_BYTES,
        }
        try:
            if self._connection_string is not None:
                service = BlobServiceClient.from_connection_string(self._connection_string, **options)
            else:
                service = BlobServiceClient(str(self._account_url), self._own_credential(), **options)
        except ValueError as error:
            raise StorageUnavailable(f"the storage account of {self.place} cannot be used: {error}") from None
        return service.get_container_client(self._container)

    def _own_credential(self) -> Any:
        if self._credential is not None or urlsplit(str(self._account_url)).query:
            return self._credential
        try:
            from azure.identity import DefaultAzureCredential
        except ImportError:
            raise StorageUnavailable(
                f"checkpoints cannot be stored in {self.place}: without checkpoint_storage.credential the machine's own identity "
                "is used, and the Python package azure-identity is missing here: pip install 'resolute-ml[azure]'."
            ) from None
        return DefaultAzureCredential()

    @property
    def _errors(self) -> Any:
        import azure.core.exceptions

        return azure.core.exceptions

    @contextmanager
    def _translated_errors(self, action: str, key: str) -> Iterator[None]:
        known = self._errors
        try:
            yield
        except known.HttpResponseError as error:
            raise self._of_answer(error, action, key) from error
        except (known.ServiceRequestError, known.ServiceResponseError, known.IncompleteReadError) as error:
            raise StorageAway(f"{self.place} does not answer: {error}.") from error
        except known.AzureError as error:
            raise StorageUnavailable(
                f"{self.place} cannot be used as {self._identity()} ({_line(error)}). Give that identity {GRANTS} on the container."
            ) from error

    def _of_answer(self, error: Any, action: str, key: str) -> Exception:
        code, status = str(getattr(error, "error_code", None) or ""), error.status_code
        said = f"{code}: {_line(error)}"
        if code in ("ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"):
            return StorageUnavailable(
                f"{self.place} cannot be used: there is no such container (asked as {self._identity()}). Create it, or name "
                "another in checkpoint_storage.container."
            )
        if status == 404:
            return NotFound("object", f"{self.place}/{key}")
        if code in ("BlobAlreadyExists", "ConditionNotMet"):
            return AlreadyExists(f"{self.place}/{key} is already there")
        if status is None or status in (408, 429) or status >= 500:
            return StorageAway(f"{self.place} limits the rate of requests ({said}).")
        if status in (401, 403) or isinstance(error, self._errors.ClientAuthenticationError):
            return StorageUnavailable(
                f"{self.place} refuses to {action} {key!r} to {self._identity()} ({said}). Give that identity {GRANTS} on the "
                "container."
            )
        return StorageUnavailable(f"{self.place} refuses to {action} {key!r} ({said}).")

    def _identity(self) -> str:
        if self._connection_string is not None:
            return f"the key of the account {self._client.account_name}"
        if self._credential is not None:
            return "the configured credential"
        return (
            "the signature of the account_url" if urlsplit(str(self._account_url)).query else "this machine's identity"
        )


def _line(error: Exception) -> str:
    """The first line of an error: the client writes headers behind it."""
    return str(error).partition("\n")[0]
