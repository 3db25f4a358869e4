"""What `det simulate` writes: JSON with every figure, and one page that loads nothing."""

from __future__ import annotations

import io
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from resolute_sim.twin.page import LABEL, Mark, _scale, _trade

POOL = """
pool_name: small
provider:
  type: local
  slots_per_instance: 2
  max_instances: 3
  price_per_hour: 1.2
  max_idle_agent_period: 5m
  max_idle_cost: 0.2
  consolidation: {margin: 3}
"""
JOBS = "job_id,submit_s,duration_s,slots,group\na,0,600,1,x\nb,30,900,2,<y>\nc,4000,100,4,x\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def _simulate(files: Path, *more: str) -> int:
    return main(["simulate", "--pool", str(files / "pool.yaml"), "--jobs", str(files / "jobs.csv"), *more])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


FIGURES = {
    "cost",
    "cost_lower_bound",
    "excess",
    "cost_useful",
    "cost_repeated",
    "cost_boot",
    "cost_empty",
    "cost_half_empty",
    "wait_mean_s",
    "wait_median_s",
    "wait_p90_s",
    "wait_p95_s",
    "wait_max_s",
    "jct_ratio",
    "utilisation",
    "goodput",
    "interruptions",
    "lost_slot_s",
    "launches",
    "jobs_completed",
    "jobs_failed",
    "jobs_stopped",
    "deadlines_missed",
    "decision_cpu_s",
    "digest",
}


def test_the_figures_of_each_policy_are_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = files / "out.json"
    assert _simulate(files, "--policy", "resolute", "--policy", "static", "--processes", "1", "--json", str(out)) == 0
    report = json.loads(out.read_text())
    assert list(report["policies"]) == ["resolute", "static"] and report["job_count"] == 3
    for figures in report["policies"].values():
        assert set(figures) == FIGURES and figures["jobs_completed"] == 3
    ours = report["policies"]["resolute"]
    assert ours["cost_lower_bound"] == pytest.approx((600 + 1800 + 400) / 3600 * 0.6)
    table = capsys.readouterr().out
    assert "resolute" in table and "static" in table and ours["digest"][:10] in table


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_error_stream_has_a_line_when_a_policy_begins_and_when_it_ends(
    files: Path, processes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _simulate(files, "--policy", "packing", "--policy", "static", "--processes", processes) == 0
    told = capsys.readouterr().err.splitlines()
    for policy in ("packing", "static"):
        mine = [line for line in told if line.startswith(f"{policy}: ")]
        assert len(mine) == 2 and mine[0] == f"{policy}: simulates 3 job(s)" and "simulated 0." in mine[1]
    assert len(told) == 4


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = files / "out.html"
    assert _simulate(files, "--policy", "packing", "--html", str(out)) == 0
    text = out.read_text()
    tags = _Tags()
    tags.feed(re.sub(r"<(rect|line|circle|polyline|polygon)\b[^>]*/>", "", text))
    assert tags.open == [] and tags.loaded == [] and "@import" not in text and "url(" not in text
    assert all(name in text for name in FIGURES)
    # a and b, then two for c of four slots: one bar for the boot, one for the rest.
    assert text.count("<rect") >= 2 * 3


@pytest.mark.parametrize("notice_s", ["120", "0"])
def test_every_machine_that_was_taken_back_is_red(
    files: Path, notice_s: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "pool.yaml").write_text(POOL + "  spot_price_per_hour: 0.3\n")
    trace = {"kind": "availability", "gap_seconds": 60, "rle": [[1, 8], [0, 100]], "offer": "local/spot"}
    (files / "spot.json").write_text(json.dumps(trace))
    out = files / "out"
    said = ("--spot", str(files / "spot.json"), "--notice", notice_s, "--json", f"{out}.json", "--html", f"{out}.html")
    assert _simulate(files, *said) == 0
    figures = json.loads(Path(f"{out}.json").read_text())["policies"]["resolute"]
    assert figures["interruptions"] > 0
    assert '"#c0392b"' in Path(f"{out}.html").read_text()


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--policy", "best"), 1, "--policy: 'best' is not known; use one of: resolute"),
        (
            ("--first-day", "7"),
            1,
            "has no job between --first-day and --last-day; its jobs are submitted between the days 0 and 0.0463",
        ),
        (("--resource-pool", "smal"), 1, "there is no pool 'smal'; did you mean 'small'"),
        (("--processes", "0"), 2, "--processes: must be 1 to 64, and is 0"),
        (("--checkpoint-every", "0"), 2, "--checkpoint-every: must be above 0"),
        (("--boot", "-1"), 2, "must be a number that is at least 0"),
        (("--spot", "none.json"), 1, "none.json cannot be read"),
        (("--policy", "static", "--policy", "static"), 2, "--policy: 'static' is given 2 times; give each policy once"),
        (("--journal", "j.db"), 2, "--pool does not go with --journal"),
        (("--config-file", "m.yaml"), 2, "--config-file goes with --journal only"),
        (("--html", "/no/such/place.html"), 1, "--html: /no/such/place.html cannot be written"),
    ],
)
def test_wrong_calls_are_told_what_to_do(
    files: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], code: int, said: str
) -> None:
    assert _simulate(files, *more) == code
    assert said in capsys.readouterr().err


