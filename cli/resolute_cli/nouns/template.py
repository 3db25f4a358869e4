"""`det template`: named parts of configurations, for experiments that name them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import yaml

from resolute.wire.rest.templates import Template
from resolute_cli.command import Command, Group
from resolute_cli.configuration_files import configuration_text
from resolute_cli.invocation import Invocation
from resolute_cli.render import Block, yaml_text


def list_templates(cli: Invocation, args: argparse.Namespace) -> None:
    api = cli.api()
    found = api.templates.list()
    names = {workspace.id: workspace.name for workspace in api.cluster.workspaces()}
    columns = ("Name", "Workspace", *(("Config",) if args.details else ()))
    rows = [
        (
            template.name,
            names.get(template.workspace_id, template.workspace_id),
            *((Block(yaml_text(template.config).splitlines()),) if args.details else ()),
        )
        for template in found
    ]
    cli.render.table(columns, rows, found)


def describe(cli: Invocation, args: argparse.Namespace) -> None:
    cli.render.value(cli.api().templates.get(args.template_name).config)


def create(cli: Invocation, args: argparse.Namespace) -> None:
    api = cli.api()
    place = {} if args.workspace is None else {"workspace_id": api.cluster.workspace_named(args.workspace).id}
    api.templates.create(Template(name=args.template_name, config=_config(args.template_file), **place))
    cli.render.done(f"Created template {args.template_name}", name=args.template_name)


def put(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().templates.put(Template(name=args.template_name, config=_config(args.template_file)))
    cli.render.done(f"Set template {args.template_name}", name=args.template_name)


def set_config(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().templates.set_config(args.template_name, _config(args.template_file))
    cli.render.done(f"Set the configuration of template {args.template_name}", name=args.template_name)


def remove(cli: Invocation, args: argparse.Namespace) -> None:
    cli.api().templates.delete(args.template_name)
    cli.render.done(f"Removed template {args.template_name}", name=args.template_name)


def _config(path: str) -> Mapping[str, Any]:
    """Raises `UsageError` for a file that holds no mapping."""
    config: dict[str, Any] = yaml.safe_load(configuration_text(path, []))
    return config


def _name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("template_name", help="name of the template")


def _name_and_file(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument("template_file", help="the configuration (YAML)")


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    _name_and_file(parser)
    parser.add_argument(
        "-w", "--workspace", "--workspace-name", help="workspace of the template (default: Uncategorized)"
    )


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-d", "--details", action="store_true", help="show the configurations, too")


NOUN = Group(
    name="template",
    help="manage templates of configurations",
    default="list",
    commands=(
        Command(
            name="list",
            aliases=("ls",),
            help="list templates",
            run=list_templates,
            arguments=_list_arguments,
            formats=("json", "csv"),
        ),
        Command(name="describe", help="show a template", run=describe, arguments=_name, formats=("json", "yaml")),
        Command(name="create", help="create a template", run=create, arguments=_create_arguments),
        Command(name="set", help="create a template, or replace its configuration", run=put, arguments=_name_and_file),
        Group(
            name="set-value",
            help="set a property of a template",
            commands=(
                Command(
                    name="config",
                    help="replace the configuration of a template",
                    run=set_config,
                    arguments=_name_and_file,
                ),
            ),
        ),
        Command(name="remove", aliases=("rm",), help="remove a template", run=remove, arguments=_name),
    ),
)
