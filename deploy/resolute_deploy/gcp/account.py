"""A project of Google Cloud: the checks before a cluster is created, and the resources to remove when it is destroyed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from resolute.errors import InvalidInput
from resolute_deploy.cloud import CHECKPOINTS, Account, Existing, Finding, Known, Left, Orphan, Planned, in_the_way
from resolute_deploy.cluster_directory import module_variables
from resolute_deploy.gcp.api import GoogleApi, GoogleError, default_credentials
from resolute_deploy.gcp.bindings import bindings_of_deleted_account, master_account, remove_bindings
from resolute_deploy.gcp.bucket import GoogleBucket, SecretManager
from resolute_deploy.gcp.parts import parts
from resolute_deploy.gcp.preflight import preflight
from resolute_deploy.gcp.resources import Found, Place, machines, remove, resources

BOUGHT = "resolute-cluster"
"""Label of machines that the master buys, which no state records."""


class GoogleAccount(Account):
    """One project, and the region of a cluster in it."""

    def __init__(self, place: Place, credentials: Any) -> None:
        self.place = place
        self.region = place.region
        self._credentials = credentials
        self.api = GoogleApi.with_credentials(credentials)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> GoogleAccount:
        """Raises `InvalidInput` if the SDK, the credentials or the project is missing."""
        if not values.get("project_id"):
            raise InvalidInput("no project: give --project-id")
        usual = {each.name: each.default for each in module_variables("gcp")}
        place = Place(project=values["project_id"], region=values.get("region") or usual["region"])
        return cls(place, default_credentials(values.get("keypath")))

    def check(self) -> None:
        project = self.place.project
        try:
            self.api.get("cloudresourcemanager", f"v1/projects/{project}")
        except GoogleError as error:
            if error.disabled:
                command = f"gcloud services enable cloudresourcemanager.googleapis.com --project {project}"
                raise InvalidInput(
                    f"--project-id {project}: cloudresourcemanager is not enabled; `{command}` enables it"
                ) from None
            if error.status in (403, 404):
                raise InvalidInput(
                    f"--project-id {project}: there is no such project, or these credentials have no access to it; "
                    "`gcloud projects list` lists the projects to which they have access"
                ) from None
            raise

    def preflight(self, values: Mapping[str, Any], *, new: bool) -> list[Finding]:
        self.check()
        taken = [each.what for each in in_the_way(self, values["cluster_id"])] if new else []
        return preflight(self.api, self.place, values, taken)

    # -------------------------------------------------------------------------------------------------------------- after

    def machines(self, cluster_id: str, *, besides: str = "") -> list[str]:
        """The machines, each as `zone/name`."""
        return [name for each in machines(self.api, self.place, cluster_id) if (name := _named(each)) != besides]

    def end(self, machines: Sequence[str]) -> None:
        found = [self._machine(each) for each in machines]
        for each in found:
            self.api.delete(each.service, each.path)
        for each in found:
            remove(self.api, each)

    def _machine(self, name: str) -> Found:
        zone, _, machine = name.partition("/")
        path = f"projects/{self.place.project}/zones/{zone}/instances/{machine}"
        return Found(
            noun="machine",
            type="google_compute_instance",
            id=path,
            service="compute",
            path=f"compute/v1/{path}",
            command=f"gcloud compute instances delete {machine} --zone {zone} --project {self.place.project}",
        )

    def cancel_requests(self, cluster_id: str) -> None:
        """Google Cloud keeps none."""

    @cached_property
    def _storage(self) -> Any:
        from google.cloud import storage

        return storage.Client(project=self.place.project, credentials=self._credentials)

    def bucket(self, name: str) -> GoogleBucket:
        return GoogleBucket(self._storage, name)

    def secrets(self) -> SecretManager:
        return SecretManager(self.api)

    def holds_checkpoints(self, bucket: str) -> bool:
        from google.api_core.exceptions import NotFound

        try:
            return any(True for _ in self._objects(bucket, f"{CHECKPOINTS}/", most=1))
        except NotFound:
            return False

    def empty(self, bucket: str, prefix: str = "") -> int:
        from google.api_core.exceptions import NotFound

        removed = 0
        try:
            for blob in self._objects(bucket, prefix):
                try:
                    blob.delete()
                    removed += 1
                except NotFound:
                    pass  # it went in between
        except NotFound:
            pass  # so did the bucket
        return removed

    def _objects(self, bucket: str, prefix: str, *, most: int | None = None) -> Iterator[Any]:
        yield from self._storage.list_blobs(bucket, prefix=prefix or None, versions=True, max_results=most)

    def bucket_name(self, cluster_id: str) -> str:
        """The name that the module gives the bucket: all projects of Google Cloud share one namespace of buckets."""
        return f"resolute-{cluster_id}-{hashlib.sha1(self.place.project.encode()).hexdigest()[:8]}"

    def making_bucket(self, name: str) -> str | None:
        if self._storage.lookup_bucket(name) is not None:
            return None
        return f"gcloud storage buckets create gs://{name} --project {self.place.project} --location {self.region}"

    def kept_bucket(self, cluster_id: str) -> str | None:
        name = self.bucket_name(cluster_id)
        return name if self._storage.lookup_bucket(name) is not None else None

    def console_command(self, machine: str) -> str:
        zone, _, name = machine.partition("/")
        return f"gcloud compute instances get-serial-port-output {name} --zone {zone} --project {self.place.project}"

    def left(self, cluster_id: str) -> Iterator[Left]:
        for each in resources(self.api, self.place, cluster_id):
            yield Left(what=each.what, command=each.command)
        account = master_account(self.place, cluster_id)
        for binding in bindings_of_deleted_account(self.api, self.place, account):
            yield Left(what=f"role {binding.role} of {account}", command=binding.command)
        bucket = self.kept_bucket(cluster_id)
        if bucket is not None:
            yield Left(what=f"bucket {bucket}", command=f"gcloud storage rm --recursive gs://{bucket}")

    def orphans(self, cluster_id: str, known: Known) -> Iterator[Orphan]:
        """Disks are parts of machines."""
        for each in resources(self.api, self.place, cluster_id):
            if each.type != "google_compute_disk" and BOUGHT not in each.labels and (each.type, each.id) not in known:
                yield Orphan(what=each.what, remove=partial(remove, self.api, each))
        account = master_account(self.place, cluster_id)
        if any(True for _ in bindings_of_deleted_account(self.api, self.place, account)):
            end = partial(remove_bindings, self.api, self.place, account)
            yield Orphan(what=f"the roles of {account}", remove=end)

    def existing_parts(self, planned: Sequence[Planned]) -> Iterator[Existing]:
        return parts(self.api, planned)


def _named(machine: Found) -> str:
    _, _, _, zone, _, name = machine.id.split("/")
    return f"{zone}/{name}"
