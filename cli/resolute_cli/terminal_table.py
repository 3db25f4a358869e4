"""A table on a terminal: no line is longer than the terminal is wide, and ids are never broken.

Text is wrapped between words. A word of up to `LONGEST_WORD` characters (an id, a UUID, a date) stays whole. Where the columns do
not fit, the least important ones are dropped, and a line below lists them; empty ones are dropped first, without mention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len

_DATE = re.compile(r"\d\d-\d\d \d\d:\d\d")

GAP = "  "

LONGEST_WORD = 48
"""Characters of a word that is never broken; an allocation's id has about 42."""

NARROWEST_TEXT = 12
"""Minimum width of a column of text with several words, in characters, unless the text is shorter."""

WORD_OF_TEXT = 16
"""Longer words in text, such as an id in a reason, do not widen the column: a text that does not fit is printed below its row."""

GIVE_WAY = (
    "Parent ID",
    "Archived",
    "Display Name",
    "Labels",
    "Checkpoint Metadata",
    "Metadata",
    "Ports",
    "Resources",
    "Version",
    "Cycle",
    "Registered Time",
    "Requested",
    "Paid Until",
    "Paid From",
    "Observed",
    "Notice",
    "Basis",
    "Project",
    "Workspace",
    "Description",
    "Checkpoint Report Time",
    "Validation Report Time",
    "Allocation ID",
    "Type",
    "Weight",
    "Priority",
    "Offer",
    "Addresses",
    "Draining",
    "Enabled",
    "From Step",
    "Kept",
    "Checkpointing",
    "Starting",
    "Ended",
    "User",
    "Owner",
    "H-Params",
    "Restarts",
    "Report Time",
    "Resource Pool",
    "Started",
    "Submitted",
    "Idle",
)
"""The columns that are dropped first. Others follow from the right; the first column is never dropped."""

Lines = list[str]


def draw(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, bold: bool) -> str:
    """The table. A cell may have several lines."""
    kept = list(range(len(columns)))
    while True:
        least = [_least([columns[i], *(row[i] for row in rows)]) for i in kept]
        if len(kept) == 1 or sum(least) + len(GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(_next_to_go(columns, rows, kept))
    natural = [_natural([columns[i], *(row[i] for row in rows)]) for i in kept]
    widths = _widths(natural, least, width - len(GAP) * (len(kept) - 1))
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) and any(row[i] for row in rows) for i in kept]
    text = _row([columns[i] for i in kept], widths, right, bold=bold)
    text += GAP.join("─" * size for size in widths) + "\n"
    prose = [_is_text([row[i] for row in rows]) for i in kept]
    for row in rows:
        cells = [row[i] for i in kept]
        too_wide = [
            place
            for place, cell in enumerate(cells)
            if prose[place] and any(cell_len(word) > widths[place] for word in cell.split())
        ]
        text += _row(["" if place in too_wide else cell for place, cell in enumerate(cells)], widths, right)
        for place in too_wide:
            below = wrapped(f"{columns[kept[place]]}: {cells[place]}", max(width - 4, LONGEST_WORD))
            text += "".join(f"    {line}\n" for line in below)
    gone = [columns[i] for i in range(len(columns)) if i not in kept and any(row[i] for row in rows)]
    if gone and rows:
        text += (
            "\n".join(wrapped(f"Not shown because the terminal is too narrow: {', '.join(gone)}.", max(width, 20)))
            + "\n"
        )
    return text


def wrapped(text: str, width: int) -> Lines:
    """Lines of at most `width` columns, broken between words; a longer word is broken too."""
    lines: Lines = []
    for line in text.split("\n"):
        current = ""
        for word in line.split(" "):
            joined = f"{current} {word}" if current else word
            if cell_len(joined) <= width:
                current = joined
                continue
            if current:
                lines.append(current)
            while cell_len(word) > width:
                head = _head(word, width)
                lines.append(head)
                word = word[len(head) :]
            current = word
        lines.append(current)
    return lines


def _head(word: str, width: int) -> str:
    """As many characters as fit, at least one."""
    size = used = 0
    for character in word:
        used += cell_len(character)
        if size and used > width:
            break
        size += 1
    return word[:size]


def _natural(cells: Sequence[str]) -> int:
    return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def _least(cells: Sequence[str]) -> int:
    """What the column needs: its longest word, and for text some more."""
    several = _is_text(cells[1:])
    longest = WORD_OF_TEXT if several else LONGEST_WORD
    words = [min(cell_len(word), longest) for cell in cells for word in _words(cell)]
    return max([1, *words, *([min(NARROWEST_TEXT, _natural(cells))] if several else [])])


def _is_text(cells: Sequence[str]) -> bool:
    return any(len(cell.split()) > 2 for cell in cells)


def _words(cell: str) -> Sequence[str]:
    """What is not broken: the words, and a date with its time."""
    return [cell] if _DATE.fullmatch(cell) else cell.split()


def _widths(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """What is left over goes to the narrowest first, so that only long text is wrapped."""
    if len(least) == 1 and least[0] > room:
        return [max(1, room)]
    widths, left = list(least), room - sum(least)
    while left > 0:
        wanting = [i for i in range(len(widths)) if widths[i] < natural[i]]
        if not wanting:
            break
        narrowest = min(wanting, key=lambda i: (widths[i], i))
        widths[narrowest] += 1
        left -= 1
    return widths


def _next_to_go(columns: Sequence[str], rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    empty = [i for i in kept[1:] if not any(row[i] for row in rows)]
    candidates = empty if rows and empty else kept[1:]
    for title in GIVE_WAY:
        for i in candidates:
            if columns[i] == title:
                return i
    return candidates[-1]


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, bold: bool = False) -> str:
    parts = [wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    text = ""
    for number in range(max(map(len, parts))):
        shown = [part[number] if number < len(part) else "" for part in parts]
        padded = [
            " " * (width - cell_len(cell)) + cell if to_right else cell + " " * (width - cell_len(cell))
            for cell, width, to_right in zip(shown, widths, right, strict=True)
        ]
        line = GAP.join(padded).rstrip()
        text += (f"\x1b[1m{line}\x1b[0m" if bold else line) + "\n"
    return text


def _is_number(cell: str) -> bool:
    if not cell:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return True
