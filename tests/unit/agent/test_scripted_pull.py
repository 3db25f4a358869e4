"""A start that takes longer than a lease: what is renewed meanwhile lives on."""

from __future__ import annotations

import asyncio

import pytest

from resolute.wire.agent_link import ContainerSpec
from resolute.wire.states import FailureKind, TaskType
from resolute_agent.runtimes.base import TaskContext
from resolute_agent.runtimes.scripted import SCRIPT_VARIABLE, ScriptedRuntime
from support.agent_virtual import run_virtually

SPEC = ContainerSpec(
    container_id="c",
    allocation_id="a",
    task_id="t",
    task_type=TaskType.TRIAL,
    description="",
    slots=(0,),
    environment={SCRIPT_VARIABLE: "pull 100s; run 5s"},
    command=("true",),
)


@pytest.mark.parametrize(("renewed", "failure"), [(True, None), (False, FailureKind.AGENT_FAILED)])
def test_a_long_pull_uses_up_no_lease_that_is_renewed(renewed: bool, failure: FailureKind | None) -> None:
    async def live() -> FailureKind | None:
        runtime = ScriptedRuntime()

        async def renew() -> None:
            for _ in range(9):
                await asyncio.sleep(10)
                runtime.renew("c", 30.0)

        beats = asyncio.create_task(renew() if renewed else asyncio.sleep(0))
        await runtime.start(SPEC, TaskContext(environment={}, devices=(), lease_s=30.0))
        exit = await runtime.wait("c")
        await beats
        return exit.failure

    assert run_virtually(live()) is failure
