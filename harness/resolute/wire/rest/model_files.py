"""The files of an experiment's context directory, one by one, and the values by which a log can be filtered.

GET  /api/v1/experiments/{experimentId}/file_tree   GetModelDefTreeResponse
POST /api/v1/experiments/{experimentId}/file        GetModelDefFileRequest -> GetModelDefFileResponse
GET  /api/v1/trials/{trialId}/logs/fields           stream of TrialLogsFieldsResponse
GET  /api/v1/tasks/{taskId}/logs/fields             stream of TaskLogsFieldsResponse
"""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNode:
    """A file or a directory with what is in it; `path` is from the context directory on."""

    content_length: int
    content_type: str
    is_dir: bool
    modified_time: datetime
    name: str
    path: str
    files: tuple[FileNode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetModelDefTreeResponse:
    """What is in the context directory itself, by name."""

    files: tuple[FileNode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetModelDefFileRequest:
    """Which file; the experiment of the path counts."""

    experiment_id: int | None = None
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetModelDefFileResponse:
    """Its content."""

    file: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFieldsQuery:
    """`follow`: also of the lines that are still to come."""

    follow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLogsFieldsResponse:
    """Values of the lines that were not sent before."""

    agent_ids: tuple[str, ...] = ()
    container_ids: tuple[str, ...] = ()
    rank_ids: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    stdtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLogsFieldsResponse:
    """The same of a task, with its allocations."""

    agent_ids: tuple[str, ...] = ()
    allocation_ids: tuple[str, ...] = ()
    container_ids: tuple[str, ...] = ()
    rank_ids: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    stdtypes: tuple[str, ...] = ()
