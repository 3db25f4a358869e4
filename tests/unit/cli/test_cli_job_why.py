"""`det job explain` in words, and `det job schedule` without a master or anything that a master needs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from resolute.client.errors import MasterUnreachable
from resolute.client.queue import Queue
from resolute.client.session import Session
from resolute.wire.rest.enums import JobState
from resolute.wire.rest.experiments import JobSummary
from resolute.wire.rest.why import (
    BlockingAgent,
    BlockingWork,
    ExplainJobResponse,
    GetPoolStartsResponse,
    JobBlockers,
    JobStart,
    JobWhatIf,
    NamedWork,
    PoolStart,
)
from resolute_cli.invocation import Invocation
from resolute_cli.job_explain import explanation_lines
from resolute_cli.job_starts import Starts, pool_starts, start_cells
from resolute_cli.main import main
from resolute_cli.render import Renderer
from support.cli_messages import a_job

SNAPSHOT = {
    "policy": {"preemption": True},
    "agents": {"a1": 4},
    "jobs": {"low": {"priority": 90}},
    "tasks": {"old": {"job": "low", "on": {"a1": 4}}, "new": {"slots": 2}},
}


def det(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    environ = {"DET_MASTER": "127.0.0.1:1"}
    code = main(words, Invocation(environ=environ, render=Renderer(out, err), stdin=io.StringIO()))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(SNAPSHOT))
    return str(path)


def test_a_plan_is_printed_with_its_reasons(file: str) -> None:
    assert det("job", "schedule", "--snapshot", file) == (
        0,
        "Pool default at 2026-01-01T00:00:00+00:00:\n"
        "  preempt old: its slots go to new, which has priority 42 before 90\n"
        "  keep a1 (2 slot(s)) for new until the preempted allocations have ended\n"
        "Waiting:\n"
        "  new of job new: It waits for 2 slot(s) on a1: old must end first.\n",
        "",
    )


def test_changes_are_made_before_and_the_plan_is_json_for_programs(file: str) -> None:
    words = ("--set", "policy.preemption=false", "--set", "agents.a2=2", "--json")
    code, out, _ = det("job", "schedule", "--snapshot", file, *words)
    decided = json.loads(out)
    assert code == 0 and decided["preempt"] == [] and decided["waiting_count"] == 0
    assert decided["place"] == [{"job": "new", "on": {"a2": [0, 1]}, "reason": "next in the queue", "task": "new"}]


def test_a_job_of_the_file_is_explained(file: str) -> None:
    code, out, _ = det("job", "schedule", "--snapshot", file, "--set", "policy.preemption=false", "--explain", "new")
    assert code == 0
    assert out.splitlines()[0] == (
        "Job new is QUEUED: It waits for 2 slot(s): a1 is kept for it until enough of the work there has ended, and this "
        "pool does not preempt."
    )
    assert "  - old of job low, which holds 4 slot(s) on a1" in out
    assert "  - one more agent of 4 slot(s): now" in out


def test_a_job_that_the_file_lacks_is_told_with_those_that_it_has(file: str) -> None:
    code, _, err = det("job", "schedule", "--snapshot", file, "--explain", "2")
    assert (code, err) == (
        1,
        "Failed to run the scheduler on a snapshot, without a master: job '2' not found; the jobs with work "
        "in the file are low, new\n",
    )


@pytest.mark.parametrize(
    ("supply", "told"),
    [
        ({}, "request machines for new"),
        ({"room": 0}, "request no machines, although new could use some: the pool is at its maximum"),
        ({"room": 0, "reason": "its budget is used up"}, "although new could use some: its budget is used up"),
        (
            {"offers": {"big": {"slots": 8, "available": False}}},
            "although new could use some: none is offered for now",
        ),
    ],
)
def test_machines_are_asked_for_only_where_the_pool_may(tmp_path: Path, supply: dict[str, object], told: str) -> None:
    path = tmp_path / "pool.json"
    pool = {"tasks": {"new": {"slots": 8}}, "supply": {"offers": {"big": {"slots": 8}}, **supply}}
    path.write_text(json.dumps(pool))
    code, out, _ = det("job", "schedule", "--snapshot", str(path))
    assert code == 0 and told in out, out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read (No such file or directory); name a file"),
        ("{", "is not JSON"),
        (
            '{"agents": {"a": 4}, "tasks": {"r": {"slots": 2}, "r": {"slots": 4}}}',
            """the key 'r' occurs twice in one mapping (values {"slots": 2} and {"slots": 4}); rename or remove one of them""",
        ),
        pytest.param('{"agents": ' + "[" * 200_000, "lists and mappings are nested more than 16 deep", id="too deep"),
        ('{"agents": {"a": 1000000000}}', "they have 1000000000 slots in all ('a' alone 1000000000); at most 1048576"),
        ('{"agent": {}}', "<snapshot>.agent: is not a known key; did you mean 'agents'?"),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, content: str | None, told: str) -> None:
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    code, out, err = det("job", "schedule", "--snapshot", str(path))
    assert (code, out) == (1, "") and told in err


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As some editors write it."""
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(SNAPSHOT), encoding="utf-8-sig")
    code, out, err = det("job", "schedule", "--snapshot", str(path))
    assert (code, err) == (0, "") and "preempt old" in out


