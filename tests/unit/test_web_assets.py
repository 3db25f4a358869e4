"""What the web interface brings along is what its makers published, and everything that a page names is there."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from resolute_web import assets

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "master" / "resolute_web" / "vendor", ROOT / "tests" / "web" / "vendor")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_every_file_of_others_is_in_the_manifest_with_its_hash_and_its_licence(folder: Path) -> None:
    rows = json.loads((folder / "manifest.json").read_text())["files"]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"manifest.json"}
    assert there == {row["file"] for row in rows}
    for row in rows:
        assert hashlib.sha256((folder / row["file"]).read_bytes()).hexdigest() == row["sha256"], row
        assert row["licence"] in ("0BSD", "Apache-2.0", "MIT", "ISC", "OFL-1.1", "MPL-2.0"), row
    packages = {row["file"].split("/")[0] for row in rows}
    assert all((folder / package / "LICENSE").is_file() for package in packages)


def test_an_asset_has_another_address_when_it_has_another_content() -> None:
    assert re.fullmatch(r"/det/assets/app\.[0-9a-f]{12}\.css", assets.url("app.css"))
    served = assets.served()
    assert set(served) == {assets.url(name).removeprefix(assets.PREFIX) for name in assets.SOURCES}
    style = served[assets.url("app.css").removeprefix(assets.PREFIX)].content.decode()
    assert assets.url("inter.woff2") in style and "url(inter.woff2)" not in style


def test_templates_hold_nothing_that_the_content_security_policy_forbids() -> None:
    """No script, style or handler in the page itself, nothing from elsewhere, and nothing that is not escaped."""
    for path in sorted((ROOT / "master" / "resolute_web" / "templates").glob("*.html")):
        text = path.read_text()
        assert not re.search(r"\sstyle\s*=|<style|\son[a-z]+\s*=|javascript:|https?://(?!www\.w3\.org)", text), (
            path.name
        )
        assert not re.search(r"<script(?![^>]*src=)", text), path.name
        assert not re.search(r"\|\s*safe\b|autoescape", text), path.name


def test_the_first_page_is_light() -> None:
    """What every page loads, as it is sent."""
    first = ("app.css", "parts.css", "pages.css", "app.js", "htmx.js", "hx-sse.js", "favicon.svg", "inter.woff2")
    served = assets.served()
    sizes = [len(found.packed or found.content) for name in first if (found := served[assets.url(name).split("/")[-1]])]
    assert sum(sizes) < 120_000


def test_every_icon_that_is_brought_along_is_used_and_every_one_used_is_there() -> None:
    package = ROOT / "master" / "resolute_web"
    texts = [path.read_text() for path in (*package.rglob("*.py"), *package.rglob("*.html"))]
    brought = {path.stem for path in (package / "vendor" / "lucide").glob("*.svg")}
    quoted = {name for text in texts for name in re.findall(r"[\"']([a-z0-9-]+)[\"']", text)}
    assert brought <= quoted
    asked = {name for text in texts for name in re.findall(r"icon\([\"']([a-z0-9-]+)[\"']", text)}
    looks = {name for text in texts for name in re.findall(r"Look\(\"[^\"]*\", \"([a-z0-9-]+)\"", text)}
    assert asked and looks and asked | looks <= brought
