"""HTTP headers of every answer that restrict what a browser may do with it. A value that a handler sets is kept."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from resolute_master.api.http.addresses import Addresses

HEADERS: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of data, which are never a page: no browser may run, frame or keep them. `X-Frame-Options` is for browsers without
support for the policy."""

STRICT_TRANSPORT = "Strict-Transport-Security"


class ResponseHeaders:
    """Headers that one master adds to every response."""

    def __init__(self, addresses: Addresses | None = None, *, hsts_max_age_s: float = 0.0) -> None:
        """`hsts_max_age_s`: how long a browser that connected over TLS refuses plain HTTP to this host; 0 sends no header."""
        self._addresses = addresses or Addresses()
        self._strict = f"max-age={int(hsts_max_age_s)}" if hsts_max_age_s >= 1 else ""

    def add(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        """Adds the headers. Call it before the answer begins."""
        headers = response.headers
        for name, value in HEADERS.items():
            if name not in headers:
                headers[name] = value
        if self._strict and self._addresses.secure(request):
            headers[STRICT_TRANSPORT] = self._strict