def test_what_could_not_be_written_is_refused_before_anything_is_played(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is read either: the file of jobs is not even there."""
    (files / "jobs.csv").unlink()
    same = str(files / "out")
    for more, said in (
        (("--json", str(files)), f"--json: {files} is a directory; name a file in it"),
        (("--html", f"{files}/no/out.html"), f"there is no directory {files}/no"),
        (("--json", str(files / "pool.yaml")), "is the file of --pool, and would be overwritten; name another file"),
        (("--html", str(files / "jobs.csv")), "is the file of --jobs, and would be overwritten; name another file"),
        (("--json", same, "--html", same), f"--html: {same} is the file of --json, too"),
    ):
        assert _simulate(files, *more) == 1
        said_now = capsys.readouterr().err
        assert said in said_now and "simulates" not in said_now
    assert not Path(same).exists()


def test_a_terminal_shows_how_many_jobs_have_ended(files: Path) -> None:
    out, err = Terminal(), Terminal()
    words = ("simulate", "--pool", str(files / "pool.yaml"), "--jobs", str(files / "jobs.csv"))
    assert main(words, Invocation(environ={}, render=Renderer(out, err), stdin=io.StringIO())) == 0
    assert "jobs" in err.getvalue() and "3/3" in err.getvalue()
    # The bar is erased before a line of text, and drawn again below it.
    assert "\x1b[2Kresolute: simulates 3 job(s)\n" in err.getvalue()
    assert all(
        title in out.getvalue() for title in ("Useful", "Boot", "Empty", "Half-Empty", "90% Wait", "Longest Wait")
    )


def test_other_settings_of_the_pool_are_simulated_for_the_frontier(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a price for waiting machines the two short jobs of the far end need a boot each, and with one they need one."""
    (files / "jobs.csv").write_text("job_id,submit_s,duration_s,slots,group\na,0,600,2,x\nb,4000,600,2,x\n")
    out = files / "out"
    assert _simulate(files, "--frontier", "--processes", "1", "--json", f"{out}.json", "--html", f"{out}.html") == 0
    found = {each["setting"]: each for each in json.loads(Path(f"{out}.json").read_text())["frontier"]}
    assert list(found) == [
        *("as it is", "max_idle_cost: null", "max_idle_cost: 0.6"),
        *("max_idle_cost: 1.2", "max_idle_cost: 2.4", "max_idle_cost: 4.8", "consolidation: null"),
    ]
    assert found["max_idle_cost: null"]["launches"] == 2 and found["max_idle_cost: 1.2"]["launches"] == 1
    cheap, warm = found["max_idle_cost: null"], found["max_idle_cost: 1.2"]
    assert cheap["on_frontier"] and warm["on_frontier"] and not found["max_idle_cost: 4.8"]["on_frontier"]
    assert "Frontier" in capsys.readouterr().out and "<h2>Frontier</h2>" in Path(f"{out}.html").read_text()


def test_labels_of_marks_that_lie_together_do_not_cover_each_other() -> None:
    marks = [Mark(name=name, excess=4.0, wait_s=80.0, colour="#000") for name in ("a", "b", "c")]
    heights = [float(y) for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)" text-anchor="start">[abc]<', _trade(marks))]
    assert len(heights) == 3 and all(upper - lower > LABEL - 0.1 for upper, lower in pairwise(heights))


def test_an_axis_of_days_of_waiting_has_short_labels() -> None:
    text = _trade([Mark(name="a", excess=4.0, wait_s=100_000.0, colour="#000")])
    assert "mean wait, h" in text and not re.search(r">[\d,]{6,}<", text)


def test_a_static_fleet_does_not_squeeze_the_scale_of_the_others() -> None:
    assert _scale([3.7, 4.1, 29.9, 34.3, 281.3]) == 34.3
    assert _scale([0.0, 0.0]) == 0.0 and _scale([0.0, 77.0, 98.0]) == 98.0


def test_the_part_from_the_first_day_on_is_played(files: Path) -> None:
    (files / "jobs.csv").write_text("job_id,submit_s,duration_s,slots,group\nold,0,600,1,x\nnew,90000,600,1,x\n")
    assert _simulate(files, "--first-day", "1", "--json", str(files / "part.json")) == 0
    told = json.loads((files / "part.json").read_text())
    assert told["job_count"] == 1 and told["policies"]["resolute"]["jobs_completed"] == 1


@pytest.mark.parametrize(
    "flag", ["--seed", "--boot", "--notice", "--restart", "--save", "--checkpoint-every", "--processes", "--first-day"]
)
def test_what_a_recorded_journal_would_ignore_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--journal", "j.db", flag, "0"]) == 2
    assert f"{flag} does not go with --journal" in capsys.readouterr().err


def test_a_pool_that_never_grows_and_a_job_that_never_fits_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (files / "jobs.csv").write_text(JOBS + "wide,1,1,16,x\n")
    assert _simulate(files) == 1
    assert "job 'wide' asks for 16 slots" in capsys.readouterr().err
    (files / "pool.yaml").write_text(POOL.replace("slots_per_instance: 2", "slots_per_instance: 200000"))
    assert _simulate(files) == 1
    assert (
        "a machine of pool 'small' has 200000 slots, and a simulation takes 100000 at most" in capsys.readouterr().err
    )
    (files / "pool.yaml").write_text("pool_name: small\nprovider: null\n")
    assert _simulate(files) == 1
    assert "no pool of it has a provider" in capsys.readouterr().err


def test_without_a_pool_or_a_journal_the_call_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate"]) == 2
    assert "--pool" in capsys.readouterr().err
