"""How a noun declares its verbs: names, flags, and what each runs."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from resolute import printable
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


class WordParser(argparse.ArgumentParser):
    """A parser that distinguishes a command that does not exist yet from an unknown one."""

    def error(self, message: str) -> NoReturn:
        from resolute_cli.not_yet import explained

        told = explained(self.prog, message)
        if told is not None:
            self.exit(2, f"{told}\n")
        super().error(printable.lines(message))


class LateParser(WordParser):
    """A parser that is made when it is first looked into, and then filled by `fill`.

    There are more than a hundred words below `det` and a call uses two of them; to make the parsers of the others takes
    longer than the call itself.
    """

    def __init__(self, *, fill: Callable[[argparse.ArgumentParser], object], **settings: Any) -> None:
        self._unmade = fill, settings

    def __getattr__(self, name: str) -> Any:
        """Asked only for what is not there: what the parser's own `__init__` sets, as long as it did not run."""
        if "_unmade" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        fill, settings = vars(self).pop("_unmade")
        super().__init__(**settings)
        fill(self)
        return getattr(self, name)


def add_words(parser: argparse.ArgumentParser) -> argparse._SubParsersAction[LateParser]:
    """Gives a parser words below it, of which the first shows its help. Each is added with what fills its parser."""
    words = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=LateParser)
    words.add_parser("help", help="show this help", fill=lambda helper: helper.set_defaults(show_help=parser))
    return words


def fill_parser(parser: argparse.ArgumentParser, declared: Command | Group) -> None:
    """Gives a parser the flags of a command, or the verbs of a group."""
    if isinstance(declared, Command):
        _fill(parser, declared)
        return
    defaults = [command for command in declared.commands if command.name == declared.default]
    if defaults and isinstance(defaults[0], Command):
        _fill(parser, defaults[0], positionals=False)
    else:
        parser.set_defaults(show_help=parser)
    verbs = add_words(parser)
    for command in declared.commands:
        verbs.add_parser(
            command.name,
            aliases=list(command.aliases),
            help=command.help,
            description=sentence(command.help),
            fill=partial(fill_parser, declared=command),
        )


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


def sentence(text: str) -> str:
    """A help as a description."""
    return text[:1].upper() + text[1:] + "."


# ---------------------------------------------------------------------------------------------- arguments in common use


def not_negative(text: str) -> float:
    """The type of an argument that is a number from 0 on."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"must be a number that is at least 0, and is {text!r}")
    return value


def amount(text: str) -> float:
    """The type of an argument that is a sum of money that may be spent."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"must be a number greater than 0, and is {text!r}")
    return value


def experiment_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment_id", type=int, help="id of the experiment")


def trial_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial_id", type=int, help="id of the trial")


def paging(parser: argparse.ArgumentParser, limit: int = 200) -> None:
    """`--limit`, `--offset`, `--pages`: with all pages the limit is only their size."""
    parser.add_argument("--limit", type=int, default=limit, help=f"entries a page (default {limit})")
    parser.add_argument("--offset", type=int, default=0, help="entries to skip (default 0)")
    parser.add_argument("--pages", choices=("1", "all"), default="all", help="how many pages to get (default all)")
