"""The faults of a campaign, and its table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostile.sending import Outcome

SERVED_ERRORS = frozenset({501, 503})
"""Statuses of a call that is not served yet, and of a call that must be retried."""

MOST_SHOWN = 5
"""Maximum number of faults of one kind in the report."""

COLUMNS = ("granted", "400", "401", "403", "404", "other 4xx", "501", "503", "closed")


@dataclass(slots=True)
class Findings:
    """Counts of inputs and responses, and the faults by kind, as sentences."""

    rows: dict[str, Counter[str]] = field(default_factory=dict)
    messages: Counter[str] = field(default_factory=Counter)
    faults: dict[str, list[str]] = field(default_factory=dict)

    def fault(self, sort: str, sentence: str) -> None:
        self.faults.setdefault(sort, []).append(sentence)

    def take(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.add(outcome)

    def add(self, outcome: Outcome) -> None:
        row = self.rows.setdefault(outcome.who, Counter())
        self.messages[outcome.who] += outcome.messages
        told = f"{outcome.who}, {outcome.what} ({outcome.kind}): {outcome.detail}"
        if outcome.kind == "frames":
            row["granted" if outcome.granted else "closed"] += 1
        for status in outcome.statuses:
            row[_column(status)] += 1
            if status >= 500 and status not in SERVED_ERRORS:
                self.fault("answered 500", f"{status}: {told}")
        if outcome.refused and outcome.granted:
            self.fault("granted what the table refuses", told)
        if outcome.shown:
            self.fault("showed a secret", f"{', '.join(outcome.shown)}: {told}")
        if outcome.unanswered:
            self.fault("did not answer", told)

    @property
    def total(self) -> int:
        return self.messages.total()


def _column(status: int) -> str:
    if status == 0:
        return "closed"
    if status < 400:
        return "granted"
    if str(status) in COLUMNS:
        return str(status)
    return "other 4xx" if status < 500 else "500"


def compare(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Differences between two states: the name of the read, and each differing place."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, ""), after.get(name, "")
        if was != now:
            places = list(_differences(_values(was), _values(now)))[:MOST_SHOWN]
            found.append(f"{name}: " + "; ".join(places))
    return found


def _values(text: str) -> Any:
    """The status and the JSON or text of a read."""
    status, _, body = text.partition(" ")
    try:
        return [status, json.loads(body)]
    except ValueError:
        return text


def _differences(was: Any, now: Any, place: str = "") -> Iterator[str]:
    if was == now:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() | now.keys()):
            yield from _differences(was.get(key), now.get(key), f"{place}.{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(one, other, f"{place}[{index}]")
    elif isinstance(was, list) and isinstance(now, list):
        yield from (f"{place} has lost {each!s:.500}" for each in was if each not in now)
        yield from (f"{place} has got {each!s:.500}" for each in now if each not in was)
    else:
        yield f"{place} was {was!s:.200} and is {now!s:.200}"


def table(findings: Findings) -> str:
    columns = [*COLUMNS, *(["500"] if any("500" in row for row in findings.rows.values()) else [])]
    head = f"{'attacker':26}{'sent':>8}" + "".join(f"{column:>11}" for column in columns)
    lines = [head]
    whole: Counter[str] = Counter()
    for who in sorted(findings.rows):
        row = findings.rows[who]
        whole += row
        lines.append(f"{who:26}{findings.messages[who]:>8}" + "".join(f"{row[column]:>11}" for column in columns))
    lines.append(f"{'all':26}{findings.total:>8}" + "".join(f"{whole[column]:>11}" for column in columns))
    return "\n".join(lines)


def summary(findings: Findings) -> str:
    """The report; one line if there is no fault."""
    if not findings.faults:
        return "The master never ended, answered no 500, showed no secret, granted nothing that is refused; all is as it was."
    lines = []
    for sort, sentences in sorted(findings.faults.items()):
        lines.append(f"{sort}: {len(sentences)}")
        lines += [f"  - {sentence}" for sentence in sentences[:MOST_SHOWN]]
    return "\n".join(lines)
