"""The task that runs the cycles: inbox, commit, replies, effects, notifications.

All other tasks only submit commands and may wait for the reply, which comes when the change is durable. A command with a value that
cannot be stored is refused alone: its cycle is decided again without it. A failing store stops the engine: nothing is stored
partially, the callers get an error, and the next start continues from the stored state.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from msgspec import Struct, field

from resolute.clock import Clock
from resolute.errors import InvalidInput, LimitExceeded, ResoluteError, Unavailable
from resolute.ids import IdSource
from resolute_master.batches import in_batches
from resolute_master.decision.view import PoolView
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KIND_OF, Change, Entity, EntityKey, key_of
from resolute_master.domain.commands import Command, MasterStarted, Reconsider
from resolute_master.domain.effects import Effect
from resolute_master.domain.ids import AgentId, PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.adoption import entities_for
from resolute_master.engine.cycle import SNAPSHOT_EVERY, Cycle, RuleFault, refusal_of
from resolute_master.engine.memory import Memory
from resolute_master.engine.snapshots import Snapshots
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.store.base import VALUE_ERRORS, Store, Unstorable
from resolute_master.store.encoding import UnreadableValue
from resolute_master.store.waiting import waited_for

log = logging.getLogger(__name__)

INBOX_LIMIT = 10_000
"""Most commands that wait for a cycle; further ones get a 429."""

FULL_INBOX_S = 1.0
"""`Retry-After` at a full inbox: at 200 commands a cycle it is empty by then, unless the disk is slow."""

BATCH_LIMIT = 200
"""Most commands in a cycle. More would gain little, and each waits for all."""

BATCH_LEAST = 10
DECIDE_BUDGET_S = 0.01
"""Seconds of decisions in a cycle. After a longer cycle, the next has fewer commands, down to `BATCH_LEAST`: nothing else runs
meanwhile."""

SAFETY_PASS_S = 60.0
"""Interval between decisions about every pool, in addition to those after each change."""

STOPPED = Unavailable("the engine has stopped")

_OF_THE_ENGINE = (MasterStarted, Reconsider)
"""Commands of the engine itself, which contain no values of a caller. A failure of one is not caused by its content."""

Notice = TypeVar("Notice")


class Carried(Struct, frozen=True):
    """A command that was applied or refused. `context` is that of its submission: the caller, for observers."""

    command: Command
    reply: Any | ResoluteError
    context: contextvars.Context


class CycleTimes(Struct, frozen=True, kw_only=True):
    """Durations of the parts of one cycle in seconds; `commands` were applied or refused in it."""

    begun_at: datetime
    commands: int
    stored: bool
    """Whether a change was committed."""
    decide_s: float
    """Rules, scheduler and planner, during which the event loop does nothing else."""
    commit_s: float
    """Waiting for the store; 0 when nothing was to be stored."""
    publish_s: float
    """Applying the change and notifying subscribers: as `decide_s`, in the event loop."""
    passes_s: tuple[tuple[PoolName, float], ...] = ()
    """Part of `decide_s` that the scheduler and the planner spent on each affected pool."""
    carried: tuple[Carried, ...] = ()
    change: Change | None = None
    """The committed change."""

    @property
    def total_s(self) -> float:
        return self.decide_s + self.commit_s + self.publish_s


class _Undecided(Exception):
    """A cycle failed because of its commands: nothing is stored, and the store has not failed."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Waiting(Struct, eq=False):
    command: Command
    reply: asyncio.Future[Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


class Watch:
    """An event that is set by matching commits. `with engine.watch(...) as watch: await watch.changed(5.0)`."""

    def __init__(self, watchers: dict[Any, set[Watch]], keys: Sequence[Any]) -> None:
        self._watchers = watchers
        self._keys = tuple(keys)
        self._woken = False
        self._waiting: asyncio.Future[None] | None = None

    def __enter__(self) -> Watch:
        for key in self._keys:
            self._watchers.setdefault(key, set()).add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for key in self._keys:
            watchers = self._watchers.get(key, set())
            watchers.discard(self)
            if not watchers:
                self._watchers.pop(key, None)

    def wake(self) -> None:
        self._woken = True
        if self._waiting is not None:
            _end(self._waiting)

    async def changed(self, timeout_s: float | None = None) -> bool:
        """True after a change since the last call (or since the watch began), False when the time is up. For one caller at a time.

        Without `asyncio.timeout`: ten thousand polls are held and look up now and then, and an exception costs more than all else.
        """
        assert self._waiting is None, "another caller waits for this watch already, and would never be woken"
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, _end, self._waiting)
            try:
                await self._waiting
            finally:
                self._waiting = None
                if timer is not None:
                    timer.cancel()
        woken, self._woken = self._woken, False
        return woken


