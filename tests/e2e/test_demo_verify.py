"""The demonstration's judge: it believes a right run, and every way of cheating is caught by the claim that it breaks."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import demo
import psutil
import pytest
from demo.claims import UNREPORTED_STEPS, Claim, judge
from demo.director import Order, Plot, decide
from demo.evidence import Evidence, living_processes, read_evidence
from demo.pictures import Picture
from demo.scenario import CUTS
from demo.verify import report_result
from demo.view import sparkline

from resolute.wire.rest.enums import WireTaskState, WireTrialState
from resolute.wire.rest.extensions import TrialAllocation
from resolute.wire.rest.trials import Trial
from support.demo_run import START, a_demo_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_demo_run(tmp_path)


def broken(evidence: Evidence) -> list[str]:
    return [claim.text for claim in judge(evidence) if not claim.holds]


def test_a_right_run_is_believed(root: Path) -> None:
    claims = judge(read_evidence(root, master_may_live=False))
    assert [claim for claim in claims if not claim.holds] == []
    assert len(claims) >= 20
    assert all(claim.seen for claim in claims)


def observed(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = root / "observed" / "final.json"
    seen = json.loads(path.read_text())
    change(seen)
    path.write_text(json.dumps(seen))


def edited(path: Path, **changes: Any) -> None:
    """The file's time stays."""
    times = path.stat()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def written(path: Path, after_s: float) -> None:
    """As if it had been written so many seconds after the start."""
    moment = START.timestamp() + after_s
    os.utime(path, (moment, moment))


def the_experiment_failed(root: Path) -> None:
    observed(root, lambda seen: seen["experiment"].update(state="STATE_ERROR"))


def it_learnt_nothing(root: Path) -> None:
    observed(root, lambda seen: seen["validation"][0]["metrics"]["validation_metrics"].update(accuracy=0.9))


def nothing_was_refused(root: Path) -> None:
    edited(root / "pools/default/cloud.json", launch_requests=3)


def one_machine_served_two_runs(root: Path) -> None:
    observed(root, lambda seen: seen["allocations"][2].update(instanceIds=["m-2"]))


def it_had_saved_before_the_notice(root: Path) -> None:
    written(root / "pools/default/instances/m-1/notice.json", 13)


def it_saved_after_the_deadline(root: Path) -> None:
    written(root / "checkpoints/cccc-4/manifest.json", 22)


def it_resumed_one_step_too_early(root: Path) -> None:
    observed(root, lambda seen: seen["allocations"][1].update(stepsAtStart=3))


def it_resumed_one_step_too_late(root: Path) -> None:
    def drop(seen: dict[str, Any]) -> None:
        seen["training"] = [r for r in seen["training"] if (r["trialRunId"], r["totalBatches"]) != (2, 5)]

    observed(root, drop)


def the_killed_machine_was_told(root: Path) -> None:
    source = root / "pools/default/instances/m-1/notice.json"
    (root / "pools/default/instances/m-2/notice.json").write_text(source.read_text())


def it_resumed_from_an_older_checkpoint(root: Path) -> None:
    edited(root / "checkpoints/cccc-12/manifest.json", parent="cccc-4")


def a_periodic_checkpoint_lay_at_the_cut(root: Path) -> None:
    observed(root, lambda seen: seen["experiment"]["config"].update(min_checkpoint_period={"batches": 4}))


def a_loss_differs_in_its_last_bit(root: Path) -> None:
    def nudge(seen: dict[str, Any]) -> None:
        metrics = seen["training"][-1]["metrics"]["avg_metrics"]
        metrics["loss"] += 1e-17

    observed(root, nudge)


def an_archived_loss_differs(root: Path) -> None:
    def nudge(seen: dict[str, Any]) -> None:
        archived = next(report for report in seen["training"] if report["archived"])
        archived["metrics"]["avg_metrics"]["loss"] += 1e-9

    observed(root, nudge)


def the_other_run_had_another_seed(root: Path) -> None:
    edited(root / "reference/reference.json", seed=8)


def a_second_vanished_from_the_ledger(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["instances"][0]["row"].update(idleS=0.0))


def a_machine_is_missing_in_the_ledger(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["instances"].pop())


def the_bill_is_for_less_time(root: Path) -> None:
    edited(root / "pools/default/instances/m-3/gone.json", at=START.replace(minute=2).isoformat())


def it_is_cheaper_than_its_price(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["instances"][1].update(pricePerHour=7.2))


def an_interruption_was_left_out(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["interruptions"].pop(0))


def fewer_steps_are_said_to_be_lost(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["interruptions"][1].update(stepsLost=2))


def steps_are_invented(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["interruptions"][1].update(stepsLost=3 + UNREPORTED_STEPS + 1))


def a_notice_cost_a_step(root: Path) -> None:
    observed(root, lambda seen: seen["ledger"]["interruptions"][0].update(stepsLost=1))


def a_checkpoint_was_changed_afterwards(root: Path) -> None:
    edited(root / "checkpoints/cccc-6/trainer.json", more="bytes")


def a_machine_still_runs(root: Path) -> None:
    (root / "pools/default/instances/m-3/gone.json").unlink()


