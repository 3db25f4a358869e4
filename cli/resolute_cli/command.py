"""How a noun declares its verbs: names, flags, and what each runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resolute.errors import ResoluteError

if TYPE_CHECKING:
    from resolute_cli.invocation import Invocation

Run = Callable[["Invocation", argparse.Namespace], int | None]
AddArguments = Callable[[argparse.ArgumentParser], object]


class UsageError(ResoluteError):
    """The command was called wrongly in a way that the parser cannot see. Ends with code 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One verb. `help` begins with a verb in small letters: it also ends the sentence "Failed to ...".

    `formats` are the forms that its result has (json, csv, yaml, table); every command has at least JSON.
    """

    name: str
    help: str
    run: Run
    arguments: AddArguments | None = None
    aliases: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("json",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A noun, or a noun below a noun. Called bare it runs `default`, or prints its help when there is none."""

    name: str
    help: str
    commands: Sequence[Command | Group]
    aliases: tuple[str, ...] = ()
    default: str | None = None


def add_group(parser: argparse.ArgumentParser, group: Group) -> None:
    """Fills the parser of a group with its verbs."""
    defaults = [command for command in group.commands if command.name == group.default]
    if defaults and isinstance(defaults[0], Command):
        _fill(parser, defaults[0], positionals=False)
    else:
        parser.set_defaults(show_help=parser)
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    helper = verbs.add_parser("help", help="show this help")
    helper.set_defaults(show_help=parser)
    for command in group.commands:
        child = verbs.add_parser(
            command.name, aliases=list(command.aliases), help=command.help, description=_sentence(command.help)
        )
        if isinstance(command, Group):
            add_group(child, command)
        else:
            _fill(child, command)


def add_command(parser: argparse.ArgumentParser, command: Command) -> None:
    """Fills the parser of a command that has no verbs."""
    _fill(parser, command)


def _fill(parser: argparse.ArgumentParser, command: Command, *, positionals: bool = True) -> None:
    if positionals and command.arguments is not None:
        command.arguments(parser)
    # argparse cannot show the help of a group that is empty.
    forms = parser.add_mutually_exclusive_group() if command.formats else parser
    for form in command.formats:
        forms.add_argument(
            f"--{form}", dest="format", action="store_const", const=form, help=f"print as {form.upper()}"
        )
    parser.set_defaults(run=command.run, task=command.help, format=None, show_help=None)
    if not positionals and command.arguments is not None:
        _set_defaults_of(command.arguments, parser)


def _set_defaults_of(arguments: AddArguments, parser: argparse.ArgumentParser) -> None:
    """A bare group runs its default verb with that verb's default flags."""
    probe = argparse.ArgumentParser(add_help=False)
    arguments(probe)
    parser.set_defaults(**vars(probe.parse_args([])))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


# ---------------------------------------------------------------------------------------------- arguments in common use


def experiment_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=int, help="id of the experiment")


def trial_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial_id", type=int, help="id of the trial")


def paging(parser: argparse.ArgumentParser, limit: int = 200) -> None:
    """`--limit`, `--offset`, `--pages`: with all pages the limit is only their size."""
    parser.add_argument("--limit", type=int, default=limit, help=f"entries a page (default {limit})")
    parser.add_argument("--offset", type=int, default=0, help="entries to skip (default 0)")
    parser.add_argument("--pages", choices=("1", "all"), default="all", help="how many pages to get (default all)")
