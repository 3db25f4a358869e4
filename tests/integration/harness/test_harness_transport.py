"""Session, sender and the links between ranks, over real sockets on this host."""

from __future__ import annotations

import http.client
import json
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from resolute import core
from resolute.core.distributed import DistributedContext, PeerLost, derived_ports
from resolute.core.sender import QUEUE_LIMIT, Report, Sender
from resolute.core.session import RetryPolicy, Session, StaleRun
from resolute.errors import FailedPrecondition, InvalidInput, NotFound, ResoluteError, Unauthenticated, Unavailable
from support.harness_master import TOKEN, FakeMaster, task_variables
from support.harness_tasks import Tasks

AWAY_S = 300.0
IMPATIENT = RetryPolicy(total_s=0.3, first_wait_s=0.05)


@pytest.fixture
def open_session() -> Iterator[Callable[..., Session]]:
    """Sessions that are closed when the test is over."""
    with ExitStack() as stack:

        def opened(url: str, token: str = TOKEN, retry: RetryPolicy | None = None) -> Session:
            return stack.enter_context(closing(Session(url, token, retry=retry)))

        yield opened


def post_metric(session: Session, run: int, step: int, **metrics: float) -> None:
    report = {"trialId": 5, "trialRunId": run, "stepsCompleted": step, "metrics": {"avgMetrics": metrics}}
    session.post("/api/v1/trials/5/metrics", {"group": "training", "metrics": report})


def test_answers_become_values_and_errors(master: FakeMaster, open_session: Callable[..., Session]) -> None:
    session = open_session(master.url + "/", retry=IMPATIENT)
    assert session.get("/api/v1/tasks/3.task/context_directory") == {"b64Tgz": ""}
    with pytest.raises(NotFound, match="checkpoint 'c9' not found"):
        session.get("/api/v1/checkpoints/c9")
    post_metric(session, 2, 1, loss=1.0)
    with pytest.raises(InvalidInput, match="another value"):
        post_metric(session, 2, 1, loss=2.0)
    with pytest.raises(StaleRun, match="superseded"):
        post_metric(session, 1, 1, loss=1.0)
    with pytest.raises(Unauthenticated):
        open_session(master.url, "wrong").get("/api/v1/checkpoints/c9")
    with pytest.raises(InvalidInput, match="ftp"):
        Session("ftp://host", TOKEN)


def test_a_restarting_master_is_waited_for(master: FakeMaster, open_session: Callable[..., Session]) -> None:
    session = open_session(master.url)
    post_metric(session, 1, 1, loss=1.0)
    master.stop()
    threading.Timer(0.3, master.start).start()
    post_metric(session, 1, 2, loss=0.5)
    master.fail_next(503, 502, 504)
    post_metric(session, 1, 3, loss=0.25)
    master.fail_next(429)
    post_metric(session, 1, 4, loss=0.125)
    assert sorted(master.metrics(5, "training")) == [1, 2, 3, 4]


def test_a_master_that_is_away_for_five_minutes_is_waited_for(master: FakeMaster) -> None:
    """In virtual time: each pause takes none."""
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        pauses.append(seconds)
        if now[0] >= AWAY_S and not back:
            back.append(now[0])
            master.start()

    back: list[float] = []
    master.stop()
    session = Session(master.url, TOKEN, sleep=sleep, monotonic=lambda: now[0], rng=random.Random(7))
    with closing(session):
        post_metric(session, 1, 1, loss=1.0)
    assert sorted(master.metrics(5, "training")) == [1]
    assert back and now[0] <= AWAY_S + RetryPolicy().longest_wait_s
    assert len(set(pauses[-50:])) == 50, "the pauses are not spread"


def test_a_master_that_stays_away_is_named(master: FakeMaster, open_session: Callable[..., Session]) -> None:
    session = open_session(master.url, retry=IMPATIENT)
    master.stop()
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:\d+ did not answer GET"):
        session.get("/api/v1/checkpoints/c9")


def test_closing_ends_a_long_poll_of_another_thread(master: FakeMaster, open_session: Callable[..., Session]) -> None:
    session = open_session(master.url)
    ended = threading.Event()

    def poll() -> None:
        with pytest.raises(Unavailable):
            session.get("/api/v1/allocations/t.1/signals/preemption", {"timeout_seconds": 60})
        ended.set()

    thread = threading.Thread(target=poll)
    thread.start()
    while not ended.wait(0.05):
        session.close()
    thread.join()


