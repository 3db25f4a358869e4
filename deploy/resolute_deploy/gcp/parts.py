"""Parts of recorded resources that a killed Terraform created and did not record: see `resolute_deploy.cloud.remove_planned`.

Google Cloud refuses to create a gateway of a router or a database of an instance a second time. The state imports them, because a
database may contain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resolute_deploy.cloud import Existing, Planned
from resolute_deploy.gcp.api import GoogleApi


def parts(api: GoogleApi, planned: Sequence[Planned]) -> Iterator[Existing]:
    """The planned parts that exist already. A part of an instance that does not exist yet cannot."""
    for each in planned:
        values = each.values
        if each.type == "google_compute_router_nat" and "router" in values and _has_gateway(api, values):
            yield Existing(
                what=f"gateway {values['name']} of router {values['router']}",
                address=each.address,
                id=f"{values['project']}/{values['region']}/{values['router']}/{values['name']}",
            )
        elif each.type == "google_sql_database" and "instance" in values and _has_database(api, values):
            yield Existing(
                what=f"database {values['name']} of {values['instance']}",
                address=each.address,
                id=f"projects/{values['project']}/instances/{values['instance']}/databases/{values['name']}",
            )


def _has_gateway(api: GoogleApi, wanted: Mapping[str, Any]) -> bool:
    router = f"projects/{wanted['project']}/regions/{wanted['region']}/routers/{wanted['router']}"
    told = api.found("compute", f"compute/v1/{router}") or {}
    return wanted["name"] in {each["name"] for each in told.get("nats", ())}


def _has_database(api: GoogleApi, wanted: Mapping[str, Any]) -> bool:
    told = api.found("sqladmin", f"v1/projects/{wanted['project']}/instances/{wanted['instance']}/databases") or {}
    return wanted["name"] in {each["name"] for each in told.get("items", ())}
