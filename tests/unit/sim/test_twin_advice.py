"""What other machine types and settings would save, by playing jobs."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from resolute.errors import InvalidInput, Unavailable
from resolute_cli.main import main
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import Fitting, PoolPolicy
from resolute_master.forecast.advice import Question
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.catalogue import shipped
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling, SpotFallback
from resolute_sim.twin.advice import advise, changes, other_sizes
from resolute_sim.twin.advisor import ProcessAdvisor
from resolute_sim.twin.advisor_process import answer

LARGE = Offer(
    offer_id="aws/us-east-1a/g5.48xlarge/on_demand",
    instance_type="g5.48xlarge",
    zone="us-east-1a",
    region="us-east-1",
    market=Market.ON_DEMAND,
    slots=8,
    price_per_hour=16.288,
)
SCALING = PoolScaling(pool="p", offers=(LARGE,), max_instances=4, consolidation=Consolidation())
SMALL_JOBS = tuple(
    TraceJob(job_id=f"j{n}", submit_s=3000.0 * n, duration_s=2000.0, slots=1, group="g") for n in range(20)
)


def policy(scaling: PoolScaling) -> PoolPolicy:
    return PoolPolicy(name=PoolName("p"), scaling=scaling)


def test_smaller_machines_of_the_family_save_what_single_slots_leave_empty() -> None:
    found = advise(policy(SCALING), SMALL_JOBS, shipped("aws"))
    first = found.savings[0]
    assert first.key == "offers" and "g5.xlarge" in first.value and "max_instances: 32" in first.value
    assert 0.5 < first.share < 1.0
    assert first.saves_a_month == pytest.approx(first.share * found.cost_a_month)
    assert abs(first.wait_mean_s - found.wait_mean_s) < 180.0
    assert first.now == "instance_types: [g5.48xlarge], and max_instances: 4"
    assert {each.key for each in found.savings} == {"offers", "max_idle_agent_period"}


def test_other_sizes_are_of_the_family_and_cost_something() -> None:
    found = other_sizes(SCALING, shipped("aws"))
    assert [(offer.instance_type, offer.slots) for offer in found] == [("g5.xlarge", 1), ("g5.12xlarge", 4)]
    assert {offer.offer_id for offer in found} == {
        "aws/us-east-1a/g5.xlarge/on_demand",
        "aws/us-east-1a/g5.12xlarge/on_demand",
    }
    several = replace(SCALING, offers=(LARGE, found[0]))
    assert other_sizes(several, shipped("aws")) == ()


def test_only_what_the_pool_does_not_have_yet_is_tried() -> None:
    spot = replace(LARGE, offer_id="s", market=Market.SPOT)
    bare = PoolScaling(pool="p", offers=(LARGE, spot), min_instances=1, max_idle_cost=1.0)
    keys = [each.key for each in changes(policy(bare), shipped("local"))]
    assert keys == [
        "consolidation",
        "max_idle_agent_period",
        "spot_fallback.return_after",
        "min_instances",
        "max_idle_cost",
    ]
    ours = replace(SCALING, idle_learnt=True, spot_fallback=SpotFallback(return_after_s=600.0), offers=(LARGE, spot))
    assert list(changes(policy(ours), shipped("local"))) == []
    spread = replace(policy(ours), fitting=Fitting.WORST)
    (change,) = changes(spread, shipped("local"))
    assert (change.key, change.now, change.value) == ("scheduler.fitting_policy", "worst", "best")
    assert change.pool == policy(ours)


def test_machines_that_stay_are_paid_for_all_the_days_that_the_jobs_are_the_work_of() -> None:
    kept = PoolScaling(pool="p", offers=(LARGE,), min_instances=1, idle_learnt=True, consolidation=Consolidation())
    found = advise(policy(kept), SMALL_JOBS, days=10.0)
    assert found.days == 10.0
    # One machine always, and hardly ever a second one: the jobs come one after another.
    assert found.cost_a_month == pytest.approx(16.288 * 24 * 30, rel=0.02)
    (saved,) = found.savings
    assert (saved.key, saved.now, saved.value) == ("min_instances", "1", "0")
    # The jobs have work for less than a day of the ten.
    assert 0.9 < saved.share < 1.0 and saved.saves_a_month == pytest.approx(saved.share * found.cost_a_month)
    assert saved.wait_mean_s > found.wait_mean_s
    # A short history counts as a day: the machine stays for all of it.
    short = advise(policy(kept), SMALL_JOBS[:1], days=0.01)
    assert short.days == 0.01 and short.cost_a_month == pytest.approx(16.288 * 24 * 30, rel=0.02)


def test_at_most_five_changes_are_told_and_the_largest_first() -> None:
    spot = replace(LARGE, offer_id="s", market=Market.SPOT)
    bare = PoolScaling(pool="p", offers=(LARGE, spot), min_instances=1, max_idle_cost=100.0)
    spread = replace(policy(bare), fitting=Fitting.WORST)
    found = advise(spread, SMALL_JOBS, days=1.0)
    assert len(list(changes(spread, shipped("local")))) == 6
    assert found.played == 6 and len(found.savings) <= 5
    saved = [each.saves_a_month for each in found.savings]
    assert saved and saved == sorted(saved, reverse=True)


async def test_another_process_plays_the_history(tmp_path: Path) -> None:
    question = Question(pool=policy(SCALING), jobs=SMALL_JOBS, days=1.0, catalogue=shipped("aws"), boot_s=180.0)
    found = await ProcessAdvisor(os.environ)(question)
    assert found == advise(policy(SCALING), SMALL_JOBS, shipped("aws"), boot_s=180.0, days=1.0)
    with pytest.raises(InvalidInput, match="can hold none of the 1 jobs") as refusal:
        answer(replace(question, jobs=(replace(SMALL_JOBS[0], slots=1000),)))
    (tmp_path / "refusal").write_bytes(pickle.dumps(str(refusal.value)))
    with pytest.raises(InvalidInput, match="can hold none of the 1 jobs"):
        await ProcessAdvisor(os.environ, command=("cat", str(tmp_path / "refusal")))(question)


async def test_a_simulation_that_takes_too_long_is_ended() -> None:
    question = Question(pool=policy(SCALING), jobs=SMALL_JOBS, days=1.0, catalogue=shipped("aws"), boot_s=180.0)
    with pytest.raises(Unavailable, match="was ended: it took longer"):
        await ProcessAdvisor(os.environ, command=("sleep", "60"), limit_s=0.05)(question)
    with pytest.raises(Unavailable, match="was ended"):
        await ProcessAdvisor(os.environ, command=("sh", "-c", "kill -XCPU $$"))(question)
    with pytest.raises(Unavailable, match="has failed"):
        await ProcessAdvisor(os.environ, command=("false",))(question)


def test_the_process_has_limits_of_its_own() -> None:
    body = """
