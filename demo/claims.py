"""The claims of the demonstration, as pure checks of the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from demo.evidence import Evidence, Json, Machine, SavedCheckpoint, moment

ACCURACY = 0.9
MACHINES = 3
PARTS = ("usefulS", "startingS", "checkpointingS", "lostS", "idleS")
SUM_TOLERANCE_S = 1e-6
"""Tolerance of floating-point sums in another order."""
BILL_TOLERANCE_S = 0.01
"""Tolerance per machine between the API and the machines' files, because times are rounded."""
UNREPORTED_STEPS = 25
"""Maximum number of unreported steps of a machine without notice: its last reports are lost, while its marks of steps may be ahead.
This number of steps takes more than a second and a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim: its text, whether it holds, and the observed values."""

    text: str
    holds: bool
    seen: str


Check = Callable[[Evidence], Iterator[Claim]]


def judge(evidence: Evidence) -> list[Claim]:
    """Every claim. A check without evidence fails with the reason."""
    claims: list[Claim] = []
    for check in CHECKS:
        try:
            claims.extend(check(evidence))
        except (LookupError, TypeError, ValueError) as error:
            text = (check.__doc__ or check.__name__).strip()
            claims.append(Claim(text=text, holds=False, seen=f"the evidence is not there: {error!r}"))
    return claims


# ----------------------------------------------------------------------------------------------------- reading evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A run that ended with its machine, the run after it, and the machine."""

    run: Json
    next_run: Json
    machine: Machine

    @property
    def noticed(self) -> bool:
        return self.machine.notice is not None


def cuts(evidence: Evidence) -> list[Cut]:
    machines = {machine.id: machine for machine in evidence.machines}
    return [
        Cut(run=run, next_run=following, machine=machines[run["instanceIds"][0]])
        for run, following in pairwise(evidence.allocations)
    ]


def noticed_cut(evidence: Evidence) -> Cut:
    return _one(evidence, noticed=True)


def unnoticed_cut(evidence: Evidence) -> Cut:
    return _one(evidence, noticed=False)


def _one(evidence: Evidence, *, noticed: bool) -> Cut:
    found = [cut for cut in cuts(evidence) if cut.noticed == noticed]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} runs ended with their machine {'with' if noticed else 'without'} notice, not one"
        )
    return found[0]


def saved_by(evidence: Evidence, run: Json) -> list[SavedCheckpoint]:
    return [one for one in evidence.saved if one.run == run["runId"]]


def saved_before(evidence: Evidence, end: datetime) -> list[SavedCheckpoint]:
    return [one for one in evidence.saved if one.published_at <= end]


def reported_steps(evidence: Evidence, run: Json) -> list[int]:
    return [report.step for report in evidence.reports if report.run == run["runId"]]


def end_of(machine: Machine) -> datetime:
    if machine.paid_until is None:
        raise ValueError(f"machine {machine.id} has not ended")
    return machine.paid_until


def short(time: datetime) -> str:
    return f"{time:%H:%M:%S.%f}"[:-3]


# -------------------------------------------------------------------------------------------------------------- checks


def completed(evidence: Evidence) -> Iterator[Claim]:
    """the experiment completed, and the model reads"""
    state = str(evidence.experiment["state"])
    yield Claim(text="the experiment completed", holds=state == "STATE_COMPLETED", seen=state)
    accuracy = evidence.accuracy
    holds = accuracy is not None and accuracy > ACCURACY
    yield Claim(text=f"validation accuracy is above {ACCURACY}", holds=holds, seen=f"{accuracy}")


