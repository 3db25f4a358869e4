"""An emulated project of Google Cloud: the resources that Terraform creates, and the interfaces that `det deploy gcp` calls.

The fake Compute Engine provides the machines, the storage emulator the bucket, and a table all other resources. Every call is
validated with Google's discovery documents.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.api_core.exceptions import NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from resolute_provisioner.clouds.gcp.fake_compute_engine import PROJECT, FakeComputeEngine, Times, compute_engine
from support.google_documents import GoogleCall, Violation, understood
from support.google_keys import key_file
from support.object_stores import google_store
from support.terraform_provider import RefusedResource

Json = dict[str, Any]
REGION = "us-central1"
ZONES = tuple(f"{REGION}-{letter}" for letter in "abc")
IMAGES = (
    "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
    "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-amd64-with-nvidia-580",
)
TYPES = ("e2-standard-2", "e2-standard-4", "g2-standard-8", "n1-standard-8")
QUOTAS = {"CPUS": 96.0, "NVIDIA_L4_GPUS": 8.0, "PREEMPTIBLE_NVIDIA_L4_GPUS": 8.0, "NVIDIA_T4_GPUS": 4.0}

IDS: Mapping[str, Callable[[Json], str]] = {
    "google_compute_network": lambda v: f"projects/{v['project']}/global/networks/{v['name']}",
    "google_compute_subnetwork": lambda v: f"projects/{v['project']}/regions/{v['region']}/subnetworks/{v['name']}",
    "google_compute_router": lambda v: f"projects/{v['project']}/regions/{v['region']}/routers/{v['name']}",
    "google_compute_router_nat": lambda v: f"{v['project']}/{v['region']}/{v['router']}/{v['name']}",
    "google_compute_firewall": lambda v: f"projects/{v['project']}/global/firewalls/{v['name']}",
    "google_compute_address": lambda v: f"projects/{v['project']}/regions/{v['region']}/addresses/{v['name']}",
    "google_compute_global_address": lambda v: f"projects/{v['project']}/global/addresses/{v['name']}",
    "google_compute_instance": lambda v: f"projects/{v['project']}/zones/{v['zone']}/instances/{v['name']}",
    "google_filestore_instance": lambda v: f"projects/{v['project']}/locations/{v['location']}/instances/{v['name']}",
    "google_secret_manager_secret": lambda v: f"projects/{v['project']}/secrets/{v['secret_id']}",
    "google_service_account": lambda v: f"projects/{v['project']}/serviceAccounts/{_email(v)}",
    "google_project_iam_custom_role": lambda v: f"projects/{v['project']}/roles/{v['role_id']}",
    "google_storage_bucket": lambda v: v["name"],
    "google_sql_database_instance": lambda v: v["name"],
    "google_storage_bucket_object": lambda v: f"{v['bucket']}-{v['name']}",
    "google_sql_database": lambda v: f"projects/{v['project']}/instances/{v['instance']}/databases/{v['name']}",
    "google_project_iam_member": lambda v: "/".join([v["project"], v["role"], v["member"], *_condition(v)]),
}
"""Ids in the format of the provider. Other resources have ids that nothing reads."""
OWNERS: Mapping[str, tuple[str, str]] = {
    "google_compute_router_nat": ("google_compute_router", "router"),
    "google_sql_database": ("google_sql_database_instance", "instance"),
    "google_service_networking_connection": ("google_compute_network", "network"),
    "google_compute_subnetwork_iam_member": ("google_compute_subnetwork", "subnetwork"),
    "google_service_account_iam_member": ("google_service_account", "service_account_id"),
    "google_secret_manager_secret_iam_member": ("google_secret_manager_secret", "secret_id"),
    "google_storage_bucket_iam_member": ("google_storage_bucket", "bucket"),
    "google_storage_bucket_object": ("google_storage_bucket", "bucket"),
}
"""Resources that are removed with another one: its type, and the attribute with its name."""


def _made_again(type_: str) -> bool:
    """Whether a second request to create it succeeds."""
    again = ("google_storage_bucket_object", "google_service_networking_connection")
    return type_.endswith("_iam_member") or type_ in again


def _condition(values: Json) -> list[str]:
    return [
        "/".join(each.get(part) or "" for part in ("title", "description", "expression"))
        for each in values["condition"] or ()
    ]


def _email(values: Json) -> str:
    return f"{values['account_id']}@{values['project']}.iam.gserviceaccount.com"


def _whole(values: Json) -> str:
    return json.dumps(values, sort_keys=True)


@dataclass(slots=True)
class Refusals:
    """Faults: the messages with which resources of a type cannot be created or removed, or operations of a database fail."""

    creates: dict[str, str] = field(default_factory=dict)
    deletes: dict[str, str] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    login: str = ""
    """The message with which the token service refuses credentials."""
    disabled: set[str] = field(default_factory=set)
    """Interfaces that the project has not enabled, as the first part of their method ids, such as `sql`."""


class GoogleProject:
    """`url` serves all interfaces but Cloud Storage, which is the emulator's."""

    def __init__(self, engine: FakeComputeEngine, buckets: storage.Client, address: str = "127.0.0.1") -> None:
        self.engine = engine
        self.refusals = Refusals()
        self.violations: list[str] = []
        self.calls: list[GoogleCall] = []
        self.made: dict[tuple[str, str], Json] = {}
        """Resources by type and id, as in Terraform's state."""
        self.versions: dict[str, list[str]] = {}
        """Versions of secrets, by name."""
        self.users: dict[str, dict[str, str]] = {}
        """Passwords of the users of databases."""
        self.answers_after_s = 0.0
        """Delay of Terraform's response after the operation."""
        self._buckets = buckets
        self._lock = threading.RLock()
        self._addresses = 9
        self._server = ThreadingHTTPServer((address, 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://{address}:{self._server.server_port}"

    def close(self) -> None:
        """Creates a resource; repeated calls are allowed."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def of(self, type_: str) -> list[Json]:
        return [values for (kind, _), values in sorted(self.made.items()) if kind == type_]

    def objects(self, bucket: str, prefix: str) -> list[str]:
        return [blob.name for blob in self._buckets.list_blobs(bucket, prefix=prefix)]

    def read(self, bucket: str, key: str) -> bytes:
        content: bytes = self._buckets.bucket(bucket).blob(key).download_as_bytes()
        return content

    def write(self, bucket: str, key: str, content: bytes) -> None:
        self._buckets.bucket(bucket).blob(key).upload_from_string(content)

    def erase(self, bucket: str, key: str) -> None:
        self._buckets.bucket(bucket).blob(key).delete()

    def new_bucket(self, name: str) -> None:
        self._buckets.create_bucket(name)

    def remaining(self) -> list[str]:
        """All resources of the project, without those that were removed with another one."""
        elsewhere = ("google_compute_instance", "google_storage_bucket")
        made = [f"{type_} {id_}" for type_, id_ in sorted(self.made) if type_ not in elsewhere]
        buckets = [f"bucket {each.name}" for each in self._buckets.list_buckets()]
        return [*made, *buckets, *self.engine.there()]

    # ------------------------------------------------------------------------------------------------------ of Terraform

    def create(self, type_: str, values: Json) -> Json:
        with self._lock:
            if type_ in self.refusals.creates:
                raise RefusedResource(self.refusals.creates[type_])
            id_ = IDS.get(type_, _whole)(values)
            if type_ == "google_compute_instance" and not self.exists(type_, values):
                self.made.pop((type_, id_), None)  # The command has removed one of that name.
            if (type_, id_) in self.made and not _made_again(type_):
                raise RefusedResource(f"Error 409: {type_} {id_} already exists")
            added = self._added(type_, values)
            self.made[type_, id_] = {**values, "id": id_}
        if type_ == "google_compute_instance":
            self._launch(values)
        elif type_ == "google_storage_bucket":
            self._buckets.create_bucket(values["name"])
        elif type_ == "google_storage_bucket_object":
            self._upload(values)
        time.sleep(self.answers_after_s)
        return {"id": id_, **added}

    def _added(self, type_: str, values: Json) -> Json:
        self._addresses += 1
        address = f"10.0.0.{self._addresses}"
        match type_:
            case "google_service_account":
                email = _email(values)
                return {"email": email, "member": f"serviceAccount:{email}", "name": IDS[type_](values)}
            case "google_project_iam_custom_role":
                return {"name": IDS[type_](values)}
            case "google_compute_address":
                return {"address": f"203.0.113.{self._addresses}"}
            case "google_sql_database_instance":
                return {"private_ip_address": address}
            case "google_filestore_instance":
                return {"networks": [{"ip_addresses": [address]}]}
            case "google_compute_instance":
                return {"network_interface": [{"network_ip": address}]}
        return {}

    def _launch(self, values: Json) -> None:
        zone = values["zone"]
        body = {
            "name": values["name"],
            "machineType": f"zones/{zone}/machineTypes/{values['machine_type']}",
            "labels": values["labels"],
            "disks": [{"boot": True, "autoDelete": True}],
            "networkInterfaces": [{"network": values["network_interface"][0]["network"]}],
            "metadata": {"items": [{"key": key, "value": text} for key, text in values["metadata"].items()]},
        }
        path = f"/compute/v1/projects/{values['project']}/zones/{zone}/instances"
        answer = self.engine.answer("POST", path, json.dumps(body).encode())
        if answer is None or answer[0] != 200:
            raise RefusedResource(f"Compute Engine: {answer}")

    def _upload(self, values: Json) -> None:
        blob = self._buckets.bucket(values["bucket"]).blob(values["name"])
        if values.get("source"):
            blob.upload_from_filename(values["source"])
        else:
            blob.upload_from_string(values["content"])

    def update(self, type_: str, before: Json, values: Json) -> None:
        with self._lock:
            if type_ == "google_storage_bucket_object" and before["name"] != values["name"]:
                self.delete(type_, before)
            self.made[type_, before["id"]] = values
        if type_ == "google_storage_bucket_object":
            self._upload(values)

    def delete(self, type_: str, values: Json) -> None:
        if type_ in self.refusals.deletes:
            raise RefusedResource(self.refusals.deletes[type_])
        if values.get("deletion_policy") == "ABANDON":
            return  # By the provider.
        self._forget(type_, values["id"])
        if type_ == "google_compute_instance":
            path = f"/compute/v1/{IDS[type_](values)}"
            self.engine.answer("DELETE", path, b"")
        try:
            if type_ == "google_storage_bucket":
                self._buckets.bucket(values["name"]).delete()
            elif type_ == "google_storage_bucket_object":
                self._buckets.bucket(values["bucket"]).blob(values["name"]).delete()
        except NotFound:
            pass  # It is removed already.
        time.sleep(self.answers_after_s)

    def _forget(self, type_: str, id_: str) -> bool:
        """Removes a resource with its parts. Returns false if it does not exist."""
        with self._lock:
            gone = self.made.pop((type_, id_), None)
            if gone is None:
                return False
            names = {id_, id_.rsplit("/", 1)[-1]}
            for part, each in list(self.made.items()):
                owner, attribute = OWNERS.get(part[0], ("", ""))
                if owner == type_ and each[attribute] in names:
                    del self.made[part]
            return True

    def exists(self, type_: str, values: Json) -> bool:
        if type_ == "google_compute_instance":
            return f"{values['zone']}/{values['name']}" in self.engine.there()
        return (type_, values["id"]) in self.made

    def adopt(self, type_: str, id_: str) -> Json:
        if type_ != "google_storage_bucket":
            return self.made[type_, id_]
        assert self._buckets.lookup_bucket(id_) is not None
        self.made[type_, id_] = {"id": id_, "name": id_}
        return {"id": id_, "name": id_}

    def data(self, type_: str, values: Json) -> Json:
        assert type_ == "google_compute_zones"
        return {"id": f"projects/{values['project']}/regions/{values['region']}", "names": list(ZONES)}

    # ----------------------------------------------------------------------------------------------------- the interfaces

    def answer(self, verb: str, target: str, body: bytes) -> tuple[int, Json]:
        if target == "/token" and self.refusals.login:
            return 400, {"error": "invalid_grant", "error_description": self.refusals.login}
        if target == "/token":
            return 200, {"access_token": "token", "expires_in": 3600, "token_type": "Bearer"}
        if re.match(r"/compute/v1/projects/[^/]+/(zones/[^/]+|aggregated)/(instances|operations)", target):
            found = self.engine.answer(verb, target, body)
            assert found is not None
            return found
        try:
            call = understood(verb, target, body)
        except Violation as violation:
            self.violations.append(f"{verb} {target}: {violation}")
            return 400, {"error": {"message": str(violation)}}
        if call.method.partition(".")[0] in self.refusals.disabled:
            details = [{"reason": "SERVICE_DISABLED"}]
            return 403, {"error": {"message": "it has not been used in project 1 before", "details": details}}
        with self._lock:
            self.calls.append(call)
            found_json = getattr(self, "_" + call.method.replace(".", "_").lower())(call)
        return (
            (200, found_json) if found_json is not None else (404, {"error": {"message": f"{call.path} is not there"}})
        )

    def _labelled(self, type_: str, call: GoogleCall, key: str = "labels") -> list[Json]:
        """Lists by a filter on the cluster's label, in the syntax of each interface."""
        if "filter" not in call.query:
            return self.of(type_)
        found = re.search(r'resolute-deployment\s*[=:]\s*"?([-a-z0-9]+)"?$', call.query["filter"])
        assert found is not None, call.query
        return [each for each in self.of(type_) if (_labels(each) or {}).get("resolute-deployment") == found[1]]

    def _compute_regions_get(self, call: GoogleCall) -> Json | None:
        if not call.path.endswith(f"/{REGION}"):
            return None
        quotas = [{"metric": name, "limit": limit, "usage": 0.0} for name, limit in QUOTAS.items()]
        return {"name": REGION, "zones": [f"https://compute/zones/{zone}" for zone in ZONES], "quotas": quotas}

    def _compute_images_getfromfamily(self, call: GoogleCall) -> Json | None:
        return {"name": "image"} if call.path.removeprefix("/compute/v1/") in IMAGES else None

    def _compute_images_get(self, call: GoogleCall) -> Json | None:
        return None

    def _compute_machinetypes_aggregatedlist(self, call: GoogleCall) -> Json:
        name = call.query["filter"].removeprefix('name = "').removesuffix('"')
        types = [{"name": name}] if name in TYPES else []
        return {"items": {f"zones/{zone}": {"machineTypes": types} for zone in ZONES}}

    def _compute_disks_aggregatedlist(self, call: GoogleCall) -> Json:
        return {"items": {}}

    def _compute_addresses_aggregatedlist(self, call: GoogleCall) -> Json:
        items: dict[str, Json] = {}
        for type_ in ("google_compute_address", "google_compute_global_address"):
            for each in self._labelled(type_, call):
                scope = f"regions/{each['region']}" if each.get("region") else "global"
                listed = items.setdefault(scope, {"addresses": []})["addresses"]
                listed.append({"name": each["name"], "labels": each["labels"]})
        return {"items": items}

    def _by_path(self, call: GoogleCall) -> Json | None:
        path = call.path.removeprefix("/compute/v1/").removeprefix("/v1/")
        return next(({"name": id_} for _, id_ in self.made if id_ == path), None)

    _compute_firewalls_get = _compute_subnetworks_get = _compute_networks_get = _by_path
    _compute_addresses_get = _compute_globaladdresses_get = _by_path
    _secretmanager_projects_secrets_get = _iam_projects_serviceaccounts_get = _by_path
    _file_projects_locations_instances_get = _iam_projects_roles_get = _by_path

    def _compute_routers_get(self, call: GoogleCall) -> Json | None:
        router = self._by_path(call)
        name = call.path.rsplit("/", 1)[-1]
        nats = [{"name": each["name"]} for each in self.of("google_compute_router_nat") if each["router"] == name]
        return None if router is None else {**router, **({"nats": nats} if nats else {})}

    def _remove(self, call: GoogleCall) -> Json | None:
        path = call.path.removeprefix("/compute/v1/").removeprefix("/v1/")
        return {} if any(self._forget(type_, id_) for type_, id_ in list(self.made) if id_ == path) else None

    _compute_firewalls_delete = _compute_routers_delete = _compute_subnetworks_delete = _compute_networks_delete = (
        _remove
    )
    _compute_addresses_delete = _compute_globaladdresses_delete = _remove
    _secretmanager_projects_secrets_delete = _iam_projects_serviceaccounts_delete = _remove
    _file_projects_locations_instances_delete = _iam_projects_roles_delete = _remove

    def _sql_instances_list(self, call: GoogleCall) -> Json:
        return {"items": [{"name": each["name"]} for each in self._labelled("google_sql_database_instance", call)]}

    def _sql_instances_get(self, call: GoogleCall) -> Json | None:
        name = call.path.rsplit("/", 1)[-1]
        return {"name": name} if ("google_sql_database_instance", name) in self.made else None

    def _sql_instances_delete(self, call: GoogleCall) -> Json | None:
        there = self._forget("google_sql_database_instance", call.path.rsplit("/", 1)[-1])
        return {"name": "operation"} if there else None

    def _sql_databases_list(self, call: GoogleCall) -> Json:
        instance = call.path.split("/")[-2]
        found = [each for each in self.of("google_sql_database") if each["instance"] == instance]
        return {"items": [{"name": "postgres"}, *({"name": each["name"]} for each in found)]}

    def _sql_users_list(self, call: GoogleCall) -> Json:
        return {"items": [{"name": name} for name in self.users.get(call.path.split("/")[-2], {})]}

    def _sql_users_insert(self, call: GoogleCall) -> Json:
        assert call.body is not None
        self.users.setdefault(call.path.split("/")[-2], {})[call.body["name"]] = call.body["password"]
        return {"name": "operation", "status": "PENDING"}

    _sql_users_update = _sql_users_insert

    def _sql_operations_get(self, call: GoogleCall) -> Json:
        told: Json = {"name": "operation", "status": "DONE"}
        for words in self.refusals.operations.values():
            told["error"] = {"errors": [{"message": words}]}
        return told

    def _file_projects_locations_instances_list(self, call: GoogleCall) -> Json:
        found = self._labelled("google_filestore_instance", call)
        return {"instances": [{"name": each["id"], "labels": each["labels"]} for each in found]}

    def _secretmanager_projects_secrets_list(self, call: GoogleCall) -> Json:
        found = self._labelled("google_secret_manager_secret", call)
        return {
            "secrets": [{"name": each["id"].replace(PROJECT, "123456"), "labels": each["labels"]} for each in found]
        }

    def _secretmanager_projects_secrets_versions_access(self, call: GoogleCall) -> Json | None:
        secret = call.path.removeprefix("/v1/").removesuffix("/versions/latest:access")
        versions = self.versions.get(secret, [])
        return {"payload": {"data": versions[-1]}} if versions else None

    def _secretmanager_projects_secrets_addversion(self, call: GoogleCall) -> Json:
        assert call.body is not None
        secret = call.path.removeprefix("/v1/").removesuffix(":addVersion")
        self.versions.setdefault(secret, []).append(call.body["payload"]["data"])
        return {"name": f"{secret}/versions/{len(self.versions[secret])}"}

    def secret(self, name: str, value: str) -> str:
        """Adds an existing secret."""
        path = f"projects/{PROJECT}/secrets/{name}"
        self.versions[path] = [base64.b64encode(value.encode()).decode()]
        return path

    def _iam_projects_serviceaccounts_list(self, call: GoogleCall) -> Json:
        found = self.of("google_service_account")
        return {
            "accounts": [
                {"name": each["id"], "email": _email(each), "description": each["description"]} for each in found
            ]
        }

    def _cloudresourcemanager_projects_get(self, call: GoogleCall) -> Json | None:
        return {"projectId": PROJECT} if call.path.endswith(f"/{PROJECT}") else None

    def _cloudresourcemanager_projects_getiampolicy(self, call: GoogleCall) -> Json:
        bindings = [
            {
                "role": each["role"],
                "members": [each["member"]],
                **({"condition": _given(each["condition"][0])} if each["condition"] else {}),
            }
            for each in self.of("google_project_iam_member")
        ]
        return {"version": 3, "etag": str(len(self.calls)), "bindings": bindings}

    def _cloudresourcemanager_projects_setiampolicy(self, call: GoogleCall) -> Json:
        """Accepts a policy that removes bindings and adds none."""
        assert call.body is not None
        policy = call.body["policy"]
        assert policy["version"] == 3, "Google drops the conditions of older ones"
        kept = [(each["role"], member) for each in policy["bindings"] for member in each["members"]]
        for each in self.of("google_project_iam_member"):
            if (each["role"], each["member"]) not in kept:
                self._forget("google_project_iam_member", each["id"])
        return self._cloudresourcemanager_projects_getiampolicy(call)

    def _logging_entries_write(self, call: GoogleCall) -> Json:
        return {}


def _given(values: Json) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def _labels(values: Json) -> Json | None:
    labels: Json | None = values.get("labels") or values.get("settings", [{}])[0].get("user_labels")
    return labels


def _handler(project: GoogleProject) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, decoded = project.answer(self.command, self.path, body)
            text = json.dumps(decoded).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = do_PUT = _serve

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


@dataclass(frozen=True, slots=True)
class World:
    """A project, and the variables with which a user's programs connect to it."""

    project: GoogleProject
    environ: Mapping[str, str]


@contextmanager
def google_project(directory: Path, address: str = "127.0.0.1", times: Times | None = None) -> Iterator[World]:
    """Fails at the end if a call violated the documents."""
    with ExitStack() as stack:
        engine = stack.enter_context(compute_engine(times=times))
        store = stack.enter_context(google_store(address=address))
        client = storage.Client(
            project=PROJECT,
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            client_options={"api_endpoint": store.address},
        )
        client.bucket("checkpoints").delete()
        project = GoogleProject(engine, client, address)
        stack.callback(project.close)
        environ = {
            "GOOGLE_ENDPOINT_URL": project.url,
            "STORAGE_EMULATOR_HOST": store.address,
            "GOOGLE_APPLICATION_CREDENTIALS": str(key_file(directory / "key.json", f"{project.url}/token")),
        }
        yield World(project, environ)
    assert project.violations == []
