"""Where experiments belong, and which pools are for whom."""

from __future__ import annotations

from dataclasses import dataclass

from resolute_master.domain.ids import PoolName, UserId

UNCATEGORIZED = "Uncategorized"
"""The workspace, and the project in it, that always exist and do not change."""

UNCATEGORIZED_ID = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The default pools are for work that names no pool; None takes the cluster's."""

    id: int
    name: str
    owner: UserId
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None

    @property
    def immutable(self) -> bool:
        return self.id == UNCATEGORIZED_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A part of a workspace; `key` is its short name, unique in the cluster."""

    id: int
    workspace_id: int
    name: str
    key: str
    owner: UserId
    description: str = ""

    @property
    def immutable(self) -> bool:
        return self.id == UNCATEGORIZED_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBinding:
    """The pool `id` is for these workspaces only. A pool without a binding is for everybody."""

    id: PoolName
    workspaces: tuple[int, ...]
    """Ids, at least one, in order."""