def first_launch_refused(evidence: Evidence) -> Iterator[Claim]:
    """the first launch was refused for capacity"""
    first = min(evidence.instances, key=lambda one: moment(one["requestedAt"]))
    requests, machines = evidence.launch_requests, len(evidence.machines)
    decided = [one for one in evidence.decisions if one["kind"] == "refused"]
    yield Claim(
        text="the first launch was refused for capacity, and only that one",
        holds=first["state"] == "refused"
        and first["id"] not in {machine.id for machine in evidence.machines}
        and requests == machines + 1
        and [one["subject"] for one in decided] == [first["id"]]
        and "no_capacity" in decided[0]["reason"],
        seen=f"{first['id']} is {first['state']} ({decided[0]['reason'] if decided else 'no decision'}); the cloud counted "
        f"{requests} requests and {machines} machines",
    )


def distinct_machines(evidence: Evidence) -> Iterator[Claim]:
    """every run had a machine of its own"""
    used = [run["instanceIds"][0] for run in evidence.allocations]
    known = {machine.id for machine in evidence.machines}
    yield Claim(
        text=f"at least {MACHINES} runs, each on a machine of its own",
        holds=len(used) >= MACHINES and len(set(used)) == len(used) and set(used) <= known,
        seen=", ".join(used),
    )


def notice_before_save(evidence: Evidence) -> Iterator[Claim]:
    """notice, then checkpoint, then deadline"""
    cut = noticed_cut(evidence)
    notice, noticed_at = cut.machine.notice, cut.machine.notice_written_at
    if notice is None or noticed_at is None:
        raise ValueError("no machine was given a notice")
    deadline = moment(notice["deadline"])
    saved = saved_by(evidence, cut.run)[-1]
    yield Claim(
        text="the notice came before the save, and the save before the deadline",
        holds=noticed_at <= saved.created <= saved.published_at <= deadline
        and moment(cut.run["notice"]["deadline"]) <= deadline + timedelta(seconds=1),
        seen=f"{cut.machine.id}: notice {short(noticed_at)}, checkpoint {short(saved.published_at)} at step {saved.steps}, "
        f"deadline {short(deadline)}",
    )


def resumed_where_saved(evidence: Evidence) -> Iterator[Claim]:
    """after the notice the run went on at the saved step"""
    cut = noticed_cut(evidence)
    saved = saved_by(evidence, cut.run)[-1]
    started, first = cut.next_run["stepsAtStart"], min(reported_steps(evidence, cut.next_run))
    last = max(reported_steps(evidence, cut.run))
    logged = any(f"resumed at step {saved.steps}" in line for line in evidence.trial_log)
    yield Claim(
        text="after the notice the trial resumed on another machine at exactly the saved step",
        holds=started == saved.steps == last and first == saved.steps + 1 and logged,
        seen=f"saved at {saved.steps}, resumed at {started}; last report of run {cut.run['runId']} is step {last}, "
        f"first of run {cut.next_run['runId']} is step {first}; the log {'says so' if logged else 'does not say so'}",
    )


def resumed_after_kill(evidence: Evidence) -> Iterator[Claim]:
    """after the loss the run went on from the last checkpoint"""
    cut = unnoticed_cut(evidence)
    newest = max(saved_before(evidence, end_of(cut.machine)), key=lambda one: one.steps)
    started, first = cut.next_run["stepsAtStart"], min(reported_steps(evidence, cut.next_run))
    following = saved_by(evidence, cut.next_run)[0]
    yield Claim(
        text="one machine was lost without any notice",
        holds=cut.machine.notice is None and "without notice" in cut.machine.end_reason and not cut.run.get("notice"),
        seen=f"{cut.machine.id}: {cut.machine.end_reason}, at {short(end_of(cut.machine))}",
    )
    yield Claim(
        text="after the loss the trial resumed from the last checkpoint",
        holds=started == newest.steps and first == newest.steps + 1 and following.parent == newest.uuid,
        seen=f"last checkpoint at step {newest.steps} ({newest.uuid[:8]}), resumed at {started}, first report is step {first}",
    )


