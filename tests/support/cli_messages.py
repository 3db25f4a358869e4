"""Messages of a master, for tests of the client and the command line. Keyword arguments change fields."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from resolute.wire.rest import extensions as ext
from resolute.wire.rest.agents import Agent, Container, Device, Slot, SlotStats
from resolute.wire.rest.checkpoints import (
    Checkpoint,
    CheckpointTrainingMetadata,
)
from resolute.wire.rest.enums import (
    DeviceType,
    FittingPolicy,
    JobState,
    JobType,
    LogLevel,
    ResourcePoolType,
    SchedulerType,
    WireCheckpointState,
    WireContainerState,
    WireExperimentState,
    WireTrialState,
)
from resolute.wire.rest.experiments import (
    Experiment,
    JobSummary,
)
from resolute.wire.rest.jobs import Job, LimitedJob
from resolute.wire.rest.logs import TrialLogsResponse
from resolute.wire.rest.metrics import Metrics
from resolute.wire.rest.pools import ResourcePool, ResourcePoolDetail
from resolute.wire.rest.tasks import AllocationSummary, ResourcesSummary, ResourcesSummaryDevices
from resolute.wire.rest.trials import (
    CheckpointWorkload,
    MetricsWorkload,
    Trial,
    WorkloadContainer,
)
from resolute.wire.states import NoticeKind

START = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)
UUID = "6e0f1f0e-7d61-4f3d-9a47-7f1a3f6a9f10"
PASSWORD = "Passw0rdOfTests"


def an_experiment(number: int = 1, **changes: Any) -> Experiment:
    made = Experiment(
        archived=False,
        config={"name": "digits", "searcher": {"name": "single"}},
        id=number,
        job_id=f"job-{number}",
        name="digits",
        num_trials=1,
        original_config="name: digits\n",
        project_id=1,
        project_owner_id=1,
        searcher_type="single",
        start_time=START,
        state=WireExperimentState.RUNNING,
        username="determined",
        progress=0.375,
        resource_pool="default",
        workspace_name="Uncategorized",
        project_name="Uncategorized",
    )
    return replace(made, **changes)


def a_trial(number: int = 1, experiment: int = 1, **changes: Any) -> Trial:
    made = Trial(
        experiment_id=experiment,
        hparams={"learning_rate": 0.1},
        id=number,
        restarts=0,
        start_time=START,
        state=WireTrialState.RUNNING,
        total_batches_processed=30,
        task_id=f"{experiment}.task",
    )
    return replace(made, **changes)


def a_checkpoint(**changes: Any) -> Checkpoint:
    made = Checkpoint(
        uuid=UUID,
        resources={"state/": 0, "state/weights.bin": 5, "metadata.json": 2},
        metadata={"steps_completed": 30},
        state=WireCheckpointState.COMPLETED,
        report_time=START + timedelta(minutes=1),
        training=CheckpointTrainingMetadata(
            experiment_config={"checkpoint_storage": {"type": "shared_fs", "host_path": "/nowhere/at/all"}},
            experiment_id=1,
            trial_id=1,
            searcher_metric=0.25,
            validation_metrics=Metrics(avg_metrics={"loss": 0.25}),
        ),
    )
    return replace(made, **changes)


def a_log_line(number: int, text: str, level: LogLevel = LogLevel.INFO) -> TrialLogsResponse:
    at = START + timedelta(seconds=number)
    return TrialLogsResponse(
        id=str(number),
        level=level,
        message=f"[{at:%Y-%m-%dT%H:%M:%S.%fZ}] 4f1c2a9b || {level.name}: {text}\n",
        timestamp=at,
        trial_id=1,
        log=text,
    )


def a_pool(name: str = "default", **changes: Any) -> ResourcePool:
    made = ResourcePool(
        agent_docker_image="",
        agent_docker_network="",
        agent_docker_runtime="",
        agent_fluent_image="",
        aux_container_capacity=0,
        aux_container_capacity_per_agent=0,
        aux_containers_running=0,
        cluster_name="",
        container_startup_script="",
        default_aux_pool=True,
        default_compute_pool=True,
        description="machines on demand",
        details=ResourcePoolDetail(),
        image_id="",
        instance_type="local",
        location="here",
        master_cert_name="",
        master_url="",
        max_agent_starting_period=60.0,
        max_agents=4,
        max_idle_agent_period=30.0,
        min_agents=0,
        name=name,
        num_agents=1,
        preemptible=True,
        resource_manager_metadata={},
        scheduler_fitting_policy=FittingPolicy.BEST,
        scheduler_type=SchedulerType.PRIORITY,
        slot_type=DeviceType.CPU,
        slots_available=2,
        slots_used=1,
        startup_script="",
        type=ResourcePoolType.STATIC,
        slots_per_agent=2,
    )
    return replace(made, **changes)


def an_agent(name: str = "agent-1") -> Agent:
    device = Device(id=0, brand="Artificial", uuid="d0", type=DeviceType.CPU)
    busy = Container(id="4f1c2a9b", state=WireContainerState.RUNNING, devices=(device,))
    return Agent(
        id=name,
        slot_stats=SlotStats(brand_stats={}, type_stats={}),
        version="0.1.0",
        registered_time=START,
        enabled=True,
        addresses=("127.0.0.1",),
        resource_pools=("default",),
        containers={"4f1c2a9b": busy},
        slots={
            "0": Slot(id="0", enabled=True, device=device, container=busy),
            "1": Slot(id="1", enabled=True, device=device),
        },
    )


def an_allocation_summary() -> AllocationSummary:
    return AllocationSummary(
        allocation_id="1.task.1",
        task_id="1.task",
        name="trial 1",
        slots_needed=1,
        priority=42,
        resource_pool="default",
        registered_time=START,
        resources=(
            ResourcesSummary(container_id="4f1c2a9b", agent_devices={"agent-1": ResourcesSummaryDevices(devices=())}),
        ),
    )


def a_job(number: int = 1) -> Job:
    return Job(
        allocated_slots=1,
        entity_id=str(number),
        is_preemptible=True,
        job_id=f"job-{number}",
        name="digits",
        requested_slots=2,
        resource_pool="default",
        submission_time=START,
        type=JobType.EXPERIMENT,
        username="determined",
        workspace_id=1,
        priority=42,
        summary=JobSummary(jobs_ahead=number - 1, state=JobState.SCHEDULED),
    )


def a_timeline() -> tuple[WorkloadContainer, ...]:
    def report(batches: int, seconds: int, **metrics: float) -> MetricsWorkload:
        at = START + timedelta(seconds=seconds)
        return MetricsWorkload(metrics=Metrics(avg_metrics=metrics), num_inputs=0, total_batches=batches, end_time=at)

    saved = CheckpointWorkload(
        state=WireCheckpointState.COMPLETED,
        total_batches=30,
        uuid=UUID,
        end_time=START + timedelta(seconds=40),
        resources={"state/weights.bin": 5},
        metadata={"steps_completed": 30},
    )
    return (
        WorkloadContainer(training=report(10, 10, loss=0.5)),
        WorkloadContainer(training=report(30, 30, loss=0.3)),
        WorkloadContainer(validation=report(30, 35, accuracy=0.9)),
        WorkloadContainer(checkpoint=saved),
    )


def a_ledger() -> ext.GetLedgerResponse:
    row = ext.LedgerRow(
        paid_s=100.0,
        useful_s=60.0,
        starting_s=20.0,
        checkpointing_s=5.0,
        lost_s=5.0,
        idle_s=10.0,
        cost=0.02,
        steps_lost=3,
    )
    return ext.GetLedgerResponse(
        instances=(ext.InstanceLedger(instance_id="local-1", pool="default", slots=1, price_per_hour=0.72, row=row),),
        totals=row,
        interruptions=(
            ext.Interruption(
                at=START,
                trial_id=1,
                allocation_id="1.task.1",
                instance_id="local-1",
                noticed=True,
                steps_done=30,
                steps_saved=30,
            ),
        ),
    )


def an_instance() -> ext.Instance:
    return ext.Instance(
        id="local-1",
        pool="default",
        token="token-1",
        state="running",
        offer="local",
        observed="running",
        agent_id="agent-1",
        slots=2,
        price_per_hour=0.72,
        requested_at=START,
        paid_from=START + timedelta(seconds=2),
        notice=ext.PreemptionNotice(kind=NoticeKind.INTERRUPTION, deadline=START, reason="taken back"),
    )


def a_tar(files: Mapping[str, bytes]) -> bytes:
    """A gzip tar of these files; names that end in `/` are directories."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


CHECKPOINT_FILES = {"state/": b"", "state/weights.bin": b"12345", "metadata.json": b"{}"}


def a_limited_job() -> LimitedJob:
    return LimitedJob(
        allocated_slots=0,
        is_preemptible=True,
        job_id="job-2",
        requested_slots=1,
        resource_pool="default",
        type=JobType.EXPERIMENT,
        workspace_id=2,
        priority=50,
        summary=JobSummary(jobs_ahead=-1, state=JobState.QUEUED),
    )
