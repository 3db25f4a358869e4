"""A bucket on S3, or on a service with its API, through boto3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from resolute.errors import AlreadyExists, NotFound
from resolute.storage.base import StorageAway, StorageUnavailable
from resolute.storage.bucket import StoredObject

GRANTS = "s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucketMultipartUploads"

CONNECT_S, READ_S = 10, 60
PARTS_AT_ONCE = 16
PART_BYTES = 16 * 1024**2
"""Files of twice as much go in parts."""

_DENIED = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "401",
        "403",
    }
)
_RETRYABLE = frozenset(
    {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown", "Throttling", "429"}
)


class S3Bucket:
    """Obeys `Bucket`. Without keys the client finds the machine's own identity: a role of the instance, or the environment."""

    deletes_at_once = 1000

    def __init__(
        self,
        bucket: str,
        *,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        self.place = f"s3://{bucket}" + (f" at {endpoint_url}" if endpoint_url else "")
        self._bucket = bucket
        self._endpoint_url = endpoint_url or None
        self._keys = (access_key or None, secret_key or None)
        self._client  # noqa: B018  # a missing client fails here, not in the middle of a save

    def put(self, key: str, content: bytes, *, new: bool = False) -> None:
        condition = {"IfNoneMatch": "*"} if new else {}
        with self._translated_errors(key):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **condition)

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        wanted = {} if length is None and start == 0 else {"Range": f"bytes={start}-{_end(start, length)}"}
        with self._translated_errors(key):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=key, **wanted)
            except self._errors.ClientError as error:
                if error.response["Error"]["Code"] == "InvalidRange":  # it is empty, or ends before
                    return b""
                raise
            data: bytes = answer["Body"].read()
        return data

    def upload(self, key: str, path: Path) -> None:
        with self._translated_errors(key):
            self._transfers.upload(str(path), self._bucket, key).result()

    def download(self, key: str, path: Path) -> None:
        with self._translated_errors(key):
            self._transfers.download(self._bucket, key, str(path)).result()

    def page(self, prefix: str, after: str | None = None) -> tuple[Sequence[StoredObject], str | None]:
        going_on = {} if after is None else {"ContinuationToken": after}
        with self._translated_errors(prefix):
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, **going_on)
        found = [
            StoredObject(key=each["Key"], size=each["Size"], modified=each["LastModified"].timestamp())
            for each in answer.get("Contents", ())
        ]
        return found, answer.get("NextContinuationToken")

    def delete(self, keys: Sequence[str]) -> None:
        removed = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        with self._translated_errors(keys[0]):
            answer = self._client.delete_objects(Bucket=self._bucket, Delete=removed)
            for each in answer.get("Errors", ()):
                raise self._errors.ClientError({"Error": each}, "DeleteObjects")

    def drop_unfinished(self, prefix: str) -> None:
        with self._translated_errors(prefix):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            for each in [upload for page in pages for upload in page.get("Uploads", ())]:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=each["Key"], UploadId=each["UploadId"])

    # -- the client ------------------------------------------------------------------------------------------------

    @cached_property
    def _session(self) -> Any:
        try:
            import boto3
        except ImportError:
            raise StorageUnavailable(
                f"checkpoints cannot be stored in {self.place}: the Python package boto3 is missing here. Add it to the image "
                "or the environment of the task: pip install 'resolute-ml[aws]', or pip install boto3."
            ) from None
        access_key, secret_key = self._keys
        return boto3.Session(aws_access_key_id=access_key, aws_secret_access_key=secret_key)

    @cached_property
    def _client(self) -> Any:
        session = self._session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=2 * PARTS_AT_ONCE,
            tcp_keepalive=True,
        )
        try:
            return session.client("s3", endpoint_url=self._endpoint_url, config=config)
        except (BotoCoreError, ValueError) as error:
            raise StorageUnavailable(f"{self.place} cannot be used: {error}") from None

    @cached_property
    def _transfers(self) -> Any:
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        config = TransferConfig(
            multipart_threshold=2 * PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        return create_transfer_manager(self._client, config)

    @property
    def _errors(self) -> Any:
        import botocore.exceptions

        return botocore.exceptions

    @contextmanager
    def _translated_errors(self, key: str) -> Iterator[None]:
        from s3transfer.exceptions import RetriesExceededError

        known = self._errors
        try:
            yield
        except known.ClientError as error:
            raise self._of_answer(error, key) from error
        except (known.NoCredentialsError, known.PartialCredentialsError, known.CredentialRetrievalError) as error:
            raise StorageUnavailable(
                f"{self.place} cannot be used: this machine has no identity there ({error}). Give the machine a role that may do "
                f"{GRANTS} on the bucket, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment."
            ) from error
        except known.ParamValidationError as error:
            raise StorageUnavailable(f"{self.place} cannot be used: {error}") from error
        except (known.BotoCoreError, RetriesExceededError) as error:
            raise StorageAway(f"{self.place} does not answer: {error}.") from error

    def _of_answer(self, error: Any, key: str) -> Exception:
        code = str(error.response["Error"].get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        said = f"{code}: {error.response['Error'].get('Message', '')}".rstrip(": ")
        if code == "NoSuchBucket":
            return StorageUnavailable(
                f"{self.place} cannot be used: there is no such bucket (asked as {self._identity()}). Create it, or name another "
                "in checkpoint_storage.bucket."
            )
        if code in ("NoSuchKey", "404"):
            return NotFound("object", f"{self.place}/{key}")
        if code == "PreconditionFailed":
            return AlreadyExists(f"{self.place}/{key} is already there")
        if code in _RETRYABLE or status >= 500 or status == 429:
            return StorageAway(f"{self.place} limits the rate of requests ({said}).")
        if code in _DENIED or status in (401, 403):
            return StorageUnavailable(
                f"{self.place} refuses {error.operation_name} of {key!r} to {self._identity()} ({said}). Grant it {GRANTS} on the "
                "bucket and its objects."
            )
        return StorageUnavailable(f"{self.place} refuses {error.operation_name} of {key!r} ({said}).")

    def _identity(self) -> str:
        """The identity of the caller, for the operator: the role's name costs one request, which services other than AWS do not
        answer."""
        from botocore.config import Config

        credentials = self._session.get_credentials()
        if credentials is None:
            return "none: no credentials were found"
        shown = f"the access key {credentials.access_key} (from {credentials.method})"
        if self._endpoint_url is not None:
            return shown
        try:
            brief = Config(connect_timeout=3, read_timeout=3, retries={"total_max_attempts": 1})
            region = self._session.region_name or "us-east-1"
            answer = self._session.client("sts", region_name=region, config=brief).get_caller_identity()
        except (self._errors.BotoCoreError, self._errors.ClientError):
            return shown
        return f"{answer['Arn']}, {shown}"


def _end(start: int, length: int | None) -> str:
    return "" if length is None else str(start + length - 1)
