"""Runs the part of a master that deletes and moves the experiments of a project."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from resolute_master.engine.engine import Engine
from resolute_master.engine.project_contents import ProjectContents
from resolute_master.store.base import Store


@asynccontextmanager
async def contents_at_work(engine: Engine, store: Store) -> AsyncIterator[None]:
    task = asyncio.create_task(ProjectContents(engine, store).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
