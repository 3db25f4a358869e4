"""Turns a refusal of AWS into one sentence with a remedy."""

from __future__ import annotations

import re

from resolute_deploy.terraform import TerraformFailed

EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
EXPIRED_WORDS = (
    "the credentials for AWS have expired; log in again, for example with `aws sso login`, and run the command again"
)
NONE_WORDS = "no credentials for AWS; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`"
FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_EXPIRED_OF_TERRAFORM = re.compile(rf"\b(?:{'|'.join(sorted(EXPIRED))})\b|SSO session.*expired")


def explained(error: Exception) -> str | None:
    """None if the error is not a refusal of AWS."""
    if isinstance(error, TerraformFailed):
        return f"{EXPIRED_WORDS} ({error})" if _EXPIRED_OF_TERRAFORM.search(str(error)) else None
    try:
        import botocore.exceptions as known
    except ImportError:
        return None
    if isinstance(error, known.ClientError):
        told = error.response["Error"]
        if told["Code"] in EXPIRED:
            return EXPIRED_WORDS
        words = f"{error.operation_name}: {told['Code']}: {told.get('Message', '')}".rstrip(": ")
        if told["Code"] in FORBIDDEN:
            return f"AWS does not allow {words}; have the right added to the account that deploys, and run the command again"
        return f"AWS refuses {words}"
    if isinstance(error, known.UnauthorizedSSOTokenError | known.TokenRetrievalError | known.SSOTokenLoadError):
        return EXPIRED_WORDS
    if isinstance(error, known.NoCredentialsError):
        return NONE_WORDS
    if isinstance(error, known.BotoCoreError | known.WaiterError):
        return f"AWS: {' '.join(str(error).split())}; run the command again"
    return None
