"""The page with all calls of the contract: whether each is served, and which parts of the released client decoded its response."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resolute_master.api.app import ROUTES
from support.api_released import Accepted
from support.rest_schema import Endpoint, contract

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "api-coverage.md"
REGENERATE = "RESOLUTE_WRITE_COVERAGE=1 .venv/bin/python -m pytest tests/compat"
SHOWN = 3
"""Maximum number of callers per call."""

TIERS = {
    "A": "the everyday path",
    "B": "workspaces, interactive tasks, the model registry and the web interface's own lists",
    "C": "the original's enterprise edition",
}

Key = tuple[str, str]
"""Method and path."""

INTRODUCTION = f"""# Calls of the contract, and the clients that accepted them

The contract's REST calls, each with whether this master serves it and which parts of the released client
(`determined==0.38.1`, unchanged: its command line, SDK, harness and bindings) were seen to make it and to decode the answer.

This page is evidence, not intention: the tests in `tests/compat` run the released client against a live master, a
recorder in the client's own process notes each answer that it could decode, and a test fails when this page says anything
that was not seen, or leaves out what was. It is written by

```sh
{REGENERATE}
```

*bindings* are calls that only tasks of Slurm, Kubernetes or notebooks make: the released client's generated functions were
called directly for them. *none* means that no part of the released client makes the call at all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One call; `seen` contains callers that decoded a response."""

    endpoint: Endpoint
    served: bool
    seen: tuple[str, ...]


def key_of(endpoint: Endpoint) -> Key:
    return endpoint.method, endpoint.path


def served() -> set[Key]:
    known = {(route.method, _shape(route.path)) for route in ROUTES}
    return {key_of(e) for e in contract().endpoints if (e.method, _shape(e.path)) in known}


def callers(evidence: Iterable[Accepted]) -> dict[Key, set[str]]:
    """Callers with a response, by call."""
    operations = {e.operation: key_of(e) for e in contract().endpoints if e.operation}
    found: dict[Key, set[str]] = defaultdict(set)
    for one in evidence:
        key = operations[one.operation] if one.operation else _key_at(one.method, one.path)
        if key is not None:
            found[key].add(_named(one.by))
    return found


def _key_at(method: str, path: str) -> Key | None:
    """The call of a request; of several matches, the one with the fewest parameters."""
    path = "/" + path.lstrip("/")
    fitting = [
        e
        for e in contract().endpoints
        if e.method == method and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", e.path), path)
    ]
    return key_of(min(fitting, key=lambda e: e.path.count("{"))) if fitting else None


def _shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def _named(by: str) -> str:
    """`det experiment list`, `Experiment.wait`, `core.TrainContext.report_progress`, `exec.prep_container`, `bindings`."""
    if by.startswith("det ") or by == "bindings":
        return by
    # Private modules do not help a reader; a private class is the only name of some threads of the harness.
    parts = [part for part in by.split(".") if not part.startswith("_") or part[1:2].isupper()]
    if parts[0] == "exec":
        return ".".join(parts[:2])
    if parts[0] in ("core", "launch"):
        return ".".join(parts)
    return ".".join(parts[-2:])


def _kind(by: str) -> int:
    """Command line first, then SDK, harness, bindings."""
    if by.startswith("det "):
        return 0
    if by == "bindings":
        return 3
    return 2 if by.split(".")[0] in ("core", "core_v2", "exec", "launch") else 1


def chosen(found: set[str]) -> tuple[str, ...]:
    """A few callers, of as many kinds as possible."""
    ordered = sorted(found, key=lambda by: (_kind(by), by))
    first = {kind: next(by for by in ordered if _kind(by) == kind) for kind in map(_kind, ordered)}
    rest = [by for by in ordered if by not in first.values()]
    return tuple(sorted([*first.values(), *rest][:SHOWN], key=lambda by: (_kind(by), by)))


def rows(seen: Mapping[Key, Iterable[str]]) -> list[Row]:
    here = served()
    return [
        Row(endpoint=e, served=key_of(e) in here, seen=tuple(seen.get(key_of(e), ()))) for e in contract().endpoints
    ]


def page(all_rows: Iterable[Row]) -> str:
    listed = list(all_rows)
    parts = [INTRODUCTION.rstrip(), *_summary(listed)]
    for tier, what in TIERS.items():
        parts.append(f"\n## Tier {tier}: {what}")
        groups = dict.fromkeys(row.endpoint.group for row in listed if row.endpoint.tier == tier)
        for group in groups:
            parts.append(f"\n### {group}\n\n| call | name | served | accepted by |\n|---|---|---|---|")
            parts += [_line(row) for row in listed if (row.endpoint.tier, row.endpoint.group) == (tier, group)]
    return "\n".join(parts) + "\n"


def _summary(listed: list[Row]) -> list[str]:
    lines = ["\n| tier | calls | served | made by the client | seen accepted |\n|---|---|---|---|---|"]
    for tier in TIERS:
        of_tier = [row for row in listed if row.endpoint.tier == tier]
        called = [row for row in of_tier if row.endpoint.called]
        counts = (len(of_tier), sum(r.served for r in of_tier), len(called), sum(bool(r.seen) for r in of_tier))
        lines.append(f"| {tier} | " + " | ".join(map(str, counts)) + " |")
    return lines


def _line(row: Row) -> str:
    endpoint = row.endpoint
    by = ", ".join(f"`{one}`" if one != "bindings" else "bindings" for one in row.seen)
    if not by:
        by = "not seen" if endpoint.called and row.served else "" if endpoint.called else "none"
    answer = "yes" if row.served else "no"
    return f"| `{endpoint.method} {endpoint.path}` | {endpoint.operation} | {answer} | {by} |"


_LINE = re.compile(r"\| `(\w+) (\S+)` \| \w* \| (?:yes|no) \| (.*) \|")


def claimed(text: str) -> dict[Key, tuple[str, ...]]:
    """The callers in a page."""
    found = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            method, path, by = match.groups()
            names = tuple(re.findall(r"`([^`]+)`|(bindings)", by))
            found[method, path] = tuple(code or plain for code, plain in names)
    return found
