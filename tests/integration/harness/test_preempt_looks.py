"""How soon a process that asks at every step learns of a notice, and that ranks which ask together stay in step."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resolute import grace_period
from resolute.clock import FixedClock
from resolute.core import preempt as preempt_module
from resolute.core.distributed import DistributedContext
from resolute.core.preempt import LOOK_PERIOD_S, NOTICE_FILE, ManagedPreempt, PreemptMode
from resolute.core.session import RetryPolicy, Session

NOBODY = "http://127.0.0.1:9"
"""No master answers here: what is learnt comes from the notice file."""


@contextmanager
def asking(
    run_dir: Path, distributed: DistributedContext, clock: FixedClock, master: str = NOBODY
) -> Iterator[ManagedPreempt]:
    session = Session(master, "token", retry=RetryPolicy(total_s=0.05, first_wait_s=0.01))
    preempt = ManagedPreempt(
        session=session,
        allocation_id="t.1",
        run_dir=run_dir,
        distributed=distributed,
        mode=PreemptMode.WorkersAskChief,
        clock=clock,
    )
    preempt.start()
    try:
        yield preempt
    finally:
        preempt.close()
        session.close()
        distributed.close()


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def give_notice(run_dir: Path, within_s: float | None = None) -> None:
    deadline = None if within_s is None else (NOW + timedelta(seconds=within_s)).isoformat()
    (run_dir / NOTICE_FILE).write_text(json.dumps({"kind": "interruption", "deadline": deadline, "reason": "spot"}))


def a_clock() -> FixedClock:
    return FixedClock(NOW)


def test_a_notice_is_seen_a_look_period_after_the_last_look_at_the_latest(tmp_path: Path) -> None:
    clock = a_clock()
    with asking(tmp_path, DistributedContext.alone(), clock) as preempt:
        assert not preempt.should_preempt(auto_ack=False)
        give_notice(tmp_path)
        clock.advance(LOOK_PERIOD_S / 2)
        assert not preempt.should_preempt(auto_ack=False), "sooner than the period nothing is looked at"
        clock.advance(LOOK_PERIOD_S / 2)
        assert preempt.should_preempt(auto_ack=False) and preempt.reason == "spot"
        assert preempt.should_preempt(auto_ack=False), "once seen it is told at every question"


def test_a_notice_that_is_there_is_told_without_waiting_for_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No thread can wait for so long: who tries fails.
    monkeypatch.setattr(preempt_module, "FIRST_ANSWER_WAIT_S", float("inf"))
    give_notice(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # The master's machine takes connections, and nobody answers.
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with asking(tmp_path, DistributedContext.alone(), a_clock(), address) as preempt:
            assert preempt.should_preempt(auto_ack=False) and preempt.reason == "spot"


def test_ranks_that_ask_together_look_at_every_question(tmp_path: Path) -> None:
    """The clock of one rank stands still: did either skip a question by its clock, the other would wait for it."""

    def of_rank(rank: int) -> list[bool]:
        run_dir = tmp_path / str(rank)
        run_dir.mkdir()
        distributed = DistributedContext(rank=rank, size=2, local_size=2, local_rank=rank, key=str(tmp_path))
        clock, answers = a_clock(), []
        with asking(run_dir, distributed, clock) as preempt:
            for step in range(4):
                if rank == 1 and step == 2:
                    give_notice(run_dir)
                if rank == 1:
                    clock.advance(LOOK_PERIOD_S)
                answers.append(preempt.should_preempt(auto_ack=False))
        return answers

    with ThreadPoolExecutor(2) as ranks:
        assert list(ranks.map(of_rank, range(2))) == 2 * [[False, False, True, True]]


def trains_until_told_to_stop(
    preempt: ManagedPreempt, clock: FixedClock, *, save_s: float
) -> tuple[list[float], float]:
    """A program with steps of one second that saves on request: when it saved and when it was to end, since the beginning."""
    saved: list[float] = []
    while not preempt.should_preempt(auto_ack=False):
        if preempt.should_checkpoint():
            clock.advance(save_s)
            saved.append((clock.now() - NOW).total_seconds())
        clock.advance(1.0)
    return saved, (clock.now() - NOW).total_seconds()


def test_a_program_that_saves_on_request_trains_on_and_ends_in_time_for_one_more_save(tmp_path: Path) -> None:
    clock = a_clock()
    with asking(tmp_path, DistributedContext.alone(), clock) as preempt:
        assert not preempt.should_preempt(auto_ack=False) and not preempt.should_checkpoint()
        give_notice(tmp_path, within_s=120)
        clock.advance(1.0)
        saved, ended = trains_until_told_to_stop(preempt, clock, save_s=10.0)
    # A step of one second counts as a part of the save.
    assert saved == [11.0] and ended == 120.0 - grace_period.reserve_s(11.0) - 1.0


def test_a_program_that_does_not_ask_whether_to_save_ends_at_the_notice(tmp_path: Path) -> None:
    clock = a_clock()
    with asking(tmp_path, DistributedContext.alone(), clock) as preempt:
        assert not preempt.should_preempt(auto_ack=False)
        give_notice(tmp_path, within_s=120)
        clock.advance(1.0)
        assert preempt.should_preempt(auto_ack=False)


def test_a_rebalance_and_then_the_notice_of_the_end_ask_for_a_save_each(tmp_path: Path) -> None:
    clock = a_clock()
    with asking(tmp_path, DistributedContext.alone(), clock) as preempt:
        assert not preempt.should_checkpoint()
        (tmp_path / NOTICE_FILE).write_text(json.dumps({"kind": "rebalance", "deadline": None, "reason": "likely"}))
        assert not preempt.should_preempt(auto_ack=False) and preempt.should_checkpoint() and not preempt.noticed
        clock.advance(1.0)
        give_notice(tmp_path, within_s=120)
        assert not preempt.should_preempt(auto_ack=False) and preempt.should_checkpoint() and preempt.noticed
        assert not preempt.should_checkpoint(), "once"


def test_ranks_save_together_and_end_together_although_one_machine_only_goes_away(tmp_path: Path) -> None:
    """The save of the rank without a notice takes longer: it decides when both end."""

    def of_rank(rank: int) -> tuple[list[float], float]:
        run_dir = tmp_path / str(rank)
        run_dir.mkdir()
        distributed = DistributedContext(rank=rank, size=2, local_size=2, local_rank=rank, key=str(tmp_path))
        clock = a_clock()
        with asking(run_dir, distributed, clock) as preempt:
            assert not preempt.should_checkpoint()
            if rank == 1:
                give_notice(run_dir, within_s=120)
            return trains_until_told_to_stop(preempt, clock, save_s=(20.0, 10.0)[rank])

    with ThreadPoolExecutor(2) as ranks:
        (saved, ended), (saved_too, ended_too) = ranks.map(of_rank, range(2))
    assert (saved, saved_too) == ([20.0], [10.0])
    assert ended == 120.0 - grace_period.reserve_s(21.0) - 1.0 and ended_too == ended - 10.0, "at the same step"
