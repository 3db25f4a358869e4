"""Calls Google's REST interfaces that have no client in the extra `gcp`, with the session of google-auth."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from resolute.errors import InvalidInput, ResoluteError
from resolute_deploy.gcp.refusals import expired_words

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
ENDPOINT = "GOOGLE_ENDPOINT_URL"
"""Environment variable with the address of an emulator. Cloud Storage has its own variable."""
TIMEOUT_S = 60.0
NOT_FOUND = 404


class GoogleError(ResoluteError):
    """An interface refused a call. `status` is the HTTP status; `disabled` means that the project has not enabled the interface."""

    def __init__(self, status: int, text: str, *, disabled: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.disabled = disabled


class GoogleApi:
    """`service` is the first word of an interface's address: `compute` of compute.googleapis.com."""

    def __init__(self, session: Any, endpoint: str = "") -> None:
        self._session = session
        self._endpoint = endpoint.rstrip("/")

    @classmethod
    def of_this_machine(cls) -> GoogleApi:
        return cls.with_credentials(default_credentials())

    @classmethod
    def with_credentials(cls, credentials: Any) -> GoogleApi:
        from google.auth.transport import requests

        session: Any = requests.AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
        return cls(session, os.environ.get(ENDPOINT, ""))

    def get(self, service: str, path: str, **query: str) -> dict[str, Any]:
        return self._call("GET", service, path, query)

    def found(self, service: str, path: str) -> dict[str, Any] | None:
        """The resource; None if it does not exist."""
        try:
            return self.get(service, path)
        except GoogleError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def post(self, service: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call("POST", service, path, {}, body)

    def put(self, service: str, path: str, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
        return self._call("PUT", service, path, query, body)

    def delete(self, service: str, path: str) -> None:
        """Starts the removal. A missing resource is not an error."""
        try:
            self._call("DELETE", service, path, {})
        except GoogleError as error:
            if error.status != NOT_FOUND:
                raise

    def pages(self, service: str, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """The resources; empty for an interface that the project has not enabled, which has no resources there."""
        try:
            told = self.get(service, path, **query)
        except GoogleError as error:
            if error.disabled:
                return
            raise
        yield told
        while told.get("nextPageToken"):
            told = self.get(service, path, **query, pageToken=told["nextPageToken"])
            yield told

    def _call(
        self, verb: str, service: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import google.auth.exceptions
        import requests.exceptions

        base = self._endpoint or f"https://{service}.googleapis.com"
        url = f"{base}/{quote(path, safe='/:-_.~@')}"
        try:
            answer = self._session.request(verb, url, params=query, json=body, timeout=TIMEOUT_S)
        except google.auth.exceptions.RefreshError as error:
            raise InvalidInput(expired_words(error)) from None
        except (requests.exceptions.RequestException, google.auth.exceptions.TransportError) as error:
            raise GoogleError(0, f"{service} of Google Cloud does not answer: {_first_line(error)}") from None
        if answer.status_code >= 400:
            raise _refusal(service, answer)
        told: dict[str, Any] = answer.json() if answer.content else {}
        return told


def default_credentials(keypath: str | None = None) -> Any:
    """Credentials of the machine or of a file. Raises `InvalidInput` if there are none, or if the SDK is missing."""
    try:
        import google.auth
        import google.auth.exceptions
        from google.oauth2 import service_account
    except ImportError:
        raise InvalidInput(
            "deploying to Google Cloud needs the extra `gcp`: pip install 'resolute-ml[gcp,deploy]'"
        ) from None
    if keypath is not None:
        try:
            return service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
                keypath, scopes=SCOPES
            )
        except (OSError, ValueError) as error:
            raise InvalidInput(f"--keypath {keypath}: is no key of a service account ({_first_line(error)})") from None
    try:
        return google.auth.default(scopes=SCOPES)[0]
    except google.auth.exceptions.DefaultCredentialsError:
        raise InvalidInput(
            "no credentials for Google Cloud; run `gcloud auth application-default login`, or give --keypath"
        ) from None


def _refusal(service: str, answer: Any) -> GoogleError:
    try:
        error = answer.json()["error"]
        told = error["message"]
        disabled = any(each.get("reason") == "SERVICE_DISABLED" for each in error.get("details", ()))
    except (ValueError, KeyError, TypeError, AttributeError):
        told, disabled = f"HTTP {answer.status_code}", False
    return GoogleError(answer.status_code, f"{service} of Google Cloud: {told}", disabled=disabled)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
