"""Text from people and programs, made safe for a terminal, a log and a line.

A name may hold control characters: escape sequences that rewrite the screen, line breaks that forge a line of a log, marks
that turn the direction of the text, invisible characters. The functions here write them as Python would write them in
a literal (`\\x1b`, `\\n`, `\\u202e`). Escaping is for the edge where text is shown; what is stored stays as it was given.
"""

from __future__ import annotations

import re

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
"""C0 without tab and line feed, DEL, C1."""

_LAYOUT = r"\t\n"

_UNSEEN = (
    r"\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
"""Format characters (Unicode category Cf, among them those that turn the direction), breaks of lines and paragraphs, and
fillers without width."""

_LONE = r"\ud800-\udfff"
"""Surrogates: UTF-8 has no bytes for them."""

_IN_A_LINE = re.compile(f"[{_LAYOUT}{_CONTROLS}{_UNSEEN}{_LONE}]")
_IN_A_TEXT = re.compile(f"[{_CONTROLS}{_UNSEEN}{_LONE}]")
_BESIDE_COLORS = re.compile(rf"(?P<color>\x1b\[[0-9;:]{{0,64}}m)|[{_CONTROLS}{_UNSEEN}{_LONE}]")
_IN_JSON = re.compile(rf"[\x7f-\x9f{_UNSEEN}{_LONE}]")


def one_line(text: str) -> str:
    """The text in one line that a terminal shows unchanged: for names, fields of a log and cells of a table."""
    return text if text.isascii() and text.isprintable() else _IN_A_LINE.sub(_escaped, text)


def lines(text: str) -> str:
    """A text of several lines that a terminal shows unchanged: tabs and line feeds stay."""
    return text if text.isascii() and text.isprintable() else _IN_A_TEXT.sub(_escaped, text)


def with_colors(text: str) -> str:
    """`lines`, with colours (SGR sequences): for the output of programs."""
    if text.isascii() and text.isprintable():
        return text
    return _BESIDE_COLORS.sub(lambda match: match["color"] or _escaped(match), text)


def json_escaped(text: str) -> str:
    """Encoded JSON in which strings hold no such character; it means the same. JSON has escaped C0 itself."""
    return text if text.isascii() and "\x7f" not in text else _IN_JSON.sub(_json_escape, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or _code(ord(character))


def _code(point: int) -> str:
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
