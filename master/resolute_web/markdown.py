"""Notes as a part of a page: CommonMark with tables, and nothing in it that a browser acts on.

HTML in the text is shown as text. A link goes to a page of the master, to the web or to an address of mail. A picture is a link to
it, for a page loads nothing from elsewhere. The output is tags of the renderer and escaped text.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup, escape

MOST_CHARACTERS = 20_000
"""Longer notes are shown as they were written: some texts take a renderer a second for a hundred thousand characters."""

MOST_NESTING = 20
SCHEMES = ("http", "https", "mailto")
BELOW = 2
"""Levels of the page's own headings above those of a text."""

_SCHEME = re.compile(r"\s*([^/?#:]*):")


def shown(text: str) -> Markup:
    """As HTML. Lines of a paragraph stay lines."""
    if len(text) > MOST_CHARACTERS:
        return Markup('<p class="prose">{}</p>').format(text)
    return Markup(_renderer().render(text))


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return may_link(url)


@cache
def _renderer() -> MarkdownIt:
    made = _Markdown("commonmark", {"html": False, "breaks": True, "maxNesting": MOST_NESTING})
    made.enable(["table", "strikethrough"])
    made.core.ruler.push("fitted", _fit)
    made.add_render_rule("link_open", _link)
    made.add_render_rule("image", _picture)
    return made


def may_link(address: str) -> bool:
    """Whether a link may go there: to an address without a scheme, or with one of those that run nothing."""
    scheme = _SCHEME.match(address)
    return scheme is None or scheme[1].lower() in SCHEMES


def _fit(state: StateCore) -> None:
    """Headings below those of the page; columns to the right by a class, for the page's policy forbids the attribute `style`."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + BELOW)}"
        style = token.attrs.pop("style", None)
        if style == "text-align:right":
            token.attrSet("class", "right")


def _link(
    renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """It does not say to the other side where it was."""
    tokens[place].attrSet("rel", "noopener noreferrer")
    return renderer.renderToken(tokens, place, options, env)


def _picture(
    renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    token = tokens[place]
    words = renderer.renderInlineAsText(token.children or (), options, env) or token.attrs["src"]
    return f'<a href="{escape(token.attrs["src"])}" rel="noopener noreferrer">{escape(words)}</a>'
