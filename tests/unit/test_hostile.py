"""The hostile campaign itself: what it sends, and that each sort of fault can be found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hostile.attackers import COLUMN, Attacker, forged
from hostile.calls import FINAL, Caller, Request, Victims
from hostile.campaign import shares
from hostile.findings import Findings, compare, summary, table
from hostile.frames import Rogue, links
from hostile.garbage import garbage
from hostile.sending import Outcome, Secrets
from hostile.values import mutated

from resolute_master.api.app import ALL_ROUTES
from resolute_master.api.rights import rows_of

VICTIMS = Victims(
    parts={
        "experimentId": ("7",),
        "trialId": ("8",),
        "agentId": ("agent-1",),
        "resourcesId": ("c1",),
        "allocationId": ("8.x.1",),
        "taskId": ("8.x",),
    },
    bodies={"DELETE /api/v1/checkpoints": {"checkpointUuids": ["u"]}},
    own_user="9",
)
ROGUE = Rogue(name="rogue", pool="rogue", credential="c")


def drawn(seed: int, count: int) -> list[Request]:
    return list(Caller(random.Random(seed), VICTIMS).requests(count))


@cache
def many() -> Sequence[Request]:
    return drawn(1, 20_000)


def test_what_is_sent_is_that_of_the_seed() -> None:
    assert drawn(7, 500) == drawn(7, 500) != drawn(8, 500)
    # Frames are long: some have a hundred thousand characters.
    for draw, count in ((garbage, 300), (lambda generator, count: links(generator, VICTIMS, ROGUE, count), 60)):
        first, again, other = (list(draw(random.Random(seed), count)) for seed in (7, 7, 8))
        assert first == again != other


def test_the_budget_is_spent_whole() -> None:
    for budget in (1, 99, 500, 25_000):
        share = shares(budget)
        assert share.task + share.bytes + share.frames + share.calls == budget
    assert sum(len(link.frames) for link in links(random.Random(1), VICTIMS, ROGUE, 177)) == 177


def test_every_route_is_called_by_every_attacker() -> None:
    requests = many()
    called = Counter(request.call for request in requests)
    assert set(called) == {f"{r.method} {r.path}" for r in ALL_ROUTES if r.action not in FINAL}
    assert Counter(request.who for request in requests).keys() == set(Attacker)
    assert {request.kind for request in requests} == {"exact", "extreme", "malformed"}


def test_what_the_table_refuses_is_known_and_nothing_else() -> None:
    """A call that the table grants is never a fault, and each that it refuses of a victim's thing is."""
    rows = {f"{r.method} {r.path}": rows_of(r)[0] for r in ALL_ROUTES}
    requests = many()
    assert not [r for r in requests if r.refused and COLUMN[r.who] in rows[r.call].granted]
    pausing = [r for r in requests if r.call == "POST /api/v1/experiments/{experimentId}/pause" and r.kind == "exact"]
    assert len(pausing) > 20 and all(request.refused for request in pausing)
    removing = [r for r in requests if r.call == "DELETE /api/v1/checkpoints" and r.kind == "exact"]
    assert removing and all(request.refused for request in removing)


def test_some_of_what_is_sent_is_about_the_attackers_own_and_never_refused_for_that() -> None:
    """What they may report for is where extreme values come furthest."""
    victims = replace(VICTIMS, own={"experimentId": "70", "trialId": "80"}, own_task={"trialId": "81"})
    requests = list(Caller(random.Random(5), victims).requests(20_000))
    own = [r for r in requests if r.kind == "exact" and ("/70" in r.path or "/80" in r.path or "/81" in r.path)]
    assert {r.who for r in own} == {Attacker.OTHER, Attacker.FROM_TASK, Attacker.OTHER_TASK}
    assert len(own) > 150 and not [r for r in own if r.refused]
    assert all("/81" in r.path for r in own if r.who is Attacker.OTHER_TASK)


def test_bodies_stay_bodies_and_change() -> None:
    generator = random.Random(3)
    good = {"a": {"b": [1, 2]}, "c": "d"}
    found = [mutated(generator, good) for _ in range(200)]
    assert sum(each != good for each in found) > 150
    assert good == {"a": {"b": [1, 2]}, "c": "d"}


def test_a_forged_token_has_the_claims_of_a_good_one_and_no_signature() -> None:
    assert forged("aGVhZA.Y2xhaW1z.c2ln").split(".")[1:] == ["Y2xhaW1z", ""]


# ---------------------------------------------------------------------------------------------------------- the findings

GOOD = Outcome(who="unauthenticated", what="GET /a", kind="exact", statuses=(401,), refused=True)


@pytest.mark.parametrize(
    ("outcome", "sort"),
    [
        (replace(GOOD, statuses=(500,)), "answered 500"),
        (replace(GOOD, statuses=(200, 502)), "answered 500"),
        (replace(GOOD, statuses=(200,), granted=True), "granted what the table refuses"),
        (replace(GOOD, shown=("a token",)), "showed a secret"),
        (replace(GOOD, statuses=(0,), unanswered=True), "did not answer"),
    ],
)
def test_each_sort_of_fault_is_found(outcome: Outcome, sort: str) -> None:
    findings = Findings()
    findings.take([GOOD, outcome])
    assert list(findings.faults) == [sort]
    assert summary(findings).startswith(f"{sort}: 1\n")


def test_what_is_refused_not_served_or_asked_to_come_again_is_no_fault() -> None:
    findings = Findings()
    statuses = (400, 401, 403, 404, 409, 413, 429, 501, 503)
    findings.take(replace(GOOD, statuses=(status,)) for status in statuses)
    findings.add(replace(GOOD, statuses=(200,), granted=True, refused=False))
    findings.add(replace(GOOD, kind="frames", messages=7, statuses=()))
    assert not findings.faults and findings.total == 17
    assert "never ended" in summary(findings)
    assert table(findings).splitlines()[1].split() == [
        "unauthenticated",
        "17",
        "1",
        "1",
        "1",
        "1",
        "1",
        "3",
        "1",
        "1",
        "1",
    ]


def test_the_table_tells_of_500() -> None:
    findings = Findings()
    findings.add(replace(GOOD, statuses=(500,)))
    assert table(findings).splitlines()[0].split()[-1] == "500"


def test_secrets_are_found_wherever_they_stand_in_an_answer() -> None:
    secrets = Secrets({"one": "a", "one-two": "b", "x(y": "c"})
    assert secrets.shown_in(b"... one-two ... x(y") == ("b", "c")
    assert secrets.shown_in(b"nothing") == ()


def test_each_difference_is_told_with_its_place() -> None:
    before = {"/a": '200 [{"n": 1, "kept": [1, 2]}]', "/b": "200 text", "/same": "404 [{}]"}
    after = {"/a": '200 [{"n": 2, "kept": [1, 3]}]', "/c": "200 [1]", "/same": "404 [{}]"}
    found = compare(before, after)
    assert found[0] == "/a: [1][0].kept[1] was 2 and is 3; [1][0].n was 1 and is 2"
    assert [each.split(":")[0] for each in found] == ["/a", "/b", "/c"]
    assert compare(before, before) == []
