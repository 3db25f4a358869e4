"""The AWS services that the master's machine uses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from resolute_deploy.aws.bucket import S3Bucket, SecretsManager
from resolute_deploy.aws.logs import CloudWatchStream
from resolute_deploy.aws.metadata import own_addresses
from resolute_deploy.cloud import CloudMachine, SecretStore


def database_password(store: SecretStore, database: Mapping[str, Any]) -> str:
    """RDS creates and rotates the password."""
    told: str = json.loads(store.value(database["password_secret"]))["password"]
    return told


MACHINE = CloudMachine(
    bucket=S3Bucket.of_this_machine,
    secrets=SecretsManager.of_this_machine,
    own_addresses=own_addresses,
    database_password=database_password,
    log_stream=CloudWatchStream.of_this_machine,
    passed_variables=("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"),
)
