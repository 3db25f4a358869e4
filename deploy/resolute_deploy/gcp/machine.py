"""The Google Cloud services that the master's machine uses."""

from __future__ import annotations

from collections.abc import Sequence

from resolute_deploy.cloud import CloudMachine
from resolute_deploy.gcp.api import ENDPOINT, GoogleApi
from resolute_deploy.gcp.bucket import GoogleBucket, SecretManager
from resolute_deploy.gcp.database import DatabaseUser
from resolute_deploy.gcp.logs import CloudLog
from resolute_provisioner.clouds.gcp.metadata import GceMetadata


def own_addresses() -> Sequence[str]:
    """Addresses of this machine in its network. Raises `OSError` if the service does not answer."""
    address = GceMetadata().address()
    if address is None:
        raise OSError("the metadata server does not return the machine's address")
    return (address,)


MACHINE = CloudMachine(
    bucket=GoogleBucket.of_this_machine,
    secrets=SecretManager.of_this_machine,
    own_addresses=own_addresses,
    database_password=DatabaseUser(GoogleApi.of_this_machine).password,
    log_stream=CloudLog.of_this_machine,
    passed_variables=(ENDPOINT, "STORAGE_EMULATOR_HOST", "GCE_METADATA_HOST", "GCE_METADATA_IP"),
)
