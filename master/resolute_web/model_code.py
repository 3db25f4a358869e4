"""The code of an experiment: its files, and one of them with its syntax marked."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pygments import lex
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Literal, Name, Token, _TokenType
from pygments.util import ClassNotFound

MOST_BYTES = 256 * 1024
"""Most bytes of a file that are shown; the rest of a longer file is left out."""

MOST_FILES = 2000

_CLASSES: Sequence[tuple[_TokenType, str]] = (
    (Comment, "comment"),
    (Literal.String, "string"),
    (Literal.Number, "literal"),
    (Keyword, "keyword"),
    (Name.Function, "defined"),
    (Name.Class, "defined"),
    (Name.Decorator, "decorator"),
    (Name.Builtin, "builtin"),
    (Name.Tag, "key"),
    (Name.Attribute, "key"),
    (Token.Generic.Heading, "defined"),
)
"""Kinds of tokens that have a colour, by the class of the style sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of the archive; `depth` is how many folders it is in."""

    path: str
    name: str
    depth: int
    size: int
    folder: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One file as lines of marked text; without lines it is no text. `cut`: only its beginning is shown."""

    path: str
    size: int
    lines: Sequence[Markup]
    binary: bool
    cut: bool


def entries_of(archive: bytes) -> Sequence[Entry]:
    """Files and folders, parents first; at most `MOST_FILES`. Reads the archive once: for a thread."""
    found: list[Entry] = []
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member in opened:
            if len(found) == MOST_FILES:
                break
            name = member.name.rstrip("/")
            found.append(
                Entry(
                    path=name,
                    name=name.rpartition("/")[2],
                    depth=name.count("/"),
                    size=member.size,
                    folder=member.isdir(),
                )
            )
    return sorted(found, key=lambda each: each.path.split("/"))


def file_of(archive: bytes, path: str) -> Shown | None:
    """None when the archive has no such file. For a thread."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member in opened:
            if member.name == path and member.isfile():
                stream = opened.extractfile(member)
                content = b"" if stream is None else stream.read(MOST_BYTES)
                return _shown(path, member.size, content)
    return None


def _shown(path: str, size: int, content: bytes) -> Shown:
    binary = b"\0" in content[:8192]
    text = "" if binary else content.decode(errors="replace")
    return Shown(
        path=path,
        size=size,
        lines=() if binary else marked(path, text),
        binary=binary,
        cut=size > len(content) and not binary,
    )


def marked(path: str, text: str) -> Sequence[Markup]:
    """Lines of `text`, its tokens in elements with the classes of the style sheet. Everything of the text is escaped."""
    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        lexer = TextLexer(stripnl=False, ensurenl=False)
    lines: list[list[Markup]] = [[]]
    for kind, value in lex(text, lexer):
        style = next((name for token, name in _CLASSES if kind in token), "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append(
                    Markup('<b class="{}">{}</b>').format(style, part) if style else Markup("{}").format(part)
                )
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return [Markup("").join(line) for line in lines]
