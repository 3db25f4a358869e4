"""The checkpoint that the trials of a new experiment start from, found and checked before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute.errors import InvalidInput, NotFound
from resolute.wire.states import CheckpointState
from resolute_master.api.context import ApiContext
from resolute_master.api.reading.finders import find_checkpoint, find_trial
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.store.base import CheckpointQuery


async def with_source(api: ApiContext, searcher: Mapping[str, Any]) -> dict[str, Any]:
    """The searcher's part of a configuration with `source_checkpoint_uuid` as the checkpoint that counts.

    `source_trial_id` beats a UUID beside it, and means the trial's newest checkpoint at this moment: every trial of a search
    starts from the same one, also those that are created later. Raises `InvalidInput` for what is unknown or has no files.
    """
    trial, uuid = searcher.get("source_trial_id"), searcher.get("source_checkpoint_uuid")
    if trial is not None:
        return {**searcher, "source_checkpoint_uuid": (await _newest(api, trial)).uuid}
    if uuid is not None:
        return {**searcher, "source_checkpoint_uuid": (await _named(api, uuid)).uuid}
    return dict(searcher)


async def _newest(api: ApiContext, trial_id: int) -> Checkpoint:
    key = "config.searcher.source_trial_id"
    try:
        trial = await find_trial(api, trial_id)
    except NotFound:
        raise InvalidInput(
            f"{key}: there is no trial {trial_id}; `det trial list` shows those of an experiment"
        ) from None
    query = CheckpointQuery(trial_id=trial.id, states=(CheckpointState.COMPLETED,))
    found = await api.store.checkpoints(query)
    if not found:
        raise InvalidInput(f"{key}: trial {trial_id} has no completed checkpoint; name a trial that has saved one")
    return max(found, key=lambda each: (each.steps_completed, each.reported_at, each.uuid))


async def _named(api: ApiContext, uuid: str) -> Checkpoint:
    key = "config.searcher.source_checkpoint_uuid"
    try:
        found = await find_checkpoint(api, uuid.lower())
    except NotFound:
        raise InvalidInput(
            f"{key}: there is no checkpoint '{uuid}'; `det experiment list-checkpoints` shows those of an experiment"
        ) from None
    if found.state is not CheckpointState.COMPLETED:
        raise InvalidInput(f"{key}: checkpoint '{uuid}' is {found.state}; name one that is COMPLETED")
    return found