import resource
from resolute_sim.twin import advisor_process as process
process.limit()
assert resource.getrlimit(resource.RLIMIT_CPU)[0] == process.ADVICE_CPU_S
try:
    bytearray(process.ADVICE_MEMORY_BYTES)
except MemoryError:
    print("no more")
"""
    found = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=True)
    assert found.stdout == "no more\n"


async def test_the_process_is_given_no_secret_of_the_master(tmp_path: Path) -> None:
    question = Question(pool=policy(SCALING), jobs=SMALL_JOBS, days=1.0, catalogue=shipped("aws"), boot_s=180.0)
    environ = {**os.environ, "DET_DB_PASSWORD": "hidden"}
    command = ("sh", "-c", f"env > {tmp_path}/env; exit 1")
    with pytest.raises(Unavailable):
        await ProcessAdvisor(environ, command=command)(question)
    told = (tmp_path / "env").read_text()
    assert f"PATH={os.environ['PATH']}" in told and "hidden" not in told


def test_jobs_that_the_pool_of_today_can_never_hold_are_left_out() -> None:
    huge = replace(SMALL_JOBS[0], job_id="huge", slots=1000)
    question = Question(
        pool=policy(SCALING), jobs=(huge, *SMALL_JOBS), days=1.0, catalogue=shipped("aws"), boot_s=180.0
    )
    found = answer(question)
    assert (found.jobs, found.left_out) == (len(SMALL_JOBS), 1)


def test_a_pool_without_prices_is_refused() -> None:
    unknown = replace(SCALING, offers=(replace(LARGE, price_per_hour=None),))
    with pytest.raises(InvalidInput, match="no price of its offers is known"):
        advise(policy(unknown), SMALL_JOBS)


POOL = """
pool_name: old
provider:
  type: aws
  region: us-east-1
  image_id: ami-0abc0abc
  ssh_key_name: k
  instance_type: g5.48xlarge
  max_instances: 4
  network_interface: {subnet_id: subnet-0abc0abc, security_group_id: sg-0abc0abc}
"""


def test_validate_says_what_other_types_would_save_by_the_past_of_the_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(POOL)
    rows = "".join(f"{job.job_id},{job.submit_s},{job.duration_s},1,g\n" for job in SMALL_JOBS)
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,duration_s,slots,group\n" + rows)
    assert main(["pool", "validate", str(tmp_path / "pool.yaml"), "--jobs", str(tmp_path / "jobs.csv")]) == 0
    told = capsys.readouterr().out
    assert "In a simulation of the 20 jobs of" in told
    assert main(["pool", "validate", str(tmp_path / "pool.yaml"), "--jobs", str(tmp_path / "jobs.csv"), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["pool"] == "old" and shown["savings"]["jobs"] == 20
    assert [each["key"] for each in shown["savings"]["savings"]] == ["offers"]
    assert "offers: instance_types: [g5.12xlarge, g5.48xlarge, g5.xlarge], and max_instances: 32 saves" in told