class Recorder:
    """A poster that remembers, and refuses on demand."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.gate = threading.Event()
        self.gate.set()
        self.refuse: Callable[[Any], ResoluteError | None] = lambda body: None

    def post(self, path: str, body: Any = None) -> Any:
        self.gate.wait()
        error = self.refuse(body)
        if error is not None:
            raise error
        self.posted.append(body)


def numbered(number: int, *, required: bool = True) -> Report:
    return Report(path="/x", body=lambda: number, required=required)


def test_a_connection_that_is_opened_while_the_session_closes_is_closed(
    master: FakeMaster, open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(master.url)
    opened: list[socket.socket] = []
    connect = http.client.HTTPConnection.connect

    def connect_late(connection: http.client.HTTPConnection) -> None:
        session.close()
        connect(connection)
        opened.append(connection.sock)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect_late)
    with pytest.raises(Unavailable, match="the session was closed"):
        session.get("/api/v1/allocations/t.1/signals/preemption", {"timeoutSeconds": 60})
    assert [sock.fileno() for sock in opened] == [-1]


def test_reports_arrive_in_order_and_a_full_queue_holds_the_reporter_back() -> None:
    poster = Recorder()
    sender = Sender(poster, limit=3)
    sender.start()
    poster.gate.clear()

    def put_ten() -> None:
        for number in range(10):
            sender.put(numbered(number))

    put_all = threading.Thread(target=put_ten)
    put_all.start()
    put_all.join(0.2)
    assert put_all.is_alive(), "ten reports do not fit into a queue of three"
    with pytest.raises(TimeoutError, match="not taken"):
        sender.flush(0.05)
    poster.gate.set()
    put_all.join()
    sender.close()
    assert poster.posted == list(range(10))


def test_without_another_order_so_many_reports_may_wait() -> None:
    poster = Recorder()
    sender = Sender(poster)
    for number in range(QUEUE_LIMIT):
        sender.put(numbered(number))  # nobody takes them: one more would wait for ever
    put_one = threading.Thread(target=sender.put, args=(numbered(QUEUE_LIMIT),), daemon=True)
    put_one.start()
    put_one.join(0.2)
    assert put_one.is_alive()
    sender.start()
    put_one.join()
    sender.close()
    assert poster.posted == list(range(QUEUE_LIMIT + 1))


def test_a_refused_report_is_raised_to_the_reporter() -> None:
    poster = Recorder()
    poster.refuse = lambda body: InvalidInput("no") if body == 1 else None
    sender = Sender(poster)
    sender.start()
    sender.put(numbered(0))
    sender.put(numbered(1))
    with pytest.raises(InvalidInput, match="no"):
        sender.flush()
    with pytest.raises(InvalidInput, match="no"):
        sender.put(numbered(2))
    with pytest.raises(InvalidInput, match="no"):
        sender.close()
    assert poster.posted == [0]


def test_reports_of_no_consequence_only_warn_but_a_stale_run_is_fatal() -> None:
    poster = Recorder()
    poster.refuse = lambda body: Unavailable("away") if body == 1 else StaleRun("old") if body == 2 else None
    sender = Sender(poster)
    sender.start()
    sender.put(numbered(1, required=False))
    sender.put(numbered(0))
    sender.flush()
    sender.put(numbered(2, required=False))
    with pytest.raises(StaleRun, match="superseded"):
        sender.flush()
    assert poster.posted == [0]


def test_an_older_run_learns_that_it_is_superseded(master: FakeMaster, tmp_path: Path) -> None:
    master.current_run[5] = 2
    with pytest.raises(StaleRun), core.init(environ=task_variables(master, tmp_path, run=1)) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
        context.train.flush()


def test_a_checkpoint_of_an_ended_allocation_is_refused_and_removed(master: FakeMaster, tmp_path: Path) -> None:
    master.live_allocations = {"3.task.2"}
    with core.init(environ=task_variables(master, tmp_path, run=1)) as context:
        with pytest.raises(StaleRun), context.checkpoint.store_path({"steps_completed": 3}) as (path, _):
            (path / "x").write_text("x")
        assert context.checkpoint.storage.list() == ()


def test_metrics_are_stored_before_the_checkpoint_that_covers_them(master: FakeMaster, tmp_path: Path) -> None:
    with core.init(environ=task_variables(master, tmp_path)) as context:
        for step in range(1, 31):
            context.train.report_training_metrics(step, {"loss": float("nan")})
        with context.checkpoint.store_path({"steps_completed": 30, "note": "x"}) as (path, uuid):
            (path / "x").write_text("x")
        assert context.checkpoint.get_metadata(uuid) == {"steps_completed": 30, "note": "x"}
        context.checkpoint.delete(uuid)
    assert master.stored.order == ["metrics"] * 30 + ["checkpoint"]
    assert master.metrics(5, "training")[30] == {"loss": "NaN"}
    assert master.stored.checkpoints[uuid]["state"] == "STATE_DELETED"


def test_metadata_is_checked_before_a_byte_is_written(master: FakeMaster, tmp_path: Path) -> None:
    with core.init(environ=task_variables(master, tmp_path)) as context:
        with pytest.raises(InvalidInput, match="steps_completed"), context.checkpoint.store_path({"step": 3}):
            pass
        with pytest.raises(RuntimeError, match="mine"), context.checkpoint.store_path({"steps_completed": 1}):
            raise RuntimeError("mine")
        with (
            pytest.raises(InvalidInput, match="named manifest"),
            context.checkpoint.store_path({"steps_completed": 1}) as (path, _),
        ):
            (path / "manifest.json").write_text("{}")
    assert list((tmp_path / "shared").glob("*")) == [] and not master.stored.checkpoints


def test_upload_download_and_selectors(master: FakeMaster, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for name in ("a.txt", "b.bin", "deep/c.txt"):
        (source / name).write_text(name)
    with core.init(environ=task_variables(master, tmp_path)) as context:
        uuid = context.checkpoint.upload(source, {"steps_completed": 1}, selector=lambda name: name.endswith("txt"))
        context.checkpoint.download(uuid, tmp_path / "copy", selector=lambda name: name != "a.txt")
        with pytest.raises(InvalidInput, match="nowhere"):
            context.checkpoint.upload(tmp_path / "nowhere", {"steps_completed": 1})
    found = {path.name for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    assert found == {"c.txt", "metadata.json", "trial_config.json"}


def test_invalid_hyperparameters_end_well(master: FakeMaster, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended, core.init(environ=task_variables(master, tmp_path)):
        raise core.InvalidHP("too many layers")
    assert ended.value.code == 0
    assert master.stored.early_exits == ["EXITED_REASON_INVALID_HP"]


def test_asking_before_entering_is_an_error(master: FakeMaster, tmp_path: Path) -> None:
    context = core.init(environ=task_variables(master, tmp_path))
    with pytest.raises(FailedPrecondition, match="with"):
        context.preempt.should_preempt()
    context.close()


def test_off_cluster_everything_works_and_is_written_down(tmp_path: Path) -> None:
    with core.init(environ={}, local_dir=tmp_path) as context:
        context.train.report_training_metrics(1, {"loss": 2.0})
        context.train.report_progress(0.5)
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, uuid):
            (path / "x").write_text("x")
        assert not context.preempt.should_preempt()
        assert context.checkpoint.get_metadata(uuid) == {"steps_completed": 1}
        with pytest.raises(InvalidInput, match="between 0 and 1"):
            context.train.report_progress(2.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("metrics") or line.get("progress") for line in lines] == [{"loss": 2.0}, 0.5]


# ------------------------------------------------------------------------------------------------------------- ranks


def in_ranks(size: int, work: Callable[[DistributedContext], Any], key: str) -> list[Any]:
    """Run `work` in one thread per rank; exceptions are results."""
    results: list[Any] = [None] * size

    def one(rank: int) -> None:
        distributed: DistributedContext | None = None
        try:
            distributed = DistributedContext(
                rank=rank, size=size, local_rank=rank % 2, local_size=2, cross_rank=rank // 2, cross_size=2, key=key
            )
            results[rank] = work(distributed)
        except Exception as error:
            results[rank] = error
        finally:
            if distributed is not None:
                distributed.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_collectives_keep_the_order_of_ranks() -> None:
    def work(distributed: DistributedContext) -> Any:
        rank = distributed.rank
        return [
            distributed.gather(rank * 10),
            distributed.allgather({"r": rank}),
            distributed.broadcast([rank, "x" * 100_000])[0],
            distributed.allgather_local(rank),
            distributed.broadcast_local(rank),
            distributed.gather_local(rank),
        ]

    results = in_ranks(4, work, "collectives")
    assert [one[0] for one in results] == [[0, 10, 20, 30], None, None, None]
    assert all(one[1] == [{"r": rank} for rank in range(4)] and one[2] == 0 for one in results)
    assert [one[3] for one in results] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [one[4] for one in results] == [0, 0, 2, 2]
    assert [one[5] for one in results] == [[0, 1], None, [2, 3], None]


def test_a_rank_that_ends_is_an_error_for_all_others() -> None:
    def work(distributed: DistributedContext) -> Any:
        distributed.barrier()
        if distributed.rank == 2:
            return "gone"
        distributed.barrier()
        return "not reached"

    results = in_ranks(4, work, "ends")
    assert results[2] == "gone"
    assert all(isinstance(results[rank], PeerLost) for rank in (0, 1, 3)), results
    assert "rank 2" in str(results[0])


def test_ranks_out_of_step_are_told() -> None:
    def work(distributed: DistributedContext) -> Any:
        return distributed.broadcast(1) if distributed.rank == 1 else distributed.allgather(1)

    results = in_ranks(2, work, "out of step")
    assert any(isinstance(result, FailedPrecondition) and "same calls" in str(result) for result in results)


def test_values_that_json_cannot_carry_are_refused() -> None:
    results = in_ranks(2, lambda distributed: distributed.allgather(object()), "values")
    assert all(isinstance(result, (InvalidInput, PeerLost)) for result in results)
    assert any(isinstance(result, InvalidInput) and "JSON" in str(result) for result in results)


def test_strangers_and_taken_ports_do_no_harm() -> None:
    """Another program holds the first port; a stranger speaks nonsense on the one the gang then uses."""
    key = "strangers"
    first, second = derived_ports(key)[:2]
    with socket.socket() as taken:
        taken.bind(("", first))
        taken.listen()

        def bother() -> None:
            for _ in range(100):
                try:
                    with socket.create_connection(("127.0.0.1", second), timeout=1) as sock:
                        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200)
                    return
                except OSError:
                    threading.Event().wait(0.02)

        stranger = threading.Thread(target=bother)
        stranger.start()
        results: list[Any] = [None, None]

        def worker() -> None:
            distributed = DistributedContext(rank=1, size=2, local_size=2, local_rank=1, key=key, ports=[second])
            results[1] = distributed.allgather("worker")
            distributed.close()

        def chief() -> None:
            distributed = DistributedContext(rank=0, size=2, local_size=2, key=key)
            results[0] = distributed.allgather("chief")
            distributed.close()

        chief_thread = threading.Thread(target=chief)
        chief_thread.start()
        stranger.join()
        worker_thread = threading.Thread(target=worker)
        worker_thread.start()
        chief_thread.join(60)
        worker_thread.join(60)
    assert results == [["chief", "worker"]] * 2


def test_missing_ranks_are_named() -> None:
    with pytest.raises(Unavailable, match=r"ranks \[1, 2\] did not join"):
        DistributedContext(rank=0, size=3, local_size=3, key="missing", join_timeout_s=0.1)


HOLD_A_FORK_AND_DIE = """
import os, signal, sys
from resolute.core.distributed import DistributedContext
distributed = DistributedContext(rank=1, size=2, local_size=2, local_rank=1, key="fork")
distributed.barrier()
if os.fork() == 0:  # like a data loader's worker: lives on for a while after its parent
    signal.alarm(30)
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_surviving_fork_does_not_keep_a_dead_rank_alive(tasks: Tasks) -> None:
    tasks.start_command({"PATH": "/usr/bin:/bin"}, [sys.executable, "-c", HOLD_A_FORK_AND_DIE])
    distributed = DistributedContext(rank=0, size=2, local_size=2, key="fork")
    try:
        distributed.barrier()
        with pytest.raises(PeerLost):
            distributed.barrier()
    finally:
        distributed.close()


