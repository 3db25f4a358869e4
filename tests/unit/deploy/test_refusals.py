"""What a cloud's client libraries raise in the middle of a command, in one sentence with what to do."""

from __future__ import annotations

import botocore.exceptions
import google.api_core.exceptions
import google.auth.exceptions
import pytest
import requests.exceptions

from resolute.errors import InvalidInput
from resolute_deploy.aws.refusals import EXPIRED_WORDS
from resolute_deploy.aws.refusals import explained as of_aws
from resolute_deploy.gcp.refusals import explained as of_google
from resolute_deploy.terraform import TerraformFailed


def refused(code: str) -> botocore.exceptions.ClientError:
    return botocore.exceptions.ClientError({"Error": {"Code": code, "Message": "it says why"}}, "DescribeVpcs")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (refused("ExpiredToken"), EXPIRED_WORDS),
        (refused("RequestExpired"), EXPIRED_WORDS),
        (botocore.exceptions.UnauthorizedSSOTokenError(), EXPIRED_WORDS),
        (
            refused("UnauthorizedOperation"),
            "AWS does not allow DescribeVpcs: UnauthorizedOperation: it says why; have the",
        ),
        (refused("InternalError"), "AWS refuses DescribeVpcs: InternalError: it says why"),
        (botocore.exceptions.NoCredentialsError(), "no credentials for AWS; set AWS_ACCESS_KEY_ID"),
        (
            botocore.exceptions.WaiterError("InstanceTerminated", "Max attempts exceeded", {}),
            "AWS: Waiter InstanceTerminated failed: Max attempts exceeded; run the command again",
        ),
        (
            TerraformFailed("creating IAM Role: api error ExpiredToken: The security token included is expired"),
            f"{EXPIRED_WORDS} (creating IAM Role: api error ExpiredToken",
        ),
    ],
)
def test_what_aws_refuses(error: Exception, words: str) -> None:
    assert (of_aws(error) or "").startswith(words)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            google.auth.exceptions.RefreshError(  # type: ignore[no-untyped-call]
                "invalid_grant: Token has been expired or revoked.", {}
            ),
            "the credentials for Google Cloud are not accepted or have expired (('invalid_grant: Token has been expired",
        ),
        (
            TerraformFailed('oauth2: "invalid_grant" "Bad Request"'),
            'the credentials for Google Cloud are not accepted or have expired (oauth2: "invalid_grant" "Bad Request"); log in',
        ),
        (
            google.api_core.exceptions.Forbidden("no access"),  # type: ignore[no-untyped-call]
            "Cloud Storage of Google Cloud: no access",
        ),
        (
            requests.exceptions.ConnectionError("refused"),
            "Google Cloud does not answer: refused; run the command again",
        ),
    ],
)
def test_what_google_refuses(error: Exception, words: str) -> None:
    assert (of_google(error) or "").startswith(words)


@pytest.mark.parametrize("explained", [of_aws, of_google])
@pytest.mark.parametrize("error", [KeyError("zone"), InvalidInput("--zone: no"), TerraformFailed("quota exceeded")])
def test_every_other_error_stays_as_it_is(explained: object, error: Exception) -> None:
    assert callable(explained) and explained(error) is None
