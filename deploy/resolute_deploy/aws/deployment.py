"""The interface of Amazon Web Services to `det deploy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute_deploy.aws.account import AwsAccount
from resolute_deploy.aws.preflight import hourly_cost
from resolute_deploy.aws.refusals import explained
from resolute_deploy.cloud import Deployment


def emulated(environ: Mapping[str, str]) -> Mapping[str, Any]:
    url = environ.get("AWS_ENDPOINT_URL", "")
    return {"endpoint_url": url} if url else {}


def backend(bucket: str, values: Mapping[str, Any], cluster_id: str) -> Mapping[str, Any]:
    profile = {"profile": values["profile"]} if values.get("profile") else {}
    return {
        "s3": {
            "bucket": bucket,
            "key": f"resolute/{cluster_id}/terraform.tfstate",
            "region": values["region"],
            "encrypt": True,
            "use_lockfile": True,
            **profile,
        }
    }


DEPLOYMENT = Deployment(
    account=AwsAccount.of,
    hourly_cost=hourly_cost,
    emulated=emulated,
    backend=backend,
    explained=explained,
    oldest_for_bucket=(1, 10),
    hidden=frozenset({"endpoint_url"}),
    bucket_resource="module.storage.aws_s3_bucket.this",
    slow={
        "aws_db_instance": "5 to 10 minutes",
        "aws_nat_gateway": "2 minutes",
        "aws_s3_bucket_lifecycle_configuration": "1 minute",
    },
    listed={"Region": "region", "Deployment Type": "deployment_type"},
    aliases={},
)
