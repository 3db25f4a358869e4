"""Pure checks for leaked and duplicate objects of a cluster. Each returns problems as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

SAME_S = 0.002
"""Precision of times in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """A machine in the cloud's bill. Times are seconds since 1970; None before the machine has booted."""

    name: str
    token: str
    paid_from: float | None
    paid_until: float | None
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A machine in the master's records. `launched` is true if the cloud confirmed it; `booked_s` is the sum of the ledger's
    accounts."""

    name: str
    token: str
    launched: bool
    paid_from: float | None
    paid_until: float | None
    paid_s: float
    booked_s: float


def machines(bill: Sequence[Billed], book: Sequence[Recorded], *, made: int) -> list[str]:
    """`made` is the cloud's own count of machines."""
    problems = [
        f"{what} {name} is there {count} times"
        for what, names in (
            ("on the bill, machine", [m.name for m in bill]),
            ("on the bill, token", [m.token for m in bill]),
            ("in the book, machine", [m.name for m in book]),
            ("in the book, token", [m.token for m in book]),
        )
        for name, count in Counter(names).items()
        if count > 1
    ]
    if len(bill) > made:  # fewer are fine: a machine is counted before it exists
        problems.append(f"the cloud made {made} machines and has files of {len(bill)}")
    recorded = {m.token: m for m in book}
    for machine in bill:
        if not machine.ended:
            problems.append(f"machine {machine.name} was never ended")
        row = recorded.pop(machine.token, None)
        if row is None:
            problems.append(f"machine {machine.name} is on the bill and in no book")
        else:
            problems += _paid(machine, row)
    problems += [f"machine {m.name} is in the book as launched and on no bill" for m in recorded.values() if m.launched]
    return problems


def _paid(machine: Billed, row: Recorded) -> list[str]:
    problems = [
        f"machine {machine.name} is paid {what} {billed} by the bill and {booked} by the book"
        for what, billed, booked in (
            ("from", machine.paid_from, row.paid_from),
            ("until", machine.paid_until, row.paid_until),
        )
        if (billed is None) != (booked is None)
        or (billed is not None and booked is not None and abs(billed - booked) > SAME_S)
    ]
    if machine.paid_from is not None and machine.paid_until is not None:
        paid_s = machine.paid_until - machine.paid_from
        if abs(paid_s - row.paid_s) > SAME_S:
            problems.append(
                f"machine {machine.name} is paid {paid_s:.3f} s by the bill and {row.paid_s:.3f} s in the ledger"
            )
    if abs(row.paid_s - row.booked_s) > SAME_S:
        problems.append(f"machine {row.name}: {row.paid_s:.3f} s are paid and {row.booked_s:.3f} s are booked")
    return problems


def submissions(asked: Sequence[str], acknowledged: Mapping[str, int], stored: Sequence[tuple[int, str]]) -> list[str]:
    """Compares the names of uploads with the (id, name) of all experiments."""
    problems = [f"{name} is stored {count} times" for name, count in Counter(n for _, n in stored).items() if count > 1]
    known = {name: id_ for id_, name in stored}
    for name in asked:
        if name not in acknowledged:
            problems.append(f"{name} was never acknowledged")
        elif known.get(name) != acknowledged[name]:
            problems.append(f"{name} was acknowledged as {acknowledged[name]} and is stored as {known.get(name)}")
    problems += [f"{name} is stored and was not submitted" for name in sorted(known.keys() - set(asked))]
    return problems


def checkpoints(rows: Mapping[str, Collection[str]], files: Mapping[str, Collection[str]]) -> list[str]:
    """Compares file names by uuid: the master's rows, and the published checkpoints of the storage."""
    problems = [f"checkpoint {uuid} has a row and no files" for uuid in sorted(rows.keys() - files.keys())]
    problems += [f"checkpoint {uuid} has files and no row" for uuid in sorted(files.keys() - rows.keys())]
    for uuid in sorted(rows.keys() & files.keys()):
        named = {name for name in rows[uuid] if not name.endswith("/")}
        if named != set(files[uuid]):
            problems.append(f"checkpoint {uuid} has the files {sorted(files[uuid])}, its row names {sorted(named)}")
    return problems


def uploads(stored: Collection[str], used: Collection[str]) -> list[str]:
    """Compares the hashes of stored contexts with those that experiments reference."""
    problems = [f"context {digest} is stored and no experiment has it" for digest in sorted(set(stored) - set(used))]
    problems += [f"context {digest} of an experiment is not stored" for digest in sorted(set(used) - set(stored))]
    return problems


def left(what: str, found: Sequence[str]) -> list[str]:
    """Objects that must not exist."""
    return [f"{what} is left: {thing}" for thing in found]
