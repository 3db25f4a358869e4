"""Google Cloud's metadata for a machine, for a master that runs there: project, zone, own name, own addresses."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException

ENDPOINT = "http://169.254.169.254"
FLAVOR = "Metadata-Flavor"
INTERFACE = "instance/network-interfaces/0"
ADDRESSES: Mapping[str, str] = {
    "internal-ip": f"{INTERFACE}/ip",
    "external-ip": f"{INTERFACE}/access-configs/0/external-ip",
}
"""Words for the ways to reach a machine, and where its metadata has them."""

TIMEOUT_S = 2.0
"""Timeout: outside of Google Cloud this address does not answer; on Google Cloud the answer takes milliseconds."""


class GceMetadata:
    """Queries the service at each call; blocking. Without such a service all values are None."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy

    def project(self) -> str | None:
        return self._get("project/project-id")

    def zone(self) -> str | None:
        path = self._get("instance/zone")
        return path.rsplit("/", 1)[-1] if path else None

    def name(self) -> str | None:
        """Name of the machine."""
        return self._get("instance/name")

    def address(self, kind: str = "internal-ip") -> str | None:
        """One of `ADDRESSES`; None also for a machine without such an address."""
        return self._get(ADDRESSES[kind])

    def _get(self, name: str) -> str | None:
        request = urllib.request.Request(f"{self._endpoint}/computeMetadata/v1/{name}", headers={FLAVOR: "Google"})
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                if answer.headers.get(FLAVOR) != "Google":
                    return None  # another cloud answers at this address, too
                return str(answer.read().decode()).strip() or None
        except (urllib.error.URLError, HTTPException, OSError, UnicodeDecodeError):
            return None
