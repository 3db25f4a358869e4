"""Style sheets, scripts, fonts and icons, from the package itself: a cluster may have no way to the internet.

Each is served under a name that holds a part of its hash, and may be kept for ever: other content has another name.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
PREFIX = "/det/assets/"

SOURCES: Mapping[str, str] = {
    "app.css": "assets/app.css",
    "parts.css": "assets/parts.css",
    "pages.css": "assets/pages.css",
    "app.js": "assets/app.js",
    "axes.js": "assets/axes.js",
    "charts.js": "assets/charts.js",
    "editor.js": "assets/editor.js",
    "logs.js": "assets/logs.js",
    "rest-api.js": "assets/rest-api.js",
    "openapi.json": "assets/openapi.json",
    "favicon.svg": "assets/favicon.svg",
    "htmx.js": "vendor/htmx/htmx.min.js",
    "hx-sse.js": "vendor/htmx/hx-sse.min.js",
    "swagger-ui.js": "vendor/swagger-ui/swagger-ui-bundle.js",
    "swagger-ui.css": "vendor/swagger-ui/swagger-ui.css",
    "uplot.js": "vendor/uplot/uplot.min.js",
    "uplot.css": "vendor/uplot/uplot.min.css",
    "inter.woff2": "vendor/inter/inter.woff2",
    "jetbrains-mono.woff2": "vendor/jetbrains-mono/jetbrains-mono.woff2",
}

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}

_NAMED = re.compile(r"url\(([\w.-]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file as it is served; `packed` is its gzip, None where that is no smaller."""

    content: bytes
    packed: bytes | None
    type: str


@cache
def _content(name: str) -> bytes:
    """Style sheets name fonts by their plain names, and the served ones by the hashed."""
    raw = (HERE / SOURCES[name]).read_bytes()
    if not name.endswith(".css"):
        return raw
    return _NAMED.sub(lambda found: f"url({url(found[1])})", raw.decode()).encode()


@cache
def url(name: str) -> str:
    """Where a browser finds it. Raises `KeyError` for a name that is none."""
    stem, _, ending = name.rpartition(".")
    return f"{PREFIX}{stem}.{hashlib.sha256(_content(name)).hexdigest()[:12]}.{ending}"


@cache
def served() -> Mapping[str, Asset]:
    """By the name in the address."""
    return {url(name).removeprefix(PREFIX): _asset(name) for name in SOURCES}


def _asset(name: str) -> Asset:
    content = _content(name)
    ending = Path(name).suffix
    packed = None if ending == ".woff2" else gzip.compress(content, mtime=0)
    return Asset(content=content, packed=packed, type=TYPES[ending])


@cache
def icon_paths(name: str) -> str:
    """The contents of an icon's SVG file. Raises `FileNotFoundError` for an unknown icon."""
    text = (HERE / "vendor" / "lucide" / f"{name}.svg").read_text(encoding="utf-8")
    inside = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    return " ".join(inside.split())
