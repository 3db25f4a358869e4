"""The table of kills and the result, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from campaign.evidence import Findings
from campaign.kill_plan import Kind, Moment, PlannedKill

INSIDE_AT_LEAST = Fraction(1, 3)
"""Minimum fraction of kills with a marker inside an operation."""


def table(kill_plan: Sequence[PlannedKill]) -> str:
    """Kills by kind and moment, with sums."""
    counts = Counter((planned.kind, planned.moment) for planned in kill_plan)
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


def inside(kill_plan: Sequence[PlannedKill]) -> Fraction:
    """Fraction of kills with a marker inside an operation."""
    return Fraction(sum(planned.moment is not Moment.ANY for planned in kill_plan), max(1, len(kill_plan)))


def inside_by_kind(kill_plan: Sequence[PlannedKill]) -> dict[Kind, Fraction]:
    """`inside` of each kind with kills."""
    killed = {kind: [planned for planned in kill_plan if planned.kind is kind] for kind in Kind}
    return {kind: inside(of_kind) for kind, of_kind in killed.items() if of_kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The plan, the kills and the findings of one store."""

    store: str
    asked: Mapping[Kind, int]
    done: Sequence[PlannedKill]
    """The kills of the plan that happened."""
    extra: Sequence[PlannedKill] = ()
    """Kills beyond the plan."""
    found: Findings

    @property
    def killed(self) -> list[PlannedKill]:
        return [*self.done, *self.extra]


def shortfalls(campaigns: Sequence[Campaign]) -> list[str]:
    """Failures of the campaigns themselves, as sentences: a store with too few planned kills of a kind, or too few kills inside an
    operation."""
    found: list[str] = []
    for campaign in campaigns:
        happened = Counter(planned.kind for planned in campaign.done)
        found += [
            f"{campaign.store}: {happened[kind]} kills of {kind} happened, {count} were asked for"
            for kind, count in campaign.asked.items()
            if happened[kind] < count
        ]
    if (part := inside(_all(campaigns))) < INSIDE_AT_LEAST:
        found.append(f"{float(part):.1%} of the kills were inside of something, {INSIDE_AT_LEAST} must be")
    return found


def _all(campaigns: Sequence[Campaign]) -> list[PlannedKill]:
    return [planned for campaign in campaigns for planned in campaign.killed]


def share(kill_plan: Sequence[PlannedKill]) -> str:
    """One line with the fractions of kills inside an operation: of all kills, and of the kind with the lowest fraction."""
    parts = inside_by_kind(kill_plan)
    least = min(parts, key=lambda kind: parts[kind], default=None)
    fewest = "" if least is None else f", least of {least} with {float(parts[least]):.0%}"
    return f"{float(inside(kill_plan)):.0%} inside, by their markers{fewest}"


def outcome(campaigns: Sequence[Campaign]) -> tuple[str, int]:
    """The last lines for all stores, and the exit code, which is 1 if a check failed or kills are missing."""
    kill_plan, short = _all(campaigns), shortfalls(campaigns)
    lines = [table(kill_plan), share(kill_plan), *(f"too little: {text}" for text in short)]
    return "\n".join(lines), int(bool(short) or not all(each.found.good for each in campaigns))


def summary(found: Findings) -> str:
    """Counts, then every problem."""
    looked_at = ", ".join(f"{count} {what}" for what, count in found.seen.items())
    lines = [
        f"looked at: {looked_at}",
        f"lost {len(found.lost)}, doubled {len(found.doubled)}, leaked {len(found.leaked)}",
    ]
    for name, problems in (("lost", found.lost), ("doubled", found.doubled), ("leaked", found.leaked)):
        lines += [f"  {name}: {text}" for text in problems]
    return "\n".join(lines)
