"""The web interface over real sockets: the API of `support.api` with the pages, and a browser with cookies."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, CookieJar, FormData, web

from resolute_master.api.app import build_api
from resolute_master.api.context import ApiContext
from resolute_master.api.http.application import add_routes
from resolute_web.interface import Interface
from support.api import PASSWORD, World, an_api

HTML = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}


def with_pages(context: ApiContext) -> web.Application:
    """The complete application of a master."""
    app = build_api(context)
    pages = Interface(context)

    async def close(_: web.Application) -> None:
        pages.close()

    app.on_shutdown.append(close)
    add_routes(app, pages.routes)
    return app


class Browser:
    """A user's session without scripts: it follows links and submits forms of the page."""

    def __init__(self, world: World, http: ClientSession) -> None:
        self.world = world
        self.http = http

    async def open(self, path: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Html:
        url = self.world.server.make_url(path)
        async with self.http.get(url, headers={**HTML, **(headers or {})}) as response:
            text = await response.text()
            assert response.status == status, f"GET {path}: {response.status} {text[:2000]}"
            return Html(text, response.url.path_qs, dict(response.headers))

    async def send(
        self,
        path: str,
        fields: Mapping[str, Any] | FormData,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Html:
        url = self.world.server.make_url(path)
        async with self.http.post(url, data=fields, headers={**HTML, **(headers or {})}) as response:
            text = await response.text()
            assert response.status == status, f"POST {path}: {response.status} {text[:2000]}"
            return Html(text, response.url.path_qs, dict(response.headers))

    async def log_in(self, name: str, password: str = PASSWORD) -> Html:
        return await self.send("/det/login", {"username": name, "password": password})

    async def submit(self, page: Html, action: str, *, status: int = 200, **fields: Any) -> Html:
        """The form of the page that goes to `action`, with its hidden fields."""
        return await self.send(action, {**page.form(action), **fields}, status=status)


class Html:
    """A received page: its final address, its text, and its forms."""

    def __init__(self, text: str, path: str, headers: Mapping[str, str]) -> None:
        self.text = text
        self.path = path
        self.headers = headers
        self._reader = _Reader()
        self._reader.feed(text)

    @property
    def words(self) -> str:
        """The visible text."""
        return re.sub(r"\s+", " ", " ".join(self._reader.words)).strip()

    @property
    def links(self) -> list[str]:
        return self._reader.links

    @property
    def elements(self) -> list[tuple[str, dict[str, str | None]]]:
        """Tags with their attributes."""
        return self._reader.elements

    def form(self, action: str) -> dict[str, str]:
        found = [fields for path, fields in self._reader.forms if path == action]
        assert found, (
            f"{self.path} has no form that goes to {action}; it has {[path for path, _ in self._reader.forms]}"
        )
        return found[0]

    def has_form(self, action: str) -> bool:
        return any(path == action for path, _ in self._reader.forms)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.elements.append((tag, known))
        if tag == "a" and known.get("href"):
            self.links.append(known["href"] or "")
        if tag == "form":
            self.forms.append((known.get("action") or "", {}))
        if tag == "input" and self.forms and known.get("type") == "hidden":
            self.forms[-1][1][known.get("name") or ""] = known.get("value") or ""

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@asynccontextmanager
async def a_web(storage: Path, **options: Any) -> AsyncIterator[Browser]:
    """The users of `an_api`, without a login."""
    async with an_api(storage, application=with_pages, **options) as world, a_browser(world) as browser:
        yield browser


@asynccontextmanager
async def a_browser(world: World) -> AsyncIterator[Browser]:
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        yield Browser(world, http)