class Engine:
    """`await start()`, then `run()` as a task; `submit` from anywhere."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdSource,
        pools: Mapping[PoolName, PoolPolicy],
        version: str,
        retain_snapshots: int = 3,
        safety_pass_s: float = SAFETY_PASS_S,
    ) -> None:
        self.pools = pools
        self._store = store
        self._clock = clock
        self._ids = ids
        self._version = version
        self._snapshots = Snapshots(store, retain=retain_snapshots)
        self._batch_limit = BATCH_LIMIT
        self._safety_pass_s = safety_pass_s
        self._memory: Memory | None = None
        self._inbox: asyncio.Queue[_Waiting] = asyncio.Queue(INBOX_LIMIT)
        self._watchers: dict[Any, set[Watch]] = {}
        self._on_commit: list[Callable[[Change], None]] = []
        self._on_cycle: list[Callable[[CycleTimes], None]] = []
        self._stopped: ResoluteError | None = None
        self.cycles = 0

    # -- for others --------------------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        assert self._memory is not None, "the engine has not been started"
        return self._memory

    @property
    def state(self) -> ClusterState:
        """The committed state. Ended entities are in the store only."""
        return self.memory.state

    def view(self, pool: PoolName, now: datetime) -> PoolView:
        """The view of the pool for a decision now. For immediate use: see `engine.pool_view`."""
        return self.memory.view(pool, now)

    def snapshot(self, pool: PoolName) -> PoolSnapshot:
        return self.memory.snapshots[pool].at(self._clock.now())

    async def submit(self, command: Command) -> Any:
        """Apply a command. Returns its reply when the change is durable; raises the `ResoluteError` that refused it."""
        if self._stopped is not None:
            raise self._stopped
        waiting = _Waiting(command, asyncio.get_running_loop().create_future())
        try:
            self._inbox.put_nowait(waiting)
        except asyncio.QueueFull:
            raise LimitExceeded(
                f"the master's inbox holds {INBOX_LIMIT} commands; try again in a moment", retry_after_s=FULL_INBOX_S
            ) from None
        try:
            return await waiting.reply
        finally:
            # The error holds this frame, which must not hold the error: else only a collection of garbage frees the two.
            del waiting

    def watch(self, kind: str, key: EntityKey) -> Watch:
        """A watch of commits that change this entity; kind "" and key "" match any commit."""
        return Watch(self._watchers, [(kind, key)])

    def outstanding(self) -> tuple[Effect, ...]:
        """Effects that have not been carried out yet, by key."""
        return tuple(self.state.outbox[key] for key in sorted(self.state.outbox))

    def outstanding_for(self, agent: AgentId) -> tuple[Effect, ...]:
        """Orders that this agent has not carried out yet, by key. They concern its containers."""
        found = self.state.find(Allocation, "allocations_on_agent", agent)
        keys = (f"{order}:{c.id}" for a in found for c in a.containers for order in ("start", "kill"))
        return tuple(self.state.outbox[key] for key in sorted(keys) if key in self.state.outbox)

    def on_commit(self, listener: Callable[[Change], None]) -> None:
        """Adds a listener that is called after each commit, in order, with the change. It must not block."""
        self._on_commit.append(listener)

    def on_cycle(self, listener: Callable[[CycleTimes], None]) -> None:
        """Adds a listener that is called after each cycle with its durations. It must not block."""
        self._on_cycle.append(listener)

    @property
    def stopped(self) -> ResoluteError | None:
        """The error of a stopped engine, which accepts no command; None while it runs."""
        return self._stopped

    @property
    def waiting_commands(self) -> int:
        """Number of commands that wait for a cycle; at most `INBOX_LIMIT`."""
        return self._inbox.qsize()

    # -- life --------------------------------------------------------------------------------------------------

    async def start(self, *, accept: Callable[[ClusterState], None] = lambda _: None) -> None:
        """Load the stored state and commit the first cycle, which is an ordinary one. An error of `accept` about the loaded state
        ends the start before anything is written."""
        stored = await waited_for(self._store.load)
        self._memory = Memory(
            ClusterState(stored.entities, stored.outbox),
            self.pools,
            sequence=stored.sequence,
            digest=stored.digest,
            now=self._clock.now(),
        )
        accept(self.state)
        if not stored.sequence:
            # So every journal has a beginning. Later starts need none: a replay includes them.
            self._snapshots.begin(self._memory)
            await self._snapshots.written()
        boot = _Waiting(MasterStarted(version=self._version), asyncio.get_running_loop().create_future())
        await self._cycle([boot])
        self._batch_limit = BATCH_LIMIT  # it looks at everything, and does not indicate how long commands take

    async def run(self) -> None:
        """Cycles until cancelled, or until the store fails."""
        try:
            next_pass = self._clock.monotonic() + self._safety_pass_s
            while True:
                batch = await self._gather(next_pass)
                if self._clock.monotonic() >= next_pass:
                    next_pass = self._clock.monotonic() + self._safety_pass_s
                    batch.append(_Waiting(Reconsider(), asyncio.get_running_loop().create_future()))
                await self._cycle(batch)
        finally:
            self._stop(self._stopped or STOPPED)
            await self._snapshots.close()

    async def _gather(self, next_pass: float) -> list[_Waiting]:
        """Wait for commands, or for the next deadline; return the waiting commands, up to the limit."""
        if self._inbox.empty():
            batch = await self._first(next_pass)
        else:
            batch = []
            # Yield to other tasks: callers that got an answer, and new ones.
            await asyncio.sleep(0)
        while len(batch) < self._batch_limit and not self._inbox.empty():
            batch.append(self._inbox.get_nowait())
        return batch

    async def _first(self, next_pass: float) -> list[_Waiting]:
        """The next command, or nothing when it is time for a cycle without one."""
        timeout = max(0.0, next_pass - self._clock.monotonic())
        wake = self.memory.next_wake()
        if wake is not None:
            timeout = max(0.0, min(timeout, (wake - self._clock.now()).total_seconds()) if wake.year > 1 else 0.0)
        try:
            async with asyncio.timeout(timeout):
                return [await self._inbox.get()]
        except TimeoutError:
            return []

    # -- one cycle ---------------------------------------------------------------------------------------------

    async def _cycle(self, batch: Sequence[_Waiting]) -> None:
        """Run one cycle. If a command makes it fail, each half runs as a cycle of its own, down to that command."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                await self._cycle_of(part)
            except _Undecided as failed:
                if len(part) > 1:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                    continue
                if not part or isinstance(part[0].command, _OF_THE_ENGINE):
                    self._fail([waiting for each in (part, *parts) for waiting in each], failed.cause)
                    raise failed.cause from None
                _answer(part[0], refusal_of(part[0].command, failed.cause))
            except BaseException as error:
                self._fail([waiting for each in (part, *parts) for waiting in each], error)
                raise

    async def _cycle_of(self, batch: Sequence[_Waiting]) -> None:
        """Run a cycle of these commands. Raises `_Undecided` if it failed because of them."""
        memory = self.memory
        commands = [waiting.command for waiting in batch]
        try:
            adopted = await waited_for(lambda: entities_for(self._store, memory.state, commands))
        except (InvalidInput, UnreadableValue, *VALUE_ERRORS) as error:
            raise _Undecided(error) from error
        try:
            await self._decide_and_store(batch, commands, adopted)
        except _Undecided:
            memory.take_back()
            memory.let_go(adopted)
            raise

    async def _decide_and_store(
        self, batch: Sequence[_Waiting], commands: Sequence[Command], adopted: Sequence[Entity]
    ) -> None:
        memory, clock = self.memory, self._clock
        begun_at, begun = clock.now(), clock.monotonic()
        cycle = Cycle(memory, now=begun_at, entropy=self._entropy(), adopted=adopted, stopwatch=clock.monotonic)
        try:
            outcome = cycle.run(commands)
        except Exception as error:
            raise _Undecided(error) from error
        decided = committed = clock.monotonic()
        if outcome.change is not None:
            if decided - begun > DECIDE_BUDGET_S:
                # To write the change down takes as long again: others have a turn between the two.
                await asyncio.sleep(0)
            try:
                await self._store.commit(outcome.change)
            except Unstorable as error:
                raise _Undecided(error) from error
            committed = clock.monotonic()
            memory.absorb(outcome.change, outcome.snapshots, outcome.digest)
        memory.let_go(adopted)
        if outcome.change is not None:
            self._publish(outcome.change)
        times = CycleTimes(
            begun_at=begun_at,
            commands=len(commands),
            stored=outcome.change is not None,
            decide_s=decided - begun,
            commit_s=committed - decided,
            publish_s=clock.monotonic() - committed,
            passes_s=tuple(cycle.passes_s),
            carried=tuple(
                Carried(w.command, reply, w.context) for w, reply in zip(batch, outcome.replies, strict=True)
            ),
            change=outcome.change,
        )
        await self._ended(times, zip(batch, outcome.replies, strict=True))

    async def _ended(self, times: CycleTimes, replies: Iterable[tuple[_Waiting, Any | ResoluteError]]) -> None:
        self.cycles += 1
        for listener in self._on_cycle:
            _notify(listener, times)
        if times.stored and self.memory.sequence % SNAPSHOT_EVERY == 0:
            self._snapshots.begin(self.memory)
        self._adapt(times)
        await in_batches(replies, lambda pair: _answer(*pair))

    def _adapt(self, times: CycleTimes) -> None:
        """Adapt the number of commands per cycle. It grows only after a full cycle was short, because the time of a few commands
        does not predict the time of many. The passes over the pools do not count: one over a long queue takes long whatever the
        number of commands."""
        spent_s = times.decide_s - sum(took_s for _, took_s in times.passes_s)
        if times.commands and spent_s > DECIDE_BUDGET_S:
            self._batch_limit = max(BATCH_LEAST, int(times.commands * DECIDE_BUDGET_S / spent_s))
        elif times.commands >= self._batch_limit:
            self._batch_limit = min(BATCH_LIMIT, self._batch_limit + BATCH_LEAST)

    def _entropy(self) -> str:
        return f"{self._ids.bits(128):032x}"

    def _publish(self, change: Change) -> None:
        if self._watchers:
            touched = {(KIND_OF[type(entity)], key_of(entity)) for entity in change.upserts}
            touched |= set(change.deletes)
            touched.add(("", ""))
            for key in touched:
                for watch in tuple(self._watchers.get(key, ())):
                    watch.wake()
        for listener in self._on_commit:
            _notify(listener, change)

    # -- failure -----------------------------------------------------------------------------------------------

    def _fail(self, batch: Sequence[_Waiting], error: BaseException) -> None:
        """Stop the engine. The commands may or may not be stored; the callers have to repeat them."""
        self._stopped = STOPPED
        if not isinstance(error, asyncio.CancelledError):
            log.error("the engine stops: %s: %s", type(error).__name__, error)
            self._stopped = Unavailable(f"the master could not store the change: {error or type(error).__name__}")
        for waiting in batch:
            _answer(waiting, self._stopped)

    def _stop(self, reason: ResoluteError) -> None:
        self._stopped = reason
        while not self._inbox.empty():
            _answer(self._inbox.get_nowait(), reason)


def _notify(listener: Callable[[Notice], None], told: Notice) -> None:
    """Call a listener. The change is durable, even if the listener fails."""
    try:
        listener(told)
    except Exception:
        log.exception("a listener of the engine has failed")


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():
        wait.set_result(None)


def _answer(waiting: _Waiting, reply: Any | ResoluteError) -> None:
    if isinstance(reply, RuleFault):
        # Logged in the context of the caller.
        waiting.context.run(log.error, "%s", reply, exc_info=reply.__cause__)
    if waiting.reply.done():
        return
    if isinstance(reply, ResoluteError):
        waiting.reply.set_exception(reply)
        # A caller that no longer waits must not cause a warning of the loop about an unretrieved exception.
        waiting.reply.add_done_callback(lambda future: future.exception())
    else:
        waiting.reply.set_result(reply)
