"""A bare handler with group commit: the minimal work of a server that stores one report per request.

    python -m benchmarks.ingest_bare DATABASE_URL

It parses the JSON, collects reports while the previous transaction is written, and answers when their own transaction is durable.
It checks no tokens, rules or keys. It writes to the master's table, with its indexes. Prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import asyncpg
from aiohttp import web

TABLE = "metrics"
COLUMNS = ("trial_id", "run_id", "metric_group", "steps_completed", "reported_at", "archived", "metrics")


class Bare:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def report(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        values = body["metrics"]
        row = (
            values["trialId"],
            values["trialRunId"],
            body["group"],
            values["stepsCompleted"],
            int(time.time() * 1e6),
            False,
            json.dumps(values["metrics"]["avgMetrics"]),
        )
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, stored))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await stored
        return web.Response(body=b"{}", content_type="application/json")

    async def _flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            await self._connection.copy_records_to_table(TABLE, records=[row for row, _ in batch], columns=COLUMNS)
            for _, stored in batch:
                stored.set_result(None)
        self._flushing = None


async def main(url: str) -> None:
    connection = await asyncpg.connect(url)
    app = web.Application()
    app.router.add_post("/api/v1/trials/{trialId}/metrics", Bare(connection).report)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