CHEATS: tuple[tuple[Callable[[Path], None], str], ...] = (
    (the_experiment_failed, "the experiment completed"),
    (it_learnt_nothing, "validation accuracy"),
    (nothing_was_refused, "the first launch was refused"),
    (one_machine_served_two_runs, "each on a machine of its own"),
    (it_had_saved_before_the_notice, "the notice came before the save"),
    (it_saved_after_the_deadline, "the save before the deadline"),
    (it_resumed_one_step_too_early, "exactly the saved step"),
    (it_resumed_one_step_too_late, "exactly the saved step"),
    (the_killed_machine_was_told, "went on from the last checkpoint"),
    (it_resumed_from_an_older_checkpoint, "resumed from the last checkpoint"),
    (a_periodic_checkpoint_lay_at_the_cut, "no cut lies on it"),
    (a_loss_differs_in_its_last_bit, "losses of run 3"),
    (an_archived_loss_differs, "losses of run 2"),
    (the_other_run_had_another_seed, "the same seed"),
    (a_second_vanished_from_the_ledger, "sum to the paid time"),
    (a_machine_is_missing_in_the_ledger, "the totals are the sums"),
    (the_bill_is_for_less_time, "the machines' own files"),
    (it_is_cheaper_than_its_price, "the price is"),
    (an_interruption_was_left_out, "the ledger knows each interruption"),
    (fewer_steps_are_said_to_be_lost, "those that were done again"),
    (steps_are_invented, "those that were done again"),
    (a_notice_cost_a_step, "with notice are 0"),
    (a_checkpoint_was_changed_afterwards, "every checkpoint file"),
    (a_machine_still_runs, "zero machines"),
)


@pytest.mark.parametrize(("cheat", "claim"), CHEATS, ids=[cheat.__name__ for cheat, _ in CHEATS])
def test_cheating_is_caught_by_the_claim_that_it_breaks(root: Path, cheat: Callable[[Path], None], claim: str) -> None:
    cheat(root)
    failed = broken(read_evidence(root, master_may_live=False))
    assert any(claim in text for text in failed), failed


def test_a_check_without_evidence_fails_with_the_reason(root: Path) -> None:
    evidence = replace(read_evidence(root, master_may_live=False), allocations=())
    failed: list[Claim] = [claim for claim in judge(evidence) if not claim.holds]
    assert any("the evidence is not there" in claim.seen for claim in failed)


def test_the_result_is_the_exit_code(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_result(root, kept=False) == 0
    assert "FAILED" not in capsys.readouterr().out
    a_loss_differs_in_its_last_bit(root)
    assert report_result(root, kept=False) == 1
    assert "FAILED  losses of run 3" in capsys.readouterr().out
    (root / "observed" / "final.json").unlink()
    assert report_result(root, kept=False) == 2


def test_a_process_of_a_machine_is_found_by_its_marker_and_by_the_folder(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    marked = subprocess.Popen(sleeper, env={**os.environ, "RESOLUTE_INSTANCE": f"m-of-{os.getpid()}"})
    placed = subprocess.Popen(sleeper, cwd=tmp_path)
    stranger = subprocess.Popen(sleeper)
    try:
        # Popen returns when the program was started: what it was started with can be seen.
        assert all(psutil.pid_exists(process.pid) for process in (marked, placed, stranger))
        found = living_processes(tmp_path, [f"m-of-{os.getpid()}"], master_may_live=False)
        assert sorted(int(text.split(":")[0]) for text in found) == sorted([marked.pid, placed.pid])
    finally:
        for process in (marked, placed, stranger):
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("module", ["verify", "claims", "evidence"])
def test_the_judge_uses_nothing_of_what_it_judges(module: str) -> None:
    path = Path(demo.__file__).parent / f"{module}.py"
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    foreign = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert foreign <= {"psutil", "demo.claims", "demo.evidence"}


# ----------------------------------------------------------------------------------------------------------- the director


def a_picture(steps: int, *machines: str, state: WireTaskState = WireTaskState.RUNNING) -> Picture:
    """The trial has done so many steps; it ran on these machines one after the other, and runs on the last of them."""
    trial = Trial(
        experiment_id=1,
        hparams={},
        id=1,
        restarts=0,
        start_time=START,
        state=WireTrialState.RUNNING,
        total_batches_processed=steps,
    )
    runs = tuple(TrialAllocation(allocation_id=f"1.t.{m}", state=state, instance_ids=(m,)) for m in machines)
    return Picture(state="ACTIVE", trial=trial, allocations=runs)


def test_each_cut_comes_once_at_its_step_and_on_a_machine_of_its_own() -> None:
    first, second = CUTS
    plot = Plot()
    assert decide(plot, a_picture(first.after_steps - 1, "a")) == (plot, None)
    assert decide(plot, a_picture(first.after_steps)) == (plot, None)
    assert decide(plot, a_picture(first.after_steps, "a", state=WireTaskState.STARTING)) == (plot, None)
    plot, order = decide(plot, a_picture(first.after_steps, "a"))
    assert order == Order(instance_id="a", cut=first)
    assert decide(plot, a_picture(second.after_steps, "a")) == (plot, None)  # still saving on the first machine
    plot, order = decide(plot, a_picture(second.after_steps + 3, "a", "b"))
    assert order == Order(instance_id="b", cut=second)
    assert decide(plot, a_picture(10_000, "a", "b", "c")) == (plot, None)


def test_a_sparkline_has_its_height_from_the_values() -> None:
    assert sparkline([]) == ""
    assert sparkline([1.0]) == "▁"
    assert sparkline([0.0, 7.0, 3.5]) == "▁█▅"
    assert len(sparkline([float(i) for i in range(1000)], width=40)) == 40
