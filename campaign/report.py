"""The table of kills and the verdict, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from campaign.evidence import Verdict
from campaign.strikes import Kind, Moment, Strike

INSIDE_AT_LEAST = Fraction(1, 3)


def table(strikes: Sequence[Strike]) -> str:
    """Kills by kind and moment, with sums."""
    counts = Counter((strike.kind, strike.moment) for strike in strikes)
    kinds = [kind for kind in Kind if any(counts[kind, moment] for moment in Moment)]
    heads = ["killed", *(f"in {'an' if m is Moment.UPLOAD else 'a'} {m}" for m in Moment if m is not Moment.ANY)]
    lines = [[*heads, "at any moment", "all"]]
    for kind in kinds:
        row = [counts[kind, moment] for moment in Moment]
        lines.append([kind, *map(str, row), str(sum(row))])
    sums = [sum(counts[kind, moment] for kind in kinds) for moment in Moment]
    lines.append(["all", *map(str, sums), str(sum(sums))])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def inside(strikes: Sequence[Strike]) -> Fraction:
    """The part of the kills that were proven to be inside of something."""
    return Fraction(sum(strike.moment is not Moment.ANY for strike in strikes), max(1, len(strikes)))


def judgement(found: Verdict) -> str:
    """Counts, then every problem."""
    looked_at = ", ".join(f"{count} {what}" for what, count in found.seen.items())
    lines = [
        f"looked at: {looked_at}",
        f"lost {len(found.lost)}, doubled {len(found.doubled)}, leaked {len(found.leaked)}",
    ]
    for name, problems in (("lost", found.lost), ("doubled", found.doubled), ("leaked", found.leaked)):
        lines += [f"  {name}: {text}" for text in problems]
    return "\n".join(lines)
