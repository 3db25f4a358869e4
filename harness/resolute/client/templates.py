"""Named parts of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from resolute.client.paging import all_pages, segment
from resolute.client.session import Session
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.paging import Pagination
from resolute.wire.rest.templates import (
    GetTemplateResponse,
    GetTemplatesQuery,
    GetTemplatesResponse,
    PatchTemplateConfigResponse,
    PostTemplateResponse,
    PutTemplateResponse,
    Template,
)


@dataclass(frozen=True, slots=True)
class Templates:
    """Calls about templates."""

    session: Session

    def list(self, query: GetTemplatesQuery | None = None) -> tuple[Template, ...]:
        asked = query or GetTemplatesQuery()

        def fetch(offset: int) -> tuple[tuple[Template, ...], Pagination]:
            page = self.session.get("api/v1/templates", GetTemplatesResponse, replace(asked, offset=offset))
            return page.templates, page.pagination

        return tuple(all_pages(fetch, asked.offset))

    def get(self, name: str) -> Template:
        return self.session.get(_path(name), GetTemplateResponse).template

    def create(self, template: Template) -> Template:
        """Raises `AlreadyExists` when the name is taken."""
        return self.session.post(_path(template.name), PostTemplateResponse, template).template

    def put(self, template: Template) -> Template:
        """Create the template, or replace the configuration of an existing one."""
        return self.session.put(_path(template.name), PutTemplateResponse, template).template

    def set_config(self, name: str, config: Mapping[str, Any]) -> Template:
        """Replaces the whole configuration of an existing template."""
        return self.session.patch(_path(name), PatchTemplateConfigResponse, config).template

    def delete(self, name: str) -> None:
        self.session.delete(_path(name), Empty)


def _path(name: str) -> str:
    return f"api/v1/templates/{segment(name)}"
