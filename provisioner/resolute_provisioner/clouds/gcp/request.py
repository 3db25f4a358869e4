"""The request to Compute Engine for one machine: pure, and without Google's client.

The request is the JSON form of the API's `Instance`. A name, a label or a key of `base_config` that the API would not
take is refused here, with the key to change, before anything is requested.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from resolute.errors import InvalidInput
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import BadRequest, LaunchRequest
from resolute_provisioner.model import Market, Offer

Json = dict[str, Any]

CLUSTER_LABEL = "resolute-cluster"
"""Label by which `list` finds the machines. Clusters may share the label of the configuration, but not this one."""
TOKEN_LABEL = "resolute-token"
INSTANCE_LABEL = "resolute-instance"
POOL_LABEL = "determined-resource-pool"
MASTER_HOST_LABEL = "determined-master-host"
MASTER_PORT_LABEL = "determined-master-port"
OWN_LABELS = (CLUSTER_LABEL, TOKEN_LABEL, INSTANCE_LABEL, POOL_LABEL, MASTER_HOST_LABEL, MASTER_PORT_LABEL)

LONGEST_NAME = 63
"""Maximum length of a label's value and of a machine's name."""
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
NAME_PREFIX = re.compile(r"([a-z][-a-z0-9]*)?")

ATTACHABLE = ("n1-", "custom-")
"""Families of machines to which GPUs are attached; all others have theirs built in, or none."""
CPU_PLATFORMS = (
    (("a2-", "g2-", "n2-"), "Intel Cascade Lake"),
    (("n1-", "custom-", "c2-", "m2-"), "Intel Broadwell"),
)
"""The least CPU platform by family; the newer families have one platform each and refuse to be asked."""

_TOKENS = uuid.UUID("5a4a2f6e-2f6a-4c0e-9a51-6f5d3b0c7e19")
"""Namespace of the request ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpSettings:
    """Settings of every machine of a pool. Raises `InvalidInput` for values that Compute Engine would refuse."""

    project: str
    startup_script: Callable[[MachineBoot], str]
    """The script that the machine runs as root at each start, built from the master's settings."""
    source_image: str
    zone: str = ""
    """Zone of offers without one."""
    base_config: Mapping[str, Any] = field(default_factory=dict)
    """Further properties of the API's `Instance`. The fields below win; lists are joined, ours first."""
    boot_disk_gb: int = 200
    boot_disk_type: str = "pd-standard"
    """A name or a path, of which the last element counts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    name_prefix: str = ""
    network: str = ""
    subnetwork: str = ""
    external_ip: bool = False
    network_tags: tuple[str, ...] = ()
    service_account: str = ""
    scopes: tuple[str, ...] = ()
    operation_timeout_s: float = 300.0
    """Time for which the operation of a launch is followed before the machine itself is queried."""
    operation_poll_s: float = 1.0

    def __post_init__(self) -> None:
        if not self.project:
            raise InvalidInput(
                "provider.project: no project is set, and the master does not run on Google Cloud, whose project would apply"
            )
        for key, value in self.labels.items():
            if key in OWN_LABELS:
                raise InvalidInput(f"provider.labels.{key}: this label is the master's own; choose another key")
            if LABEL_KEY.fullmatch(key) is None:
                raise InvalidInput(
                    f"provider.labels: {key!r} is no key of a label; use at most 63 of a-z, 0-9, '_' and '-', a letter first"
                )
            if LABEL_VALUE.fullmatch(value) is None:
                raise InvalidInput(
                    f"provider.labels.{key}: {value!r} is no value of a label; use at most 63 of a-z, 0-9, '_' and '-'"
                )
        if NAME_PREFIX.fullmatch(self.name_prefix) is None:
            raise InvalidInput(
                f"provider.name_prefix: {self.name_prefix!r} cannot begin a machine's name; use a-z, 0-9 and '-', a letter first"
            )


def request_id(token: str, attempt: int = 0) -> str:
    """The UUID under which Compute Engine remembers an attempt at a launch."""
    return str(uuid.uuid5(_TOKENS, f"{token}/{attempt}"))


def label_value(text: str) -> str:
    """The text itself where it may be a label's value, else as much of it as may be and a digest of the whole."""
    if LABEL_VALUE.fullmatch(text):
        return text
    return _cut(re.sub(r"[^a-z0-9_-]", "-", text.lower()), text)


def machine_name(request: LaunchRequest, settings: GcpSettings) -> str:
    """Name of a machine, unique in the project: two clusters may use one instance id."""
    wanted = f"{settings.name_prefix}{request.instance_id}"
    clean = re.sub(r"[^a-z0-9-]", "-", wanted.lower())
    if not clean[:1].isalpha():
        clean = f"m-{clean}"
    return _cut(clean, f"{wanted}\n{request.cluster}")