def period_longer_than_distance(evidence: Evidence) -> Iterator[Claim]:
    """no periodic checkpoint lay at a cut"""
    period = int(evidence.experiment["config"]["min_checkpoint_period"]["batches"])
    distances = []
    for cut in cuts(evidence):
        periodic = [one.steps for one in evidence.saved if one.steps % period == 0]
        last = max(reported_steps(evidence, cut.run))
        distances.append(last - max([0, *(step for step in periodic if step <= last)]))
    yield Claim(
        text="the checkpoint period is longer than the distance to each cut, and no cut lies on it",
        holds=bool(distances) and all(0 < distance < period for distance in distances),
        seen=f"period {period}; steps since the last periodic checkpoint: {', '.join(map(str, distances))}",
    )


def losses_bit_equal(evidence: Evidence) -> Iterator[Claim]:
    """every loss is that of the uninterrupted run"""
    expected, reference = evidence.reference.losses, evidence.reference
    seeds = {one.seed for one in evidence.saved} | {reference.seed}
    threads = {one.threads for one in evidence.saved} | {reference.threads}
    yield Claim(
        text="the uninterrupted run had the same seed and as many threads",
        holds=len(seeds) == 1 and len(threads) == 1,
        seen=f"seed {sorted(seeds)}, threads {sorted(threads)}",
    )
    steps = {report.step for report in evidence.reports}
    last = int(evidence.trial["totalBatchesProcessed"])
    yield Claim(
        text="every step was reported, and no step twice by one run",
        holds=steps == set(range(1, last + 1))
        and set(expected) == steps
        and len({(report.run, report.step) for report in evidence.reports}) == len(evidence.reports),
        seen=f"{len(evidence.reports)} reports of {len(steps)} steps; the uninterrupted run has {len(expected)}",
    )
    for run in evidence.allocations:
        mine = [report for report in evidence.reports if report.run == run["runId"]]
        wrong = [report for report in mine if expected.get(report.step) != report.loss]
        where = f"steps {mine[0].step} to {mine[-1].step}" if mine else "nothing"
        differing = f"; first difference at step {wrong[0].step}" if wrong else ""
        yield Claim(
            text=f"losses of run {run['runId']} are bit-equal to the uninterrupted run",
            holds=bool(mine) and not wrong,
            seen=f"{where}: {len(mine) - len(wrong)} of {len(mine)} equal{differing}",
        )


def ledger_sums(evidence: Evidence) -> Iterator[Claim]:
    """the ledger's parts sum to the paid time"""
    rows = {one["instanceId"]: one for one in evidence.ledger["instances"]}
    totals = evidence.ledger["totals"]
    gaps = [abs(_sum(one["row"]) - one["row"]["paidS"]) for one in rows.values()] + [
        abs(_sum(totals) - totals["paidS"])
    ]
    negative = [name for one in rows.values() for name in PARTS if one["row"][name] < 0]
    yield Claim(
        text="in each row useful, starting, checkpointing, lost and idle sum to the paid time",
        holds=bool(rows) and max(gaps) <= SUM_TOLERANCE_S and not negative,
        seen=f"{len(rows)} machines, largest gap {max(gaps):.1e} s",
    )
    off = [abs(sum(one["row"][name] for one in rows.values()) - totals[name]) for name in (*PARTS, "paidS", "cost")]
    yield Claim(
        text="the totals are the sums over the machines",
        holds=max(off) <= SUM_TOLERANCE_S,
        seen=f"paid {totals['paidS']:.3f} s, price {totals['cost']:.4f}",
    )
    billed = {
        machine.id: (end_of(machine) - machine.paid_from).total_seconds() * machine.slots
        for machine in evidence.machines
    }
    apart = {id_: abs(billed[id_] - rows[id_]["row"]["paidS"]) for id_ in sorted(billed) if id_ in rows}
    yield Claim(
        text="the paid time is what the machines' own files say",
        holds=set(billed) == set(rows) and max(apart.values()) <= BILL_TOLERANCE_S,
        seen=f"{sum(billed.values()):.3f} s by the files, {totals['paidS']:.3f} s by the ledger",
    )
    prices = [
        abs(one["row"]["paidS"] / one["slots"] * one["pricePerHour"] / 3600 - one["row"]["cost"])
        for one in rows.values()
    ]
    yield Claim(
        text="the price is the paid time times the price of an hour",
        holds=max(prices) <= SUM_TOLERANCE_S and totals["cost"] > 0,
        seen=f"{totals['cost']:.4f} in all, of it {totals['costs']['lost']:.4f} lost",
    )


