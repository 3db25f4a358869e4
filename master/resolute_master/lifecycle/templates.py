"""Templates: created, replaced, renamed, deleted. Their content is checked before the command."""

from __future__ import annotations

from resolute.errors import AlreadyExists, NotFound
from resolute_master.domain.administration import PutTemplate, RenameTemplate
from resolute_master.domain.copies import replace
from resolute_master.domain.template import Template
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.step import Step


def need(step: Step, name: str) -> Template:
    found = step.get(Template, name)
    if found is None:
        raise NotFound("template", name)
    return found


def put(step: Step, command: PutTemplate) -> None:
    before = step.get(Template, command.name)
    if command.replace and before is None:
        raise NotFound("template", command.name)
    if command.replace is False and before is not None:
        raise AlreadyExists(f"template '{command.name}' exists already; change it, or choose another name")
    if before is None:
        workspaces.check_workspace_open(workspaces.need_workspace(step, command.workspace_id))
    new = Template(id=command.name, config=command.config, workspace_id=command.workspace_id, owner=command.owner)
    step.put(new if before is None else replace(before, config=command.config))


def rename(step: Step, command: RenameTemplate) -> None:
    before = need(step, command.name)
    if command.name == command.new_name:
        return
    if step.get(Template, command.new_name) is not None:
        raise AlreadyExists(f"template '{command.new_name}' exists already; choose another name")
    step.delete(before)
    step.put(replace(before, id=command.new_name))


def delete(step: Step, name: str) -> None:
    step.delete(need(step, name))