def _cut(clean: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{clean[: LONGEST_NAME - 9].rstrip('-_')}-{digest}"


def zone_of(offer: Offer, settings: GcpSettings) -> str:
    zone = offer.zone or settings.zone
    if not zone:
        raise BadRequest(f"offer {offer.offer_id}: no zone is named; set provider.zone")
    return zone


def render_launch_request(request: LaunchRequest, settings: GcpSettings) -> Json:
    """The body of `instances.insert`. Raises `BadRequest` for an offer or token that cannot be requested."""
    if not request.token or LABEL_VALUE.fullmatch(request.token) is None:
        raise BadRequest(f"instance {request.instance_id}: its token is no value of a label")
    offer = request.offer
    zone = zone_of(offer, settings)
    body: Json = {
        "name": machine_name(request, settings),
        "machineType": f"zones/{zone}/machineTypes/{offer.instance_type}",
        "scheduling": _scheduling(offer),
        "labels": _labels(request, settings),
        "disks": [_boot_disk(request, settings, zone)],
        "metadata": {
            "items": [
                {"key": "startup-script", "value": settings.startup_script(request.boot)},
                {"key": "determined-master-address", "value": request.boot.master_url},
            ]
        },
        **_network(settings),
        **_accelerators(offer, settings, zone),
    }
    if settings.network_tags:
        body["tags"] = {"items": list(settings.network_tags)}
    if settings.service_account:
        body["serviceAccounts"] = [{"email": settings.service_account, "scopes": list(settings.scopes)}]
    for families, platform in CPU_PLATFORMS:
        if offer.instance_type.startswith(families):
            body["minCpuPlatform"] = platform
    if offer.reservation:
        body["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [offer.reservation],
        }
    return _over(body, {"networkInterfaces": _default_network(settings), **settings.base_config})


def _over(ours: Json, base: Mapping[str, Any]) -> Json:
    """The merged settings: objects are merged, lists are joined with `ours` first (of two items with one key `ours` wins), and
    other values are those of `ours`."""
    merged: Json = {**base, **ours}
    for key in ours.keys() & base.keys():
        mine, theirs = ours[key], base[key]
        if isinstance(mine, dict) and isinstance(theirs, Mapping):
            merged[key] = _over(mine, theirs)
        elif isinstance(mine, list) and isinstance(theirs, list):
            taken = {item["key"] for item in mine if isinstance(item, dict) and "key" in item}
            further = (item for item in theirs if not (isinstance(item, dict) and item.get("key") in taken))
            merged[key] = [*mine, *further]
    return merged


def _scheduling(offer: Offer) -> Json:
    """Scheduling options. A machine with GPUs cannot be moved to another host, and a stopped one is replaced, never restarted."""
    scheduling: Json = {"onHostMaintenance": "TERMINATE", "automaticRestart": False, "provisioningModel": "STANDARD"}
    if offer.market is Market.SPOT:
        scheduling |= {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    return scheduling


def _labels(request: LaunchRequest, settings: GcpSettings) -> dict[str, str]:
    master = urlsplit(request.boot.master_url)
    tags = {key: label_value(value) for key, value in request.tags.items()}
    return {
        **settings.labels,
        **tags,
        POOL_LABEL: label_value(request.pool),
        MASTER_HOST_LABEL: label_value((master.hostname or "").replace(".", "-")),
        MASTER_PORT_LABEL: str(master.port or {"https": 443}.get(master.scheme, 80)),
        CLUSTER_LABEL: label_value(request.cluster),
        TOKEN_LABEL: request.token,
        INSTANCE_LABEL: label_value(request.instance_id),
    }


def _boot_disk(request: LaunchRequest, settings: GcpSettings, zone: str) -> Json:
    kind = settings.boot_disk_type.rsplit("/", 1)[-1]
    return {
        "boot": True,
        "autoDelete": True,
        "initializeParams": {
            "sourceImage": settings.source_image,
            "diskType": f"zones/{zone}/diskTypes/{kind}",
            "diskSizeGb": str(settings.boot_disk_gb),
            # They identify a disk that outlives its machine.
            "labels": _labels(request, settings),
        },
    }


def _accelerators(offer: Offer, settings: GcpSettings, zone: str) -> Json:
    if not offer.accelerators or not offer.accelerator or not offer.instance_type.startswith(ATTACHABLE):
        return {}
    kind = f"projects/{settings.project}/zones/{zone}/acceleratorTypes/{offer.accelerator}"
    return {"guestAccelerators": [{"acceleratorType": kind, "acceleratorCount": offer.accelerators}]}


def _network(settings: GcpSettings) -> Json:
    """The network, if it is named completely; otherwise it is left to `base_config`, or to the project's default network."""
    if not (settings.network and settings.subnetwork):
        return {}
    named = {"network": settings.network, "subnetwork": settings.subnetwork}
    return {"networkInterfaces": [{**named, **_external(settings)}]}


def _default_network(settings: GcpSettings) -> list[Json]:
    if settings.network and settings.subnetwork:
        return []
    return [{"network": "global/networks/default", **_external(settings)}]


def _external(settings: GcpSettings) -> Json:
    return {"accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]} if settings.external_ip else {}