def _sum(row: Json) -> float:
    return float(sum(row[name] for name in PARTS))


def steps_lost(evidence: Evidence) -> Iterator[Claim]:
    """the ledger's steps lost at each interruption"""
    booked: dict[str, Any] = {one["allocationId"]: one for one in evidence.ledger["interruptions"]}
    cut_runs = cuts(evidence)
    yield Claim(
        text="the ledger knows each interruption, and no other",
        holds=set(booked) == {cut.run["allocationId"] for cut in cut_runs}
        and all(booked[cut.run["allocationId"]]["noticed"] == cut.noticed for cut in cut_runs),
        seen=", ".join("with notice" if one["noticed"] else "without notice" for one in booked.values()),
    )
    for cut in cut_runs:
        entry = booked[cut.run["allocationId"]]
        repeated = len(set(reported_steps(evidence, cut.run)) & set(reported_steps(evidence, cut.next_run)))
        unreported = entry["stepsLost"] - repeated
        yield Claim(
            text=f"steps lost {'with notice are 0' if cut.noticed else 'without notice are those that were done again'}",
            holds=(entry["stepsLost"] == repeated == 0) if cut.noticed else (0 <= unreported <= UNREPORTED_STEPS),
            seen=f"{entry['stepsLost']} by the ledger, {repeated} steps were reported again",
        )
    total = sum(one["stepsLost"] for one in booked.values())
    yield Claim(
        text="the ledger's total of lost steps is their sum",
        holds=evidence.ledger["totals"]["stepsLost"] == total,
        seen=f"{evidence.ledger['totals']['stepsLost']}",
    )


def checkpoints_whole(evidence: Evidence) -> Iterator[Claim]:
    """the checkpoint files are what their manifests say"""
    problems = [f"{one.uuid[:8]}: {problem}" for one in evidence.saved for problem in one.problems]
    told = {one["uuid"] for one in evidence.checkpoints if one["state"] == "STATE_COMPLETED"}
    on_disk = {one.uuid for one in evidence.saved}
    yield Claim(
        text="every checkpoint file has the content that its manifest names, and the master knows each checkpoint",
        holds=bool(evidence.saved) and not problems and told == on_disk,
        seen="; ".join(problems)
        or f"{len(on_disk)} checkpoints at steps {', '.join(str(one.steps) for one in evidence.saved)}",
    )


def nothing_left(evidence: Evidence) -> Iterator[Claim]:
    """the pool is empty and no process is left"""
    living = [one["id"] for one in evidence.instances if one["state"] not in ("gone", "refused")]
    living += [machine.id for machine in evidence.machines if machine.paid_until is None]
    yield Claim(
        text="the pool is back at zero machines",
        holds=not living,
        seen=", ".join(living) or f"all {len(evidence.machines)} machines have ended",
    )
    yield Claim(
        text="no process is left" + (", but the master that was kept" if evidence.master_kept else ""),
        holds=not evidence.processes,
        seen="; ".join(evidence.processes) or "none in the list",
    )


CHECKS: Sequence[Check] = (
    completed,
    first_launch_refused,
    distinct_machines,
    notice_before_save,
    resumed_where_saved,
    resumed_after_kill,
    period_longer_than_distance,
    losses_bit_equal,
    ledger_sums,
    steps_lost,
    checkpoints_whole,
    nothing_left,
)
