"""Executes a plan of kills, and restarts the master and the database server, as an operator would."""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from signal import SIGKILL

from campaign.cluster import CampaignCluster
from campaign.kill_plan import Kind, Moment, PlannedKill
from campaign.points import DATABASE, MACHINE, MASTER, kill_all, server_processes
from campaign.work import Work
from support.live import gone, until

ARMED_AT_ONCE = 5
"""Maximum number of pending orders during other kills."""

HELP_AFTER_S = 6.0
"""After this time the director triggers the operation of a pending order: an upload, a start, a launch."""

GIVE_UP_S = 600.0
"""An order that is pending for this time means that the cluster is stuck."""

LOOK_S = 0.02

CHANCE_IN_BOOT = 0.2
"""Fraction of the master's kills that may happen during its start; the others wait until it serves."""


@dataclass(slots=True)
class Armed:
    """A pending order."""

    planned: PlannedKill
    since: float
    helped_at: float


class Director:
    """Executes one plan on one cluster. `done` and `extra` contain the actual kills."""

    def __init__(self, cluster: CampaignCluster, kill_plan: Sequence[PlannedKill], work: Work, *, seed: int) -> None:
        self._cluster = cluster
        self._kill_plan = deque(kill_plan)
        self._work = work
        self._random = random.Random(f"director {seed}")
        self._armed: dict[str, Armed] = {}
        self._serving = True
        self.done: list[PlannedKill] = []
        self.extra: list[PlannedKill] = []
        """Kills beyond the plan, which triggered a launch or a start for a pending order."""
        self.ended_by_itself: list[int] = []
        """Exit codes of masters that ended without a kill."""

    def run(self) -> None:
        """Returns when every kill of the plan has happened and the master serves."""
        while self._kill_plan:
            self._rest(lambda: len(self._armed) < ARMED_AT_ONCE and self._next() is not None)
            planned = self._next()
            assert planned is not None
            self._kill_plan.remove(planned)
            self._begin(planned)
            pause_until = time.monotonic() + planned.pause_s
            self._rest(lambda: time.monotonic() >= pause_until)  # noqa: B023  # called before it changes
        self._rest(lambda: not self._armed)
        self._rest(lambda: self._serving)

    def _next(self) -> PlannedKill | None:
        """The first planned whose point has no pending order."""
        return next(
            (s for s in list(self._kill_plan)[:ARMED_AT_ONCE] if s.point not in self._armed or not s.point), None
        )

    # -- one kill ----------------------------------------------------------------------------------------------

    def _begin(self, planned: PlannedKill) -> None:
        if planned.point:
            self._arm(planned)
        else:
            self._kill_now(planned.victim)
            self.done.append(planned)

    def _arm(self, planned: PlannedKill) -> None:
        beside = self._cluster.orders / f".{planned.id}"
        beside.write_text(json.dumps({"id": planned.id, "victim": planned.victim}))
        beside.replace(self._cluster.orders / f"{planned.point}.order")
        now = time.monotonic()
        self._armed[planned.point] = Armed(planned=planned, since=now, helped_at=now)
        if planned.moment is Moment.UPLOAD:
            self._work.one_more()

    def _collect(self) -> None:
        """Executed orders, by their markers. An order that matched no process is repeated."""
        for point, armed in list(self._armed.items()):
            file = self._cluster.orders / "struck" / f"{armed.planned.id}.json"
            if not file.exists():
                self._renew_if_orphaned(point, armed)
                continue
            marker = json.loads(file.read_text())
            del self._armed[point]
            if not marker["pids"]:
                file.unlink()
                self._arm(armed.planned)
                continue
            until(f"{marker} is dead", lambda: all(gone(pid) for pid in marker["pids"]), every_s=LOOK_S)  # noqa: B023
            if self._cluster.master is not None and self._cluster.master.pid in marker["pids"]:
                self._cluster.master.wait()  # Its last threads may live a little longer.
            self.done.append(armed.planned)

    def _renew_if_orphaned(self, point: str, armed: Armed) -> None:
        """Repeats an order if another order killed its process before the execution."""
        for taken in self._cluster.orders.glob(f"{point}.taken-*"):
            marked = self._cluster.orders / "struck" / f"{armed.planned.id}.json"
            if gone(int(taken.name.rpartition("-")[2])) and not marked.exists():
                taken.unlink()
                self._arm(armed.planned)

    def _kill_now(self, victim: str) -> None:
        if victim == MASTER:
            if self._random.random() >= CHANCE_IN_BOOT:
                self._rest(lambda: self._serving)
            assert self._cluster.master is not None
            kill_all([self._cluster.master.pid])
            self._cluster.master.wait()
            return
        found: list[int] = []

        def there() -> bool:
            found[:] = self._candidates(victim)
            return bool(found)

        self._rest(there)
        pids = found if victim == DATABASE else [self._random.choice(sorted(found))]
        kill_all(pids)
        until(f"{victim} {pids} is dead", lambda: all(map(gone, pids)), every_s=LOOK_S)

    def _candidates(self, victim: str) -> list[int]:
        cluster = self._cluster
        match victim:
            case "database":
                return server_processes(cluster.server.pid) if cluster.server is not None else []
            case "backend":
                return cluster.backends()
            case "machine":
                # Only machines with work: several deaths during a boot make the pool pause, as designed.
                return [process.pid for process in cluster.working_machines()]
            case "host":
                return [process.pid for process in cluster.hosts()]
            case "agent":
                return [process.pid for process in cluster.agents()]
            case _:
                return [process.pid for process in cluster.tasks()]

    # -- other work --------------------------------------------------------------------------------------------

    def _rest(self, enough: Callable[[], bool]) -> None:
        """Keeps the cluster running until a condition holds."""
        end = time.monotonic() + GIVE_UP_S
        while True:
            self._tend()
            if enough():
                return
            if time.monotonic() > end:
                waiting = {point: armed.planned.victim for point, armed in self._armed.items()}
                raise AssertionError(f"nothing happens any more; orders that wait: {waiting}")
            time.sleep(LOOK_S)

    def _tend(self) -> None:
        if self._work.failure is not None:
            raise self._work.failure
        self._revive_database()
        self._revive_master()
        self._collect()
        self._help()

    def _revive_database(self) -> None:
        server = self._cluster.server
        if server is not None and gone(server.pid):
            server.kill()  # Removes the rest of it.
            server.start()
            self._cluster.write_pids()

    def _revive_master(self) -> None:
        master = self._cluster.master
        assert master is not None
        if (code := master.poll()) is not None:
            if code != -SIGKILL:
                self.ended_by_itself.append(code)
            self._cluster.spawn()
            self._serving = False
        elif not self._serving:
            self._serving = self._cluster.answers()

    def _help(self) -> None:
        """Triggers the operations of orders that are pending for long."""
        now = time.monotonic()
        for point, armed in list(self._armed.items()):
            if now - armed.since > GIVE_UP_S:
                raise AssertionError(f"point {point} is never reached")
            if now - armed.helped_at < HELP_AFTER_S:
                continue
            armed.helped_at = now
            match armed.planned.moment, armed.planned.kind:
                case (Moment.UPLOAD, _):
                    self._work.one_more()
                case (Moment.LAUNCH, _) if not point.startswith(("agent.", "task.")):
                    self._provoke(Kind.MACHINE, MACHINE)
                case (Moment.LAUNCH, _):
                    self._provoke(Kind.TASK, "task")

    def _provoke(self, kind: Kind, victim: str) -> None:
        found = self._candidates(victim)
        if found:
            kill_all([self._random.choice(sorted(found))])
            number = len(self.extra) + 1
            self.extra.append(
                PlannedKill(id=f"extra-{number}", kind=kind, moment=Moment.ANY, point="", victim=victim, pause_s=0.0)
            )
