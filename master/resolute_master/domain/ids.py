"""Identity of each noun; the text forms are those of the REST contract."""

from __future__ import annotations

from typing import NewType

ExperimentId = NewType("ExperimentId", int)
TrialId = NewType("TrialId", int)
"""Id of a trial and of its run in the contract."""
JobId = NewType("JobId", str)
TaskId = NewType("TaskId", str)
"""Id of a task: `<experiment id>.<request id>` for a trial."""
AllocationId = NewType("AllocationId", str)
"""Id of an allocation: `<task id>.<n>`, n from 1; for a trial, n is its run counter."""
ContainerId = NewType("ContainerId", str)
AgentId = NewType("AgentId", str)
InstanceId = NewType("InstanceId", str)
UserId = NewType("UserId", int)
SessionId = NewType("SessionId", str)
PoolName = NewType("PoolName", str)


def allocation_id(task: TaskId, number: int) -> AllocationId:
    return AllocationId(f"{task}.{number}")


def task_of(allocation: AllocationId) -> TaskId:
    return TaskId(allocation.rpartition(".")[0])
