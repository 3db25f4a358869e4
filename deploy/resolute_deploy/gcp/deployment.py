"""The interface of Google Cloud to `det deploy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute_deploy.cloud import Deployment
from resolute_deploy.gcp.account import GoogleAccount
from resolute_deploy.gcp.machine import MACHINE
from resolute_deploy.gcp.preflight import hourly_cost
from resolute_deploy.gcp.refusals import explained


def emulated(environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Environment variables with which the master's machine and the tasks call an emulator."""
    named = {name: environ[name] for name in MACHINE.passed_variables if environ.get(name)}
    return {"environment": named} if named else {}


def backend(bucket: str, values: Mapping[str, Any], cluster_id: str) -> Mapping[str, Any]:
    """The backend of a state in a bucket. It includes a lock."""
    key = {"credentials": values["keypath"]} if values.get("keypath") else {}
    return {"gcs": {"bucket": bucket, "prefix": f"resolute/{cluster_id}", **key}}


DEPLOYMENT = Deployment(
    account=GoogleAccount.of,
    hourly_cost=hourly_cost,
    emulated=emulated,
    backend=backend,
    explained=explained,
    hidden=frozenset({"environment"}),
    bucket_resource="module.storage.google_storage_bucket.this",
    slow={
        "google_sql_database_instance": "10 to 15 minutes",
        "google_service_networking_connection": "1 minute",
        "google_filestore_instance": "5 minutes",
        "google_compute_network": "1 minute",
    },
    listed={"Project": "project_id", "Region": "region"},
    aliases={"--state-path": "--local-state-path", "--state-bucket": "--tf-state-gcs-bucket-name"},
)
