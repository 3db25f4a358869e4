"""Templates: configuration with a name, merged under what is submitted."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from resolute.wire.rest.enums import OrderBy, TemplateSortBy
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """`config` is part of a configuration."""

    config: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    workspace_id: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTemplatesResponse:
    """A page of templates."""

    pagination: Pagination
    templates: tuple[Template, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTemplateResponse:
    """One template."""

    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTemplateResponse:
    """The created template."""

    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTemplateResponse:
    """The created or replaced template."""

    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTemplateConfigResponse:
    """The template with its new configuration."""

    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTemplateNameRequest:
    """Give a template another name."""

    new_name: str
    old_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchTemplateNameResponse:
    """The template under its new name."""

    template: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTemplatesQuery:
    """Query of the template list; `name` is part of the name."""

    limit: int = 0
    name: str | None = None
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_by: TemplateSortBy = TemplateSortBy.UNSPECIFIED
    workspace_ids: tuple[int, ...] = ()
