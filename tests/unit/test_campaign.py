"""The campaign itself: its plans, its points, and that its checks of leaks can fail."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from campaign import leaks, report
from campaign.evidence import Findings
from campaign.kill_plan import PLACES, Kind, Moment, PlannedKill, plan
from campaign.points import Points

ROOT = Path(__file__).resolve().parents[2]
KILLS = dict.fromkeys(Kind, 250)


# ---------------------------------------------------------------------------------------------------------------- plans


def test_a_plan_is_that_of_its_seed() -> None:
    assert plan(7, KILLS, server=True) == plan(7, KILLS, server=True)
    assert plan(7, KILLS, server=True) != plan(8, KILLS, server=True)


def test_every_kind_is_killed_as_often_as_asked_and_half_of_it_inside() -> None:
    kill_plan = plan(7, KILLS, server=True)
    assert Counter(planned.kind for planned in kill_plan) == KILLS
    for kind in Kind:
        inside = [planned for planned in kill_plan if planned.kind is kind and planned.moment is not Moment.ANY]
        assert len(inside) == 125 and all(planned.point for planned in inside)
    assert report.inside(kill_plan) >= report.INSIDE_AT_LEAST
    assert len({planned.id for planned in kill_plan}) == len(kill_plan)


def test_every_place_has_its_turn() -> None:
    planned = {
        (planned.kind, planned.point, planned.victim) for planned in plan(7, KILLS, server=True) if planned.point
    }
    assert planned == {(kind, place.point, place.victim) for kind, places in PLACES.items() for place in places}


def test_without_a_server_nothing_waits_for_what_only_a_server_has() -> None:
    kills: dict[Kind, int] = {kind: 100 for kind in Kind if kind is not Kind.DATABASE}
    assert not [planned for planned in plan(7, kills, server=False) if planned.point.endswith(".sent")]


def test_every_planned_point_is_one_that_a_program_reaches() -> None:
    """A point that nobody reaches would make the campaign wait for ever."""
    code = "".join(path.read_text() for path in sorted((ROOT / "campaign").glob("*.py")) if path.name != "kill_plan.py")
    reached = set(re.findall(r"reached\(\"([a-z.]+)\"", code))
    for what in re.findall(r"writing\(\"(\w+)\"", code):
        reached |= {f"{what}.open", f"{what}.sent", f"{what}.done"}
    assert {place.point for places in PLACES.values() for place in places} <= reached


def on_a_store(done: Sequence[PlannedKill], asked: Mapping[Kind, int], **more: Any) -> report.Campaign:
    return report.Campaign(**{"store": "sqlite", "asked": asked, "done": done, "found": Findings(), **more})


def test_a_campaign_that_did_what_it_was_asked_for_falls_short_of_nothing() -> None:
    kill_plan = plan(7, KILLS, server=True)
    assert report.shortfalls([on_a_store(kill_plan, KILLS)]) == []
    assert report.share(kill_plan).startswith("50% inside, by their markers, least of ")


def test_a_kill_of_a_kind_that_did_not_happen_is_missed() -> None:
    kill_plan = plan(7, KILLS, server=True)
    missing = [planned for planned in kill_plan if planned.kind is not Kind.TASK]
    last = next(planned for planned in kill_plan if planned.kind is Kind.AGENT)
    missing.remove(last)
    assert report.shortfalls([on_a_store(missing, KILLS)]) == [
        "sqlite: 249 kills of agent happened, 250 were asked for",
        "sqlite: 0 kills of task happened, 250 were asked for",
    ]


def of_machines(inside: int, at_any_moment: int) -> list[PlannedKill]:
    one = next(planned for planned in plan(7, KILLS, server=True) if planned.kind is Kind.MACHINE)
    return [replace(one, moment=m) for m in (Moment.LAUNCH,) * inside + (Moment.ANY,) * at_any_moment]


def test_a_third_of_all_kills_must_be_inside_of_something() -> None:
    asked = {Kind.MACHINE: 300}
    assert report.shortfalls([on_a_store(of_machines(100, 200), asked)]) == []
    assert report.shortfalls([on_a_store(of_machines(99, 201), asked)]) == [
        "33.0% of the kills were inside of something, 1/3 must be"
    ]
    assert report.shortfalls([]) == ["0.0% of the kills were inside of something, 1/3 must be"]


def test_neither_another_store_nor_kills_beside_the_plan_hide_what_is_missing() -> None:
    asked = {Kind.MACHINE: 200}
    more = on_a_store(of_machines(101, 100), asked)
    fewer = on_a_store(of_machines(99, 100), asked, store="postgres", extra=of_machines(0, 1))
    assert report.shortfalls([more, fewer]) == ["postgres: 199 kills of machine happened, 200 were asked for"]


def test_the_kind_with_the_smallest_share_is_named() -> None:
    tasks = [replace(planned, kind=Kind.TASK) for planned in of_machines(9, 1)]
    assert report.share([*of_machines(1, 9), *tasks]) == "50% inside, by their markers, least of machine with 10%"


def test_a_campaign_fails_by_what_it_did_not_do_and_by_what_it_found() -> None:
    enough, asked = of_machines(100, 200), {Kind.MACHINE: 300}
    good, bad = on_a_store(enough, asked), on_a_store(enough, asked, found=Findings(lost=["a step"]))
    assert report.outcome([good, good])[1] == 0
    assert report.outcome([bad, good])[1] == 1
    text, code = report.outcome([on_a_store(of_machines(99, 201), asked)])
    assert code == 1 and "too little: 33.0%" in text
    text, code = report.outcome([on_a_store(enough, {Kind.MACHINE: 301})])
    assert code == 1 and "too little: sqlite: 300 kills of machine" in text


# --------------------------------------------------------------------------------------------------------------- points


def order(directory: Path, point: str, id_: str, victim: str) -> None:
    for name in ("struck", "pids"):
        (directory / name).mkdir(exist_ok=True)
    (directory / f"{point}.order").write_text(json.dumps({"id": id_, "victim": victim}))


def marker(directory: Path, id_: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((directory / "struck" / f"{id_}.json").read_text())
    return found


def test_who_reaches_the_point_dies_there_and_leaves_the_marker(tmp_path: Path) -> None:
    order(tmp_path, "commit.open", "0001-master", "self")
    program = f"""
