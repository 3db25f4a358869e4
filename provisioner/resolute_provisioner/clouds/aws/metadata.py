"""EC2's metadata for a machine (IMDSv2), for a master that runs there: region, own id, own addresses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException

ENDPOINT = "http://169.254.169.254"
ADDRESSES = ("local-ipv4", "public-ipv4", "local-hostname", "public-hostname")
"""The metadata service's names for the ways to reach a machine."""

TIMEOUT_S = 2.0
"""Timeout: outside of EC2 this address does not answer; on EC2 the answer takes milliseconds."""
TOKEN_TTL_S = 60


class Ec2Metadata:
    """Queries the service at each call; blocking. Without such a service all values are None."""

    def __init__(self, endpoint: str = ENDPOINT) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy

    def region(self) -> str | None:
        """The region of the machine; None outside of EC2."""
        text = self._get("/latest/dynamic/instance-identity/document")
        try:
            region = json.loads(text).get("region") if text else None
        except (ValueError, AttributeError):
            return None
        return str(region) if region else None

    def instance_id(self) -> str | None:
        """EC2's id of the machine."""
        return self._get("/latest/meta-data/instance-id")

    def address(self, kind: str = "local-ipv4") -> str | None:
        """One of `ADDRESSES`; None also for a machine without such an address."""
        return self._get(f"/latest/meta-data/{kind}")

    def _get(self, path: str) -> str | None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        token = self._ask("PUT", "/latest/api/token", ttl)
        return None if token is None else self._ask("GET", path, {"X-aws-ec2-metadata-token": token})

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> str | None:
        request = urllib.request.Request(f"{self._endpoint}{path}", headers=dict(headers), method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                return str(answer.read().decode()).strip() or None
        except (urllib.error.URLError, HTTPException, OSError, UnicodeDecodeError):
            return None