def test_nothing_that_serves_is_needed(file: str) -> None:
    """In a process of its own that cannot import what only the master's extra brings."""
    program = (
        "import sys\n"
        "for name in ('aiohttp', 'alembic', 'asyncpg', 'sqlalchemy', 'prometheus_client', 'psutil', 'jwt', 'uvloop'):\n"
        "    sys.modules[name] = None\n"
        "from resolute_cli.main import main\n"
        f"sys.exit(main(['job', 'schedule', '--snapshot', {file!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "preempt old" in done.stdout


def test_an_explanation_reads_from_the_reason_to_what_would_start_it() -> None:
    answer = ExplainJobResponse(
        job_id="j",
        state="QUEUED",
        reason="It waits.",
        details=("A fact.",),
        jobs_ahead=9,
        first_ahead=tuple(f"j{n}" for n in range(8)),
        blockers=JobBlockers(
            running=(BlockingWork(allocation_id="r.1", job_id="k", slots=2, agent_ids=("a", "b"), leaving=True),),
            running_count=1,
            ahead=("q.1", "q.2"),
            ahead_count=40,
            ahead_together=True,
            max_slots=4,
            agents=(BlockingAgent(agent_id="c", reason="is draining"),),
            blocked_agents=("d",),
        ),
        what_if=(
            JobWhatIf(change="priority", value="41", text="priority 41 instead of 42", after=("r.1",), after_count=1),
            JobWhatIf(change="slots", value="2", text="2 slot(s) instead of 4"),
        ),
        gave_up=("something",),
    )
    assert list(explanation_lines(answer)) == [
        "Job j is QUEUED: It waits.",
        "  - A fact.",
        "Ahead of it: j0, j1, j2, j3, j4, j5, j6, j7 and 1 more",
        "Blocked by the following; without all of it, the job would start now:",
        "  - its job's max_slots of 4",
        "  - agent c, which is draining",
        "  - agents that are blocked for it: d",
        "  - r.1 of job k, which is vacating 2 slot(s) on a, b",
        "  - 40 that would get the slots first (q.1, q.2 and 38 more)",
        "Changes that would start it:",
        "  - priority 41 instead of 42: when r.1 has saved and ended",
        "  - 2 slot(s) instead of 4: now",
        "Not determined: something.",
    ]


def test_the_experiment_of_an_id_is_told_at_its_first_mention() -> None:
    answer = ExplainJobResponse(
        job_id="j",
        state="QUEUED",
        reason="It waits for 2 slot(s) on a1: r.1 must end first.",
        first_ahead=("k", "kk"),
        jobs_ahead=2,
        blockers=JobBlockers(running=(BlockingWork(allocation_id="r.1", job_id="k", slots=2),), running_count=1),
        named=(
            NamedWork(id="j", experiment_id=3, name="mine"),
            NamedWork(id="r.1", experiment_id=2, name="theirs"),
            NamedWork(id="k", experiment_id=2, name="theirs"),
        ),
    )
    assert list(explanation_lines(answer)) == [
        "Job j (experiment 3, mine) is QUEUED: It waits for 2 slot(s) on a1: r.1 (experiment 2, theirs) must end first.",
        "Ahead of it: k (experiment 2, theirs), kk",
        "Blocked by the following; without all of it, the job would start now:",
        "  - r.1 of job k, which holds 2 slot(s) on no agent",
    ]


def test_the_expected_start_is_told_with_its_range_and_what_it_rests_on() -> None:
    at = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    known = JobStart(expected_at=at, earliest=at, latest=at.replace(hour=13), basis="20 simulations")
    answer = ExplainJobResponse(job_id="j", state="queued", reason="It waits.", start=known)
    assert (
        "Expected to start 2026-01-01 12:00:00+0000 (with 82 to 90 %: 2026-01-01 12:00:00+0000 to 2026-01-01 13:00:00+0000); "
        "based on 20 simulations."
    ) in list(explanation_lines(answer))
    assert start_cells(known) == ("2026-01-01 12:00:00+0000", "2026-01-01 12:00:00+0000 to 2026-01-01 13:00:00+0000")
    open_end = replace(known, latest=None)
    assert start_cells(open_end)[1].endswith("to later")
    unknown = replace(answer, start=JobStart(basis="only 3 run(s) have ended"))
    assert "No estimate of its start: only 3 run(s) have ended." in list(explanation_lines(unknown))
    assert start_cells(unknown.start) == ("unknown", "only 3 run(s) have ended")


def test_a_job_that_came_after_its_pool_was_foreseen_is_told_so() -> None:
    waits = JobSummary(jobs_ahead=0, state=JobState.QUEUED)
    known, late, elsewhere = (replace(a_job(), job_id=id_, summary=waits) for id_ in ("known", "late", "elsewhere"))
    runs = replace(late, summary=replace(waits, state=JobState.SCHEDULED))
    start = PoolStart(job_id="known", allocation_id="k.1", start=JobStart(basis="only 3 run(s) have ended"))
    found = Starts(answers={late.resource_pool: GetPoolStartsResponse(starts=(start,))})
    assert found.cells([known, late, runs, replace(elsewhere, resource_pool="failed"), None]) == [
        ("unknown", "only 3 run(s) have ended"),
        ("no estimate yet", "try again in a few seconds"),
        ("", ""),
        ("", ""),
        ("", ""),
    ]


def test_a_list_is_not_held_up_by_a_master_that_does_not_tell_starts() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path.split("/")[-2])
        if asked[-1] == "busy":
            return httpx.Response(503, json={"error": {"code": 14, "reason": "Unavailable", "error": "busy"}})
        if asked[-1] == "slow":
            raise httpx.ReadTimeout("too slow", request=request)
        return httpx.Response(200, json={"starts": []})

    session = Session("http://master", transport=httpx.MockTransport(answer), pause=lambda _: None)
    waits = JobSummary(jobs_ahead=0, state=JobState.QUEUED)
    jobs = [replace(a_job(), resource_pool=pool, summary=waits) for pool in ("busy", "fine", "slow", "later")]
    found = pool_starts(Queue(session), jobs, needed=False)
    # Each once, and nobody after the one that took so long.
    assert asked == ["busy", "fine", "slow"]
    assert set(found.answers) == {"fine"} and found.failures["busy"] == "busy" and "too slow" in found.failures["slow"]
    asked.clear()
    with pytest.raises(MasterUnreachable):
        pool_starts(Queue(session), jobs[1:], needed=True)
    assert asked[0] == "fine" and asked[1:] == ["slow"] * 6
