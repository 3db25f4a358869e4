"""Turns a refusal in Google's client libraries into one sentence with a remedy."""

from __future__ import annotations

import re

from resolute_deploy.terraform import TerraformFailed

LOG_IN = "log in again with `gcloud auth application-default login`, or give --keypath"
_EXPIRED_OF_TERRAFORM = re.compile(r"invalid_grant|cannot fetch token|[Tt]oken (?:has been |is )?expired")


def expired_words(error: object) -> str:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return f"the credentials for Google Cloud are not accepted or have expired ({first}); {LOG_IN}"


def explained(error: Exception) -> str | None:
    """None if the error is not a refusal of Google Cloud."""
    if isinstance(error, TerraformFailed):
        return expired_words(error) if _EXPIRED_OF_TERRAFORM.search(str(error)) else None
    try:
        import google.api_core.exceptions as known
        import google.auth.exceptions as of_login
        import requests.exceptions
    except ImportError:
        return None
    if isinstance(error, of_login.RefreshError):
        return expired_words(error)
    if isinstance(error, known.GoogleAPICallError):
        return f"Cloud Storage of Google Cloud: {' '.join(str(error.message).split())}"
    if isinstance(error, known.RetryError | of_login.TransportError | requests.exceptions.RequestException):
        return f"Google Cloud does not answer: {' '.join(str(error).split())}; run the command again"
    return None
