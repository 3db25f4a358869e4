"""Runs, which each process of a trial prepares, and their metadata. A run has the id of its trial."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from resolute.errors import InvalidInput
from resolute.wire.rest.trials import (
    GetRunMetadataResponse,
    PostRunMetadataRequest,
    PostRunMetadataResponse,
    RunPrepareForReportingRequest,
    RunPrepareForReportingResponse,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import find_trial, trial_at
from resolute_master.domain.commands import SetRunMetadata
from resolute_master.domain.trial import Trial

MAX_DEPTH = 10
MAX_KEYS = 1000
MAX_KEY_LENGTH = 50
MAX_TEXT_LENGTH = 5000
MAX_ARRAY_LENGTH = 100
FORBIDDEN_IN_KEYS = "$.[]"


async def _announced(call: Call) -> Trial:
    return await find_trial(call.api, (await call.body(RunPrepareForReportingRequest)).run_id)


async def start(call: Call, _: Trial) -> RunPrepareForReportingResponse:
    """Prepares a run for reports. The answer has the number of its storage, which is the same for equal storages."""
    request = await call.body(RunPrepareForReportingRequest)
    return RunPrepareForReportingResponse(storage_id=storage_number(request.checkpoint_storage))


def storage_number(storage: Mapping[str, Any]) -> int:
    """A positive number of 31 bits that depends only on the content of a storage configuration."""
    text = msgspec.json.encode(storage, order="deterministic")
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1 or 1


async def get_metadata(call: Call, trial: Trial) -> GetRunMetadataResponse:
    """The metadata of a run."""
    return GetRunMetadataResponse(metadata=trial.metadata)


async def set_metadata(call: Call, trial: Trial) -> PostRunMetadataResponse:
    """Replaces the metadata of a run."""
    request = await call.body(PostRunMetadataRequest)
    check_metadata(request.metadata)
    await call.api.engine.submit(SetRunMetadata(trial=trial.id, metadata=request.metadata))
    return PostRunMetadataResponse(metadata=request.metadata)


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raises `InvalidInput` for metadata that exceed the limits of size or depth."""
    if _count(metadata, "metadata", 1) > MAX_KEYS:
        raise InvalidInput(f"metadata: has more than {MAX_KEYS} keys; keep large values in files")


def _count(value: Any, where: str, depth: int) -> int:
    """Number of keys, including nested ones."""
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        raise InvalidInput(f"{where}: has {len(value)} characters, over the limit of {MAX_TEXT_LENGTH}")
    if isinstance(value, list) and len(value) > MAX_ARRAY_LENGTH:
        raise InvalidInput(f"{where}: has {len(value)} entries, over the limit of {MAX_ARRAY_LENGTH}")
    if not isinstance(value, Mapping | list):
        return 0
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{where}: is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, list):
        return sum(_count(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value))
    for key in value:
        if len(key) > MAX_KEY_LENGTH or not key or any(char in key for char in FORBIDDEN_IN_KEYS):
            raise InvalidInput(f"{where}: the key {key!r} must have 1 to {MAX_KEY_LENGTH} characters, none of $ . [ ]")
    return len(value) + sum(_count(item, f"{where}.{key}", depth + 1) for key, item in value.items())


ROUTES = (
    Route("POST", "/api/v1/runs/start", Action.REPORT, _announced, start),
    Route("GET", "/api/v1/runs/{runId}/metadata", Action.VIEW, trial_at("runId"), get_metadata),
    Route("POST", "/api/v1/runs/{runId}/metadata", Action.REPORT, trial_at("runId"), set_metadata),
)
