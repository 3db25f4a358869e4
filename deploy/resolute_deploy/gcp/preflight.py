"""Checks before anything is created, and the cost of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from resolute_deploy.cloud import Finding, HourlyCost
from resolute_deploy.cloud import hourly_cost as cost_of
from resolute_deploy.gcp.api import GoogleApi, GoogleError
from resolute_deploy.gcp.resources import Place, region_of_quota
from resolute_provisioner.catalogue import Catalogue, Shape, shipped
from resolute_provisioner.clouds.gcp.catalogue import machine_family, shape_of, takes_accelerators

METRICS = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
}
"""Quotas of a region by GPU. Compute Engine does not list the quotas of newer GPUs."""
OWN_CPU_METRIC = frozenset({"a2", "c2", "c2d", "c3", "e2", "m1", "m2", "n2", "n2d", "t2d"})
"""Families with a quota of their own; e2 shares that of n1."""


def preflight(api: GoogleApi, place: Place, values: Mapping[str, Any], taken: Sequence[str]) -> list[Finding]:
    """All findings together. `taken` lists existing resources under the name of a new cluster."""
    disabled = list(_disabled(api, place, values))
    if disabled:
        return disabled
    region = _asked(api, f"compute/v1/projects/{place.project}/regions/{place.region}")
    if region is None:
        return [Finding(text=f"--region {place.region}: Google Cloud has no such region for this project")]
    found: list[Finding] = []
    zone = values["zone"] or f"{place.region}-b"
    zones = {last.rsplit("/", 1)[-1] for last in region.get("zones", ())}
    for flag, name in (("--zone", zone), *(("--zones", each) for each in values["zones"])):
        if name not in zones:
            found.append(Finding(text=f"{flag} {name}: {place.region} has the zones {', '.join(sorted(zones))}"))
    for name in ("master_image", "compute_image", "aux_image"):
        if _image(api, values[name]) is None:
            flag = "--" + name.replace("_", "-")
            found.append(Finding(text=f"{flag} {values[name]}: there is no such image that this account may use"))
    if taken:
        found.append(
            Finding(
                text=f"--cluster-id {values['cluster_id']}: a cluster of that name exists already "
                f"({', '.join(taken[:3])}{', ...' if len(taken) > 3 else ''}), and its state is not here; "
                "give the --state-path or --state-bucket that it was created with, or choose another name"
            )
        )
    return [*found, *_types(api, place, values, zone), *_quotas(region, place, values)]


def _disabled(api: GoogleApi, place: Place, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Interfaces that the project has not enabled. The other checks need them."""
    project = f"projects/{place.project}"
    calls = {
        "compute": f"compute/v1/{project}/regions/{place.region}",
        "iam": f"v1/{project}/serviceAccounts",
        "secretmanager": f"v1/{project}/secrets",
        **({"sqladmin": f"v1/{project}/instances"} if values["existing_database"] is None else {}),
        **({"file": f"v1/{project}/locations/-/instances"} if values["filestore"] else {}),
    }
    for service, path in calls.items():
        try:
            api.get(service, path)
        except GoogleError as error:
            if error.disabled:
                command = f"gcloud services enable {service}.googleapis.com --project {place.project}"
                yield Finding(text=f"--project-id {place.project}: {service} is not enabled; `{command}` enables it")


def _asked(api: GoogleApi, path: str) -> dict[str, Any] | None:
    """None if it does not exist or this account cannot read it."""
    try:
        return api.get("compute", path)
    except GoogleError as error:
        if error.status in (400, 403, 404):
            return None
        raise


def _image(api: GoogleApi, name: str) -> dict[str, Any] | None:
    """Whether the image exists. Of a family, the newest image counts."""
    return _asked(api, f"compute/v1/{name}")


