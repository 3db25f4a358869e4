"""How much of a task's output an agent holds in memory, and how much of it is in one batch."""

from __future__ import annotations

import asyncio

from resolute.clock import SystemClock
from resolute.wire.agent_link import LogBatch
from resolute_agent.logs import BATCH_BYTES, PENDING_BYTES, LogShipper
from resolute_agent.runtimes.scripted import ScriptedRuntime, ScriptedTask
from support.agent_scripts import a_container, a_context
from support.agent_virtual import run_virtually

LINE = "x" * 4095 + "\n"


async def writes_much(task: ScriptedTask) -> int:
    task.write(LINE * (8 * PENDING_BYTES // len(LINE)))
    return 0


class ReadRuntime(ScriptedRuntime):
    """Knows up to where the output of each container was read."""

    def __init__(self) -> None:
        super().__init__(program=writes_much)
        self.read_to: dict[str, int] = {}

    def read_output(self, container_id: str, stream: str, offset: int, limit: int) -> bytes:
        data = super().read_output(container_id, stream, offset, limit)
        self.read_to[container_id] = max(self.read_to.get(container_id, 0), offset + len(data))
        return data


async def shipping(containers: int) -> tuple[ReadRuntime, LogShipper, list[LogBatch]]:
    """Containers that have written much more than may be held; nothing is sent before the shipper runs."""
    runtime, sent = ReadRuntime(), list[LogBatch]()
    shipper = LogShipper(runtime=runtime, clock=SystemClock(), send=sent.append)
    for number in range(containers):
        name = f"c{number}"
        await runtime.start(a_container("", name, command=("true",)), a_context())
        await runtime.wait(name)
        shipper.attach(name, allocation_id="a", task_id="t")
    await asyncio.sleep(60)
    return runtime, shipper, sent


def test_of_one_container_so_much_is_read_as_may_be_held() -> None:
    async def scenario() -> None:
        runtime, shipper, _ = await shipping(2)
        assert runtime.read_to == {"c0": PENDING_BYTES, "c1": PENDING_BYTES}
        await shipper.close()

    run_virtually(scenario())


def test_a_batch_is_closed_at_so_many_bytes() -> None:
    async def scenario() -> None:
        _, shipper, sent = await shipping(4)
        shipper.link_up()
        running = asyncio.create_task(shipper.run())
        await asyncio.sleep(60)
        sizes = [sum(len(line.log) for line in batch.lines) for batch in sent]
        assert len(sizes) > 1
        # The line of each container that reaches its part is in it as a whole.
        assert all(BATCH_BYTES <= size < BATCH_BYTES + 4 * len(LINE) for size in sizes), sizes
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await shipper.close()

    run_virtually(scenario())