def test_sharded_saves_merge_and_conflicts_reach_every_rank(tmp_path: Path) -> None:
    def save(distributed: DistributedContext, same: str) -> Any:
        with core.init(environ={}, local_dir=tmp_path, distributed=distributed) as context:
            metadata = {"steps_completed": 4, f"rank{distributed.rank}": True}
            with context.checkpoint.store_path(metadata, shard=True) as (path, uuid):
                (path / f"part-{distributed.rank}").write_text(str(distributed.rank))
                (path / "same").write_text("equal")
                (path / "other").write_text(same)
            with context.checkpoint.restore_path(uuid) as restored:
                names = sorted(found.name for found in restored.iterdir())
            return uuid, names, context.checkpoint.get_metadata(uuid)

    results = in_ranks(4, lambda distributed: save(distributed, "equal too"), "sharded")
    assert all(result == results[0] for result in results), results
    assert {"part-0", "part-1", "part-2", "part-3", "same", "other"} <= set(results[0][1])
    assert results[0][2] == {"steps_completed": 4} | {f"rank{rank}": True for rank in range(4)}
    results = in_ranks(4, lambda distributed: save(distributed, f"differs {distributed.rank}"), "conflicts")
    assert all(isinstance(result, InvalidInput) and "other (ranks 0 and 1)" in str(result) for result in results)
