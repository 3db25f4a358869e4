"""The last lines of a container that has ended are shipped at once: its slots wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from resolute.clock import SystemClock
from resolute.wire.agent_link import LogBatch
from resolute_agent import logs
from resolute_agent.logs import LogShipper
from resolute_agent.runtimes.scripted import ScriptedRuntime


class Sleepy(ScriptedRuntime):
    """Looks at the output again only when somebody makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = False

    async def output_grown(self, container_id: str, offsets: Mapping[str, int]) -> None:
        await asyncio.Event().wait()

    def read_output(self, container_id: str, stream: str, offset: int, limit: int) -> bytes:
        return self.written[offset : offset + limit] if stream == "stdout" else b""

    def output_ended(self, container_id: str) -> bool:
        return self.ended


async def test_neither_the_next_look_nor_company_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FLUSH_S", 3600.0)
    runtime, sent = Sleepy(), list[LogBatch]()

    def store(batch: LogBatch) -> None:
        sent.append(batch)
        asyncio.get_running_loop().call_soon(shipper.stored, batch.batch)

    shipper = LogShipper(runtime=runtime, clock=SystemClock(), send=store)
    shipper.link_up()
    running = asyncio.create_task(shipper.run())
    shipper.attach("c1", allocation_id="a", task_id="t")
    await asyncio.sleep(0)
    runtime.written, runtime.ended = b"step 1\nthe last line", True
    async with asyncio.timeout(60):
        assert await shipper.drain("c1", 30.0)
    assert [line.log for batch in sent for line in batch.lines] == ["step 1\n", "the last line\n"]
    await shipper.close()
    running.cancel()
