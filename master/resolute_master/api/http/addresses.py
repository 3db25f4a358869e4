"""The address of a request's client: the peer's, or the one that a trusted proxy reports.

`X-Forwarded-For` is read only if the peer is a proxy that the configuration names (`security.trusted_proxies`). Any other client
could set it to any value.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from aiohttp import web

FORWARDED_FOR = "X-Forwarded-For"
FORWARDED_PROTO = "X-Forwarded-Proto"

IPV6_PREFIX = 64
"""Prefix length of the smallest IPv6 network that a customer is given. All its addresses count as one."""

UNKNOWN = ""

_MAX_HOPS = 32


class Addresses:
    """Determines addresses, given the trusted proxies."""

    def __init__(self, trusted_proxies: Sequence[str] = ()) -> None:
        """`trusted_proxies` are addresses and networks that the configuration has checked."""
        self._proxies = tuple(ipaddress.ip_network(each, strict=False) for each in trusted_proxies)

    def of(self, request: web.BaseRequest) -> str:
        """The caller's address for limits: the last hop that is not a trusted proxy."""
        peer = request.remote or UNKNOWN
        if not self._proxies or not self._trusted(peer):
            return counted(peer)
        hops = ",".join(request.headers.getall(FORWARDED_FOR, ())).split(",")[-_MAX_HOPS:]
        for hop in reversed([hop.strip() for hop in hops]):
            if _parsed(hop) is None:
                break  # entries further left were written by an unknown peer
            peer = hop
            if not self._trusted(hop):
                break
        return counted(peer)

    def secure(self, request: web.BaseRequest) -> bool:
        """Whether the caller came over TLS: to this master, or to the trusted proxy before it."""
        if request.secure:
            return True
        if not self._proxies or not self._trusted(request.remote or UNKNOWN):
            return False
        return request.headers.get(FORWARDED_PROTO, "").strip().lower() == "https"

    def is_proxy(self, peer: str) -> bool:
        """Whether many callers may share this peer."""
        return bool(self._proxies) and self._trusted(peer)

    def _trusted(self, address: str) -> bool:
        found = _parsed(address)
        return found is not None and any(found in network for network in self._proxies)


def counted(address: str) -> str:
    """The address for limits: an IPv6 address counts as its network."""
    if ":" not in address:
        return address
    found = _parsed(address)
    if not isinstance(found, ipaddress.IPv6Address):
        return str(found) if found is not None else address
    return str(ipaddress.ip_network((found, IPV6_PREFIX), strict=False))


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
