"""Checkpoints: reported, shown, changed, deleted."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from resolute.errors import InvalidInput
from resolute.wire.rest.checkpoints import Checkpoint as WireCheckpoint
from resolute.wire.rest.checkpoints import (
    CheckpointsRemoveFilesRequest,
    DeleteCheckpointsRequest,
    GetCheckpointResponse,
    PatchCheckpointsRequest,
    PostCheckpointMetadataRequest,
    PostCheckpointMetadataResponse,
)
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import WireCheckpointState
from resolute_master.api.auth.authorise import Action, AllocationRef
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import checkpoint_at, find_checkpoint
from resolute_master.api.reading.listing import show_checkpoint
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import (
    DeleteCheckpoints,
    RemoveCheckpointFiles,
    ReportCheckpoint,
    SetCheckpointMetadata,
    SetCheckpointResources,
)
from resolute_master.domain.ids import AllocationId

REPORTABLE = (WireCheckpointState.UNSPECIFIED, WireCheckpointState.COMPLETED)


# --------------------------------------------------------------------------------------------------------- reports


async def _reported_by(call: Call) -> AllocationRef:
    """The allocation of the report, which determines the callers that may send it."""
    body = await call.body(WireCheckpoint)
    # An unmanaged trial has no allocations and reports in the name of its task.
    reported_by = body.allocation_id or body.task_id
    if not reported_by:
        raise InvalidInput("allocationId: only a running trial reports checkpoints; send its allocation")
    return AllocationRef(AllocationId(reported_by))


async def report(call: Call, allocation: AllocationRef) -> Empty:
    """Reports a checkpoint. The uuid is the key, so a repeated report is harmless."""
    body = await call.body(WireCheckpoint)
    await call.api.engine.submit(
        ReportCheckpoint(
            uuid=_uuid(body.uuid),
            allocation=allocation.id,
            steps_completed=_checked(body),
            resources=body.resources,
            metadata=body.metadata,
            storage_id=body.storage_id,
        )
    )
    return Empty()


def _checked(body: WireCheckpoint) -> int:
    """The number of steps of a reported checkpoint."""
    if body.state not in REPORTABLE:
        raise InvalidInput(f"state: {body.state} cannot be reported; report a checkpoint when it is complete")
    if any(size < 0 for size in body.resources.values()):
        raise InvalidInput("resources: a file has a negative size; send sizes of at least 0")
    steps = body.metadata.get("steps_completed")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise InvalidInput(
            f"metadata.steps_completed: {steps!r} is no number of steps; give the number of steps after which it was saved"
        )
    return steps


def _uuid(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise InvalidInput(f"uuid: '{text}' is no UUID") from None


# ------------------------------------------------------------------------------------------------- show and change


async def get_checkpoint(call: Call, checkpoint: Checkpoint) -> GetCheckpointResponse:
    """A checkpoint."""
    return GetCheckpointResponse(checkpoint=await show_checkpoint(call.api, checkpoint))


async def set_metadata(call: Call, checkpoint: Checkpoint) -> PostCheckpointMetadataResponse:
    """Replaces the metadata that the user gave. The number of steps, on which rules depend, stays."""
    body = (await call.body(PostCheckpointMetadataRequest)).checkpoint
    if body is None:
        raise InvalidInput("checkpoint: missing; send the checkpoint with its new metadata")
    metadata = {**body.metadata, "steps_completed": checkpoint.steps_completed}
    await call.api.engine.submit(SetCheckpointMetadata(uuid=checkpoint.uuid, metadata=metadata))
    changed = await find_checkpoint(call.api, checkpoint.uuid)
    return PostCheckpointMetadataResponse(checkpoint=await show_checkpoint(call.api, changed))


async def _patched(call: Call) -> tuple[Checkpoint, ...]:
    body = await call.body(PatchCheckpointsRequest)
    return await _all(call, (patch.uuid for patch in body.checkpoints))


async def _all(call: Call, uuids: Iterable[str]) -> tuple[Checkpoint, ...]:
    return tuple([await find_checkpoint(call.api, uuid) for uuid in uuids])


async def patch(call: Call, _: tuple[Checkpoint, ...]) -> Empty:
    """Stores the list of the remaining files, which the task that removed the others reports."""
    body = await call.body(PatchCheckpointsRequest)
    for one in body.checkpoints:
        if one.resources is not None:
            command = SetCheckpointResources(uuid=one.uuid, resources=one.resources.resources)
            await call.api.engine.submit(command)
    return Empty()


async def _deleted(call: Call) -> tuple[Checkpoint, ...]:
    return await _all(call, (await call.body(DeleteCheckpointsRequest)).checkpoint_uuids)


async def delete(call: Call, checkpoints: tuple[Checkpoint, ...]) -> Empty:
    """Orders the deletion of checkpoints. The files are removed after the answer."""
    if not checkpoints:
        raise InvalidInput("checkpointUuids: name at least one checkpoint")
    await call.api.engine.submit(DeleteCheckpoints(uuids=tuple(c.uuid for c in checkpoints)))
    return Empty()


async def _thinned(call: Call) -> tuple[Checkpoint, ...]:
    return await _all(call, (await call.body(CheckpointsRemoveFilesRequest)).checkpoint_uuids)


async def remove_files(call: Call, checkpoints: tuple[Checkpoint, ...]) -> Empty:
    """Orders the removal of files. They are removed after the answer; then the checkpoint lists the rest."""
    if not checkpoints:
        raise InvalidInput("checkpointUuids: name at least one checkpoint")
    globs = (await call.body(CheckpointsRemoveFilesRequest)).checkpoint_globs
    await call.api.engine.submit(RemoveCheckpointFiles(uuids=tuple(c.uuid for c in checkpoints), globs=globs))
    return Empty()


ROUTES = (
    Route("POST", "/api/v1/checkpoints/rm", Action.CONTROL_EXPERIMENT, _thinned, remove_files),
    Route("POST", "/api/v1/checkpoints", Action.REPORT, _reported_by, report),
    Route("PATCH", "/api/v1/checkpoints", Action.REPORT, _patched, patch),
    Route("DELETE", "/api/v1/checkpoints", Action.CONTROL_EXPERIMENT, _deleted, delete),
    Route("GET", "/api/v1/checkpoints/{checkpointUuid}", Action.VIEW, checkpoint_at("checkpointUuid"), get_checkpoint),
    Route(
        "POST",
        "/api/v1/checkpoints/{checkpointUuid}/metadata",
        Action.CONTROL_EXPERIMENT,
        checkpoint_at("checkpointUuid"),
        set_metadata,
    ),
)
