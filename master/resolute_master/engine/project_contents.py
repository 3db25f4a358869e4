"""Carries out operations on every experiment of a project: its deletion, and its move to another workspace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from resolute.errors import FailedPrecondition, NotFound
from resolute.wire.states import ExperimentState
from resolute_master.domain.administration import FailProjectDeletion, FollowProject, ForgetProject, RecordProjectMoved
from resolute_master.domain.change import Change
from resolute_master.domain.commands import DeleteExperiment
from resolute_master.domain.effects import DeleteExperiments, MoveExperiments
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.engine.engine import Engine
from resolute_master.lifecycle import workspaces
from resolute_master.store.base import ExperimentQuery, Store

log = logging.getLogger(__name__)

PAGE = 100
"""Experiments of one project that are deleted, or that follow, at a time."""

RETRY_S = 30.0
"""Time after which an order that has failed is tried again."""

Order = DeleteExperiments | MoveExperiments


class ProjectContents:
    """What the outbox holds at the start is done first; orders about different projects do not wait for each other."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._orders: asyncio.Queue[Order] = asyncio.Queue()
        self._running: set[str] = set()
        self._deleted = asyncio.Event()
        """Set by the deletion of any experiment."""
        engine.on_commit(self._take)

    def _take(self, change: Change) -> None:
        for effect in change.outbox_added:
            if isinstance(effect, Order):
                self._orders.put_nowait(effect)
        if any(kind == "experiment" for kind, _ in change.deletes):
            self._deleted.set()
            self._deleted = asyncio.Event()

    async def run(self) -> None:
        for effect in self._engine.outstanding():
            if isinstance(effect, Order):
                self._orders.put_nowait(effect)
        async with asyncio.TaskGroup() as all_of_them:
            while True:
                order = await self._orders.get()
                if order.key not in self._running:
                    self._running.add(order.key)
                    all_of_them.create_task(self._carry_out(order))

    async def _carry_out(self, order: Order) -> None:
        """Repeats the order until it is no longer in the outbox. An order that is given again meanwhile is still there."""
        try:
            while order.key in self._engine.state.outbox:
                try:
                    if isinstance(order, DeleteExperiments):
                        await self._delete(order.project)
                    else:
                        await self._move(order.project)
                except Exception as error:  # the outbox has it still
                    log.warning("%s is not done yet: %s: %s", order.key, type(error).__name__, error)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._running.discard(order.key)

    # -- deletion ----------------------------------------------------------------------------------------------

    async def _delete(self, project: int) -> None:
        """Deletes some experiments of the project, and the project itself when it has none."""
        deleted = self._deleted
        found = (await self._store.page_experiments(ExperimentQuery(limit=PAGE, project_id=project))).rows
        if not found:
            await self._engine.submit(ForgetProject(project=project))
            return
        problem = await self._order_deletion(found)
        if problem:
            await self._engine.submit(FailProjectDeletion(project=project, problem=problem))
            return
        # Those whose checkpoints are still being removed go when the last one is.
        await deleted.wait()

    async def _order_deletion(self, found: Sequence[Experiment]) -> str:
        """Orders the deletion of experiments. Returns why one of them must not be deleted; "" if all are being deleted."""
        waiting = [experiment.id for experiment in found if experiment.state is not ExperimentState.DELETING]
        problems = await asyncio.gather(*map(self._delete_one, waiting))
        return next(filter(None, problems), "")

    async def _delete_one(self, id_: ExperimentId) -> str:
        """Orders the deletion of an experiment. Returns why it must not be deleted, or ""."""
        try:
            await self._engine.submit(DeleteExperiment(experiment=id_))
        except NotFound:
            log.info("experiment %s was deleted before its project had it deleted", id_)
        except FailedPrecondition as refused:
            return str(refused)
        return ""

    # -- moves -------------------------------------------------------------------------------------------------

    async def _move(self, project: int) -> None:
        """Moves some experiments that have not been moved yet, and records the end when there are none."""
        place = workspaces.need_project(self._engine.state, project).workspace_id
        query = ExperimentQuery(limit=PAGE, project_id=project, not_in_workspace=place)
        found = (await self._store.page_experiments(query)).rows
        if found:
            await asyncio.gather(*(self._follow(experiment.id) for experiment in found))
        else:
            await self._engine.submit(RecordProjectMoved(project=project, workspace=place))

    async def _follow(self, id_: ExperimentId) -> None:
        try:
            await self._engine.submit(FollowProject(experiment=id_))
        except NotFound:
            log.info("experiment %s was deleted before it followed its project", id_)
