"""That a preemption is acknowledged without a step that waits for the master, and before a clean exit."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resolute import core
from resolute.clock import FixedClock
from resolute.core import preempt as preempt_module
from resolute.core.distributed import DistributedContext
from resolute.core.preempt import NOTICE_FILE, ManagedPreempt, PreemptMode
from resolute.core.session import RetryPolicy, Session
from resolute.errors import Unavailable
from support.harness_master import TOKEN, FakeMaster, task_variables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PERSISTENT = RetryPolicy(total_s=30.0, first_wait_s=0.01, longest_wait_s=0.05)
IMPATIENT = RetryPolicy(total_s=0.1, first_wait_s=0.01)


def give_notice(run_dir: Path, deadline: str | None = None) -> None:
    (run_dir / NOTICE_FILE).write_text(json.dumps({"kind": "interruption", "deadline": deadline, "reason": "spot"}))


def never_in_the_step_loop(wait_s: float) -> None:
    """The pause between two attempts of a session."""
    assert threading.current_thread() is not threading.main_thread(), "the step waits for the master"
    threading.Event().wait(wait_s)


@pytest.fixture
def preempted(master: FakeMaster, tmp_path: Path) -> Iterator[Callable[[RetryPolicy, str | None], ManagedPreempt]]:
    """A process that has been told to stop by its machine while its master is away."""
    sessions = []

    def made(retry: RetryPolicy, deadline: str | None = None) -> ManagedPreempt:
        master.stop()
        session = Session(master.url, TOKEN, retry=retry, sleep=never_in_the_step_loop)
        sessions.append(session)
        preempt = ManagedPreempt(
            session=session,
            allocation_id="t.1",
            run_dir=tmp_path,
            distributed=DistributedContext.alone(),
            mode=PreemptMode.WorkersAskChief,
            clock=FixedClock(NOW),
        )
        give_notice(tmp_path, deadline)
        preempt.start()
        for _ in range(3):
            assert preempt.should_preempt()
        return preempt

    yield made
    for session in sessions:
        session.close()


Preempted = Callable[..., ManagedPreempt]


def test_a_master_that_comes_back_knows_before_the_process_ends(master: FakeMaster, preempted: Preempted) -> None:
    preempt = preempted(PERSISTENT)
    assert master.stored.acknowledged == []
    master.start()
    preempt.close()
    assert master.stored.acknowledged == ["t.1"]


def test_it_goes_on_trying_after_the_session_has_given_up_once(
    master: FakeMaster, preempted: Preempted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A save may take longer than a session tries."""
    monkeypatch.setattr(preempt_module, "PAUSE_AFTER_ERROR_S", 0.02)
    preempt = preempted(IMPATIENT)
    master.wait_until(lambda: caplog.text.count("is not acknowledged yet") > 1)
    master.start()
    master.wait_until(lambda: master.stored.acknowledged == ["t.1"])
    preempt.close()
    assert master.stored.acknowledged == ["t.1"]


def test_a_clean_end_that_the_master_cannot_be_told_of_is_an_error(preempted: Preempted) -> None:
    """With code 0 and no acknowledgement the trial would count as complete."""
    preempt = preempted(IMPATIENT)
    with pytest.raises(Unavailable, match=r"did not answer POST .*ack_preemption for"):
        preempt.close()


def test_closing_waits_until_the_deadline_and_not_longer(preempted: Preempted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempt_module, "LAST_WAIT_S", 0.1)
    preempt = preempted(PERSISTENT, "2026-01-01T00:00:00Z")
    with pytest.raises(Unavailable, match=r"did not answer POST .*ack_preemption in time"):
        preempt.close()


def test_a_failed_process_waits_for_nothing(preempted: Preempted) -> None:
    preempt = preempted(PERSISTENT)
    preempt.close(failed=True)


def test_an_explicit_acknowledgement_returns_when_the_master_knows(master: FakeMaster, tmp_path: Path) -> None:
    with core.init(environ=task_variables(master, tmp_path)) as context:
        give_notice(context_run_dir(context))
        assert context.preempt.should_preempt(auto_ack=False)
        assert master.stored.acknowledged == []
        context.preempt.acknowledge_preemption_signal()
        assert master.stored.acknowledged == ["3.task.1"]
        assert context.preempt.should_preempt()
    assert master.stored.acknowledged == ["3.task.1"], "once"


def test_leaving_the_context_has_told_the_master(master: FakeMaster, tmp_path: Path) -> None:
    master.preempt("3.task.1", reason="pause")
    with core.init(environ=task_variables(master, tmp_path)) as context:
        assert context.preempt.should_preempt() and context.preempt.reason == "pause"
        master.fail_next(503, 503)
    assert master.stored.acknowledged == ["3.task.1"]


def test_leaving_the_context_fails_when_the_master_was_not_told_and_ends_everything(
    master: FakeMaster, tmp_path: Path
) -> None:
    variables = task_variables(master, tmp_path)
    with (
        pytest.raises(Unavailable, match="ack_preemption"),
        core.init(environ=variables, retry=IMPATIENT) as context,
    ):
        master.stop()
        give_notice(context_run_dir(context))
        assert context.preempt.should_preempt()
    assert "resolute-sender" not in {thread.name for thread in threading.enumerate()}


def test_leaving_the_context_by_an_error_of_the_program_shows_that_error(master: FakeMaster, tmp_path: Path) -> None:
    variables = task_variables(master, tmp_path)
    with pytest.raises(KeyError, match="mine"), core.init(environ=variables, retry=IMPATIENT) as context:
        master.stop()
        give_notice(context_run_dir(context))
        assert context.preempt.should_preempt()
        raise KeyError("mine")


def context_run_dir(context: core.Context) -> Path:
    assert context.info is not None
    return context.info.run_dir
