"""Amazon Web Services, as `det deploy` sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute_deploy.aws.account import AwsAccount
from resolute_deploy.aws.preflight import hourly_cost
from resolute_deploy.cloud import Deployment


def emulated(environ: Mapping[str, str]) -> Mapping[str, Any]:
    url = environ.get("AWS_ENDPOINT_URL", "")
    return {"endpoint_url": url} if url else {}


def backend(bucket: str, region: str, cluster_id: str) -> Mapping[str, Any]:
    return {
        "s3": {
            "bucket": bucket,
            "key": f"resolute/{cluster_id}/terraform.tfstate",
            "region": region,
            "encrypt": True,
            "use_lockfile": True,
        }
    }


DEPLOYMENT = Deployment(
    account=AwsAccount.of,
    hourly_cost=hourly_cost,
    emulated=emulated,
    backend=backend,
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