import sys
from pathlib import Path
from campaign.points import Points
points = Points(Path({str(tmp_path)!r}))
points.reached("commit.done")
print("goes on", flush=True)
points.reached("commit.open")
print("never said")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "goes on\n")
    found = marker(tmp_path, "0001-master")
    assert (found["point"], found["victim"]) == ("commit.open", "self") and found["pids"] == [found["by"]]
    assert not list(tmp_path.glob("*.order")) and not list(tmp_path.glob("*.taken-*"))


def test_an_order_is_carried_out_by_one(tmp_path: Path) -> None:
    order(tmp_path, "commit.open", "1", "master")
    first, second = Points(tmp_path), Points(tmp_path)
    assert first.take("commit.open") is not None
    assert second.take("commit.open") is None
    assert Points(None).take("commit.open") is None


def test_a_victim_that_is_not_there_is_said_to_be_nobody(tmp_path: Path) -> None:
    for number, victim in enumerate(("master", "database", "machine", "host", "agent", "backend")):
        order(tmp_path, "stream.open", str(number), victim)
        Points(tmp_path).reached("stream.open")
        assert marker(tmp_path, str(number))["pids"] == []


def test_a_named_process_is_killed_by_its_pid(tmp_path: Path) -> None:
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    order(tmp_path, "launch.asked", "1", "master")
    (tmp_path / "pids" / "master").write_text(str(victim.pid))
    Points(tmp_path).reached("launch.asked")
    assert victim.wait() == -signal.SIGKILL
    assert marker(tmp_path, "1")["pids"] == [victim.pid] and marker(tmp_path, "1")["by"] == os.getpid()


