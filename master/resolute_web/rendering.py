"""Templates, and what they may call. Everything that a template writes is escaped, but for what this module makes itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from resolute_web import assets, words
from resolute_web.states import look_of

if TYPE_CHECKING:
    from jinja2 import Environment


def icon(name: str, style: str = "") -> Markup:
    """A picture beside a word: hidden from those who read by ear."""
    shape = Markup(assets.icon_paths(name))  # from our own package
    return Markup('<svg class="icon {}" viewBox="0 0 24 24" aria-hidden="true" focusable="false">{}</svg>').format(
        style, shape
    )


def state(value: object) -> Markup:
    """Icon and word: never the colour alone."""
    look = look_of(str(value))
    return Markup('<span class="state state-{}">{}<span>{}</span></span>').format(
        look.colour, icon(look.icon, "spin" if look.moves else ""), look.word
    )


def moment(value: Any, now: Any) -> Markup:
    """Relative, with the moment itself for those who ask; scripts keep it true."""
    if value is None:
        return Markup(words.UNKNOWN)
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        value.isoformat(), words.utc(value), words.ago(value, now)
    )


def json_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@cache
def environment() -> Environment:
    """Imported with the first page, in its thread: a master that starts has more urgent things to import."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from resolute_web import markdown

    made = Environment(
        loader=FileSystemLoader(assets.HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    made.filters |= {
        "duration": words.duration,
        "utc": words.utc,
        "clock_time": words.clock_time,
        "number": words.number,
        "count": words.count,
        "size": words.size,
        "money": words.money,
        "json_text": json_text,
        "markdown": markdown.shown,
    }
    made.globals |= {
        "icon": icon,
        "state": state,
        "moment": moment,
        "asset": assets.url,
        "percent": words.percent,
        "share": words.share,
        "plural": words.plural,
        "escape": escape,
    }
    return made


async def render(template: str, values: Mapping[str, Any]) -> str:
    """In a thread: a list of a hundred takes milliseconds, to read a template the first time some more, and the event loop serves
    everybody."""
    return await asyncio.to_thread(lambda: environment().get_template(template).render(values))