def _types(api: GoogleApi, place: Place, values: Mapping[str, Any], zone: str) -> Iterator[Finding]:
    """The master's type must exist in its zone; the types of agents may exist in any zone of the region."""
    for flag, types in (
        ("--master-instance-type", [values["master_instance_type"]]),
        ("--compute-agent-instance-type", values["compute_agent_instance_type"]),
        ("--aux-agent-instance-type", values["aux_agent_instance_type"]),
    ):
        for each in types:
            wanted = f'name = "{each}"'
            path = f"compute/v1/projects/{place.project}/aggregated/machineTypes"
            where = {
                scope.rsplit("/", 1)[-1]
                for page in api.pages("compute", path, filter=wanted)
                for scope, listed in page.get("items", {}).items()
                if listed.get("machineTypes")
            }
            if not any(name.startswith(f"{place.region}-") for name in where):
                yield Finding(text=f"{flag} {each}: {place.region} has no such machine type")
            elif flag == "--master-instance-type" and zone not in where:
                yield Finding(text=f"{flag} {each}: {zone} has no such machine type; give another --zone")


def _quotas(region: Mapping[str, Any], place: Place, values: Mapping[str, Any]) -> Iterator[Finding]:
    catalogue, most = shipped("gcp"), int(values["max_dynamic_agents"])
    asked: dict[str, list[tuple[int, str]]] = {}
    for types, spot in (
        (values["compute_agent_instance_type"], bool(values["preemptible"])),
        (values["aux_agent_instance_type"], False),
    ):
        of_pool: dict[str, tuple[int, str]] = {}
        for each in types:
            for metric, needed in _needs(catalogue, each, values, most, spot=spot):
                of_pool[metric] = max(of_pool.get(metric, (0, "")), (needed, each))
        for metric, found in of_pool.items():
            asked.setdefault(metric, []).append(found)
    for metric, pools in asked.items():
        told, needed = region_of_quota(region, metric), sum(count for count, _ in pools)
        words = f"{' and '.join(f'{most} {each}' for _, each in pools)} need {needed} of the quota {metric}"
        if told is None:
            yield Finding(text=f"{words}, and {place.region} does not list that quota", fatal=False)
        elif told[0] - told[1] < needed:
            yield Finding(
                text=f"{words}, and {place.region} has {told[0] - told[1]:g} left of {told[0]:g}; "
                "ask for more under IAM & Admin, Quotas, or lower --max-dynamic-agents"
            )


def _needs(
    catalogue: Catalogue, machine_type: str, values: Mapping[str, Any], most: int, *, spot: bool
) -> Iterator[tuple[str, int]]:
    """Quotas, and the amounts that `most` machines use."""
    prefix = "PREEMPTIBLE_" if spot else ""
    shape = shape_of(catalogue, machine_type)
    gpu, count = _gpus(shape, machine_type, values)
    if count:
        yield f"{prefix}{METRICS.get(gpu, gpu.upper().replace('-', '_') + '_GPUS')}", count * most
    elif shape is not None and shape.vcpus is not None:
        family = machine_family(machine_type).upper()
        own = family.lower() in OWN_CPU_METRIC and family != "E2"
        metric = "PREEMPTIBLE_CPUS" if spot else f"{family}_CPUS" if own else "CPUS"
        yield metric, shape.vcpus * most


def _gpus(shape: Shape | None, machine_type: str, values: Mapping[str, Any]) -> tuple[str, int]:
    if shape is not None and shape.accelerators:
        return shape.accelerator, shape.accelerators
    if takes_accelerators(machine_type) and values["gpu_num"] and machine_type in values["compute_agent_instance_type"]:
        return values["gpu_type"], int(values["gpu_num"])
    return "", 0


def hourly_cost(values: Mapping[str, Any], region: str) -> HourlyCost:
    """See `resolute_deploy.cloud.hourly_cost`."""
    catalogue = shipped("gcp")
    compute = [_price(catalogue, each, region, values) for each in values["compute_agent_instance_type"]]
    aux = [_price(catalogue, each, region, {**values, "gpu_num": 0}) for each in values["aux_agent_instance_type"]]
    master = catalogue.prices.get((values["master_instance_type"], region))
    return cost_of(master, [compute, aux], values["min_dynamic_agents"], values["max_dynamic_agents"])


def _price(catalogue: Catalogue, machine_type: str, region: str, values: Mapping[str, Any]) -> float | None:
    """The price of a machine with its GPUs, built-in or attached."""
    shape = shape_of(catalogue, machine_type)
    if shape is None:
        return catalogue.prices.get((machine_type, region))
    gpu, count = _gpus(shape, machine_type, values)
    return catalogue.price(replace(shape, accelerator=gpu, accelerators=count), region)