# ---------------------------------------------------------------------------------------------------------------- leaks

BILLED = leaks.Billed(name="m1", token="t1", paid_from=10.0, paid_until=20.0, ended=True)
RECORDED = leaks.Recorded(
    name="m1", token="t1", launched=True, paid_from=10.0, paid_until=20.0, paid_s=10.0, booked_s=10.0
)
NEVER_GIVEN = leaks.Recorded(
    name="m2", token="t2", launched=False, paid_from=None, paid_until=None, paid_s=0.0, booked_s=0.0
)


def test_books_that_agree_have_no_problems() -> None:
    unpaid = leaks.Billed(name="m3", token="t3", paid_from=None, paid_until=None, ended=True)
    told = replace(NEVER_GIVEN, name="m3", token="t3")
    assert leaks.machines([BILLED, unpaid], [RECORDED, NEVER_GIVEN, told], made=3) == []


@pytest.mark.parametrize(
    ("bill", "book", "made", "found"),
    [
        ([BILLED, replace(BILLED, name="m9")], [RECORDED], 2, "on the bill, token t1 is there 2 times"),
        ([BILLED], [RECORDED, replace(RECORDED, token="t9")], 1, "in the book, machine m1 is there 2 times"),
        ([BILLED], [], 1, "m1 is on the bill and in no book"),
        ([], [RECORDED], 1, "m1 is in the book as launched and on no bill"),
        ([replace(BILLED, ended=False)], [RECORDED], 1, "m1 was never ended"),
        ([BILLED], [RECORDED], 0, "made 0 machines and has files of 1"),
        ([BILLED], [replace(RECORDED, paid_until=None)], 1, "paid until 20.0 by the bill and None by the book"),
        ([replace(BILLED, paid_from=9.0)], [RECORDED], 1, "paid from 9.0 by the bill and 10.0 by the book"),
        ([replace(BILLED, paid_until=21.0)], [RECORDED], 1, "11.000 s by the bill and 10.000 s in the ledger"),
        ([BILLED], [replace(RECORDED, booked_s=9.0)], 1, "10.000 s are paid and 9.000 s are booked"),
    ],
)
def test_each_leaked_machine_is_found(
    bill: list[leaks.Billed], book: list[leaks.Recorded], made: int, found: str
) -> None:
    assert any(found in problem for problem in leaks.machines(bill, book, made=made))


def test_submissions_are_there_once() -> None:
    assert leaks.submissions(["a", "b"], {"a": 1, "b": 2}, [(1, "a"), (2, "b")]) == []
    assert leaks.submissions(["a"], {"a": 1}, [(1, "a"), (2, "a")]) != []
    assert leaks.submissions(["a"], {"a": 1}, []) == ["a was acknowledged as 1 and is stored as None"]
    assert leaks.submissions(["a"], {}, [(1, "a")]) == ["a was never acknowledged"]
    assert leaks.submissions([], {}, [(1, "a")]) == ["a is stored and was not submitted"]


def test_checkpoints_have_row_and_files() -> None:
    rows, files = {"c": ["a", "code/", "code/x"]}, {"c": ["a", "code/x"]}
    assert leaks.checkpoints(rows, files) == []
    assert leaks.checkpoints(rows, {}) == ["checkpoint c has a row and no files"]
    assert leaks.checkpoints({}, files) == ["checkpoint c has files and no row"]
    assert "its row names" in leaks.checkpoints(rows, {"c": ["a"]})[0]


def test_contexts_belong_to_experiments() -> None:
    assert leaks.uploads({"h"}, {"h"}) == []
    assert leaks.uploads({"h"}, set()) == ["context h is stored and no experiment has it"]
    assert leaks.uploads(set(), {"h"}) == ["context h of an experiment is not stored"]


def test_what_is_left_is_named() -> None:
    assert leaks.left("a process", ["python x"]) == ["a process is left: python x"]
    assert leaks.left("a process", []) == []
