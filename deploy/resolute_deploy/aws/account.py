"""An account of AWS: the checks before a cluster is created, and the resources to remove when it is destroyed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resolute.errors import InvalidInput
from resolute_deploy.aws.bucket import S3Bucket, SecretsManager
from resolute_deploy.aws.parts import parts
from resolute_deploy.aws.preflight import preflight
from resolute_deploy.aws.refusals import EXPIRED, EXPIRED_WORDS, NONE_WORDS
from resolute_deploy.aws.resources import end_machines, machines, resources
from resolute_deploy.cloud import CHECKPOINTS, MARK, Account, Finding, Known, Left, Orphan, Planned

DELETE_AT_ONCE = 1000
"""Keys that S3 takes in one request."""


class AwsAccount(Account):
    """The account and region of a profile."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.region: str = session.region_name
        self._clients: dict[str, Any] = {}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> AwsAccount:
        """Raises `InvalidInput` if the SDK, the profile or a region is missing."""
        try:
            import boto3
            import botocore.exceptions
        except ImportError:
            raise InvalidInput(
                "deploying to AWS needs the extra `aws`: pip install 'resolute-ml[aws,deploy]'"
            ) from None
        try:
            session = boto3.Session(profile_name=values.get("profile"), region_name=values.get("region"))
        except botocore.exceptions.ProfileNotFound as error:
            raise InvalidInput(
                f"--profile {values.get('profile')}: {error}; `aws configure list-profiles` lists them"
            ) from None
        if session.region_name is None:
            raise InvalidInput("no region: give --region, or set AWS_DEFAULT_REGION")
        return cls(session)

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._session.client(service)
        return self._clients[service]

    # ------------------------------------------------------------------------------------------------------------- before

    def check(self) -> None:
        self.number()

    def preflight(self, values: Mapping[str, Any], *, new: bool) -> list[Finding]:
        return preflight(self, values, new=new)

    def number(self) -> str:
        """The number of the account. Raises `InvalidInput` if AWS does not accept the credentials."""
        import botocore.exceptions

        try:
            told: str = self.client("sts").get_caller_identity()["Account"]
        except botocore.exceptions.NoCredentialsError:
            raise InvalidInput(NONE_WORDS) from None
        except botocore.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            if code in EXPIRED:
                raise InvalidInput(EXPIRED_WORDS) from None
            raise InvalidInput(
                f"AWS does not accept the credentials ({code}); check them with `aws sts get-caller-identity`"
            ) from None
        except botocore.exceptions.EndpointConnectionError as error:
            raise InvalidInput(f"--region {self.region}: cannot reach AWS there ({error}); is that a region?") from None
        return told

    def has_region(self) -> bool:
        import botocore.exceptions

        try:
            partition = self._session.get_partition_for_region(self.region)
        except botocore.exceptions.UnknownRegionError:
            return False
        return self.region in self._session.get_available_regions("ec2", partition_name=partition)

    def has_keypair(self, name: str) -> bool:
        import botocore.exceptions

        try:
            return bool(self.client("ec2").describe_key_pairs(KeyNames=[name])["KeyPairs"])
        except botocore.exceptions.ClientError:
            return False

    def image(self, asked: str) -> str | None:
        """The id of an image, which may be given by a public parameter; None if there is none."""
        import botocore.exceptions

        try:
            name = asked.removeprefix("resolve:ssm:")
            found = self.client("ssm").get_parameter(Name=name)["Parameter"]["Value"] if name != asked else asked
            images = self.client("ec2").describe_images(ImageIds=[found])["Images"]
        except botocore.exceptions.ClientError:
            return None
        return str(images[0]["ImageId"]) if images else None

    def processors(self, instance_types: Sequence[str]) -> dict[str, int]:
        """vCPUs by type, without types that the region does not offer."""
        pages = self.client("ec2").get_paginator("describe_instance_types")
        found = {}
        for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": sorted(set(instance_types))}]):
            for each in page["InstanceTypes"]:
                found[each["InstanceType"]] = int(each["VCpuInfo"]["DefaultVCpus"])
        return found

    def quota(self, code: str) -> float | None:
        """vCPUs that a quota of EC2 allows; None if the quota cannot be read."""
        import botocore.exceptions

        try:
            told = self.client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=code)
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError):
            return None
        return float(told["Quota"]["Value"])

    # -------------------------------------------------------------------------------------------------------------- after

    def machines(self, cluster_id: str, *, besides: str = "") -> list[str]:
        """Ids of the cluster's machines that are not terminated."""
        found = [each.id for each in machines(self.client("ec2"), self.region, cluster_id)]
        return [machine for machine in found if machine != besides]

    def end(self, machines: Sequence[str]) -> None:
        end_machines(self.client("ec2"), machines)

    def cancel_requests(self, cluster_id: str) -> None:
        filters = [{"Name": f"tag:{MARK}", "Values": [cluster_id]}, {"Name": "state", "Values": ["open", "active"]}]
        asked = self.client("ec2").describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"]
        ids = [each["SpotInstanceRequestId"] for each in asked]
        if ids:
            self.client("ec2").cancel_spot_instance_requests(SpotInstanceRequestIds=ids)

    def bucket(self, name: str) -> S3Bucket:
        return S3Bucket(self.client("s3"), name)

    def secrets(self) -> SecretsManager:
        return SecretsManager(self.client("secretsmanager"))

    def orphans(self, cluster_id: str, known: Known) -> Iterator[Orphan]:
        """Disks are parts of machines."""
        for each in resources(self.client, self.region, cluster_id):
            if each.remove is not None and not each.bought and (each.type, each.id) not in known:
                yield Orphan(what=each.what, remove=each.remove)

    def orphaned_parts(self, planned: Sequence[Planned]) -> Iterator[Orphan]:
        return parts(self.client("ec2"), planned)

    def bucket_name(self, cluster_id: str) -> str:
        return f"resolute-{cluster_id}-{self.number()}-{self.region}"

    def making_bucket(self, name: str) -> str | None:
        import botocore.exceptions

        try:
            self.client("s3").head_bucket(Bucket=name)
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
                raise
            return f"aws s3 mb s3://{name} --region {self.region}"
        return None

    def kept_bucket(self, cluster_id: str) -> str | None:
        name = self.bucket_name(cluster_id)
        return name if name in {each["Name"] for each in self.client("s3").list_buckets()["Buckets"]} else None

    def console_command(self, machine: str) -> str:
        return f"aws ec2 get-console-output --latest --region {self.region} --instance-id {machine}"

    def holds_checkpoints(self, bucket: str) -> bool:
        import botocore.exceptions

        try:
            told = self.client("s3").list_object_versions(Bucket=bucket, Prefix=f"{CHECKPOINTS}/", MaxKeys=1)
        except botocore.exceptions.ClientError:
            return False
        return bool(told.get("Versions") or told.get("DeleteMarkers"))

    def empty(self, bucket: str, prefix: str = "") -> int:
        """Removes all versions of all objects below a prefix, and returns their number."""
        import botocore.exceptions

        removed = 0
        pages = self.client("s3").get_paginator("list_object_versions")
        try:
            for page in pages.paginate(Bucket=bucket, Prefix=prefix, PaginationConfig={"PageSize": DELETE_AT_ONCE}):
                keys = [
                    {"Key": each["Key"], "VersionId": each["VersionId"]}
                    for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
                ]
                if keys:
                    self.client("s3").delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
                    removed += len(keys)
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchBucket":
                raise
        return removed

    def left(self, cluster_id: str) -> Iterator[Left]:
        for each in resources(self.client, self.region, cluster_id):
            if not each.going:
                yield Left(what=each.what, command=each.command)
        bucket = self.kept_bucket(cluster_id)
        if bucket is not None:
            yield Left(what=f"bucket {bucket}", command=f"aws s3 rb --force s3://{bucket}")
