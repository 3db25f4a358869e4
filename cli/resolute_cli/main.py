"""Entry point of `det`: finds the noun, runs the verb, turns errors into sentences and exit codes.

Exit codes: 0 success, 1 the command failed, 2 it was called wrongly, 3 interrupted. Only the noun that is asked for is
imported, so that help and mistakes are answered at once.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from resolute.errors import PermissionDenied, ResoluteError, Unauthenticated, Unavailable
from resolute_cli.command import UsageError, WordParser, add_words, fill_parser, sentence
from resolute_cli.invocation import Invocation, system_invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Noun:
    """A noun of `det`; its module in `resolute_cli.nouns` holds `NOUN`, a group or a command."""

    name: str
    help: str
    module: str
    aliases: tuple[str, ...] = ()


NOUNS = (
    Noun(name="agent", aliases=("a",), help="manage agents", module="agent"),
    Noun(name="budget", help="show the budgets and their spending", module="budget"),
    Noun(name="checkpoint", aliases=("c",), help="manage checkpoints", module="checkpoint"),
    Noun(name="cost", help="show spending by purpose and by owner", module="cost"),
    Noun(name="decisions", help="list the decisions of scheduler and provisioner, with reasons", module="decisions"),
    Noun(name="deploy", aliases=("d",), help="start and stop clusters", module="deploy"),
    Noun(name="experiment", aliases=("e",), help="manage experiments", module="experiment"),
    Noun(name="instance", aliases=("i",), help="list the machines of elastic pools", module="instance"),
    Noun(name="job", aliases=("j",), help="manage the job queue", module="job"),
    Noun(name="ledger", help="show the use of paid slot-time", module="ledger"),
    Noun(name="master", help="show the master and its configuration", module="master"),
    Noun(name="pool", help="show what elastic pools may buy, and check their configuration", module="pool"),
    Noun(name="preview-search", help="preview a search", module="preview_search"),
    Noun(name="project", aliases=("p",), help="manage projects", module="project"),
    Noun(
        name="resource-pool",
        aliases=("rp",),
        help="list resource pools, and bind them to workspaces",
        module="resource_pool",
    ),
    Noun(name="simulate", help="simulate a pool on a trace of jobs, or replay a journal", module="simulate"),
    Noun(name="slot", aliases=("s",), help="manage slots", module="slot"),
    Noun(name="task", help="list tasks and their logs", module="task"),
    Noun(name="template", aliases=("tpl",), help="manage templates of configurations", module="template"),
    Noun(name="trial", aliases=("t",), help="manage trials", module="trial"),
    Noun(name="user", aliases=("u",), help="manage users and logins", module="user"),
    Noun(name="version", help="show the versions of client and master", module="version"),
    Noun(name="workspace", aliases=("w",), help="manage workspaces", module="workspace"),
)


OBJECTS_BEFORE_COLLECTION = 50_000
"""With Python's 700 a twentieth of a command's instructions were collections that found nothing."""


def main(arguments: Sequence[str] | None = None, invocation: Invocation | None = None) -> int:
    """Runs one command and gives its exit code. `invocation` replaces the process's streams and variables."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What is imported stays, and most commands end before anything else is worth a look.
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    # What httpx needs for a command line of its own (click, rich, pygments) takes longer to import than all the rest.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    if invocation is None:
        atexit.register(gc.freeze)  # else the interpreter visits all objects at its end: a quarter of a short command
    running = invocation if invocation is not None else system_invocation(os.environ)
    try:
        return _run(given, running)
    except BrokenPipeError:
        # The reader of our output is gone; what is still buffered has nowhere to go at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        running.close()


def _run(given: Sequence[str], running: Invocation) -> int:
    render, task = running.render, "run the command"
    try:
        args = build_parser().parse_args(given)
        if args.show_help is not None:
            args.show_help.print_help(render.out)
            return 0
        running.given_master, running.given_user = args.master, args.user
        render.format, task = args.format, args.task
        code: int | None = args.run(running, args)
        render.out.flush()  # here, where a closed pipe is handled
        return code or 0
    except SystemExit as stop:  # how argparse ends
        return stop.code if isinstance(stop.code, int) else 2
    except UsageError as error:
        render.error(str(error))
        return 2
    except KeyboardInterrupt:
        render.error("Interrupting...")
        return 3
    except BrokenPipeError:
        raise
    except ResoluteError as error:
        if _wants_details(running.environ):
            render.error(traceback.format_exc())
        render.error(f"Failed to {task}: {_advice(error, running)}")
        return 1
    except ImportError as error:
        if _wants_details(running.environ) or (told := _missing_part(error)) is None:
            render.error(traceback.format_exc())
            render.error(f"Failed to {task}")
        else:
            render.error(f"Failed to {task}: {told}")
        return 1
    except Exception:
        render.error(traceback.format_exc())
        render.error(f"Failed to {task}")
        return 1


_EXTRAS = {
    "cli": ("httpx", "msgspec", "pathspec", "pydantic", "rich", "yaml"),
    "cli,master": ("aiohttp", "alembic", "cryptography", "jwt", "prometheus_client", "psutil", "re2", "sqlalchemy"),
    "cli,aws": ("boto3", "botocore"),
    "cli,gcp": ("google",),
    "cli,docker": ("docker",),
}
"""Which extras bring what."""


def _missing_part(error: ImportError) -> str | None:
    """One sentence that names the extra; None where the package is none of an extra."""
    name = (error.name or "").partition(".")[0]
    extras = next((extras for extras, names in _EXTRAS.items() if name in names), None)
    if extras is None:
        return None
    return f"it needs the package '{name}', which is not installed; run pip install 'resolute-ml[{extras}]'."


def _advice(error: ResoluteError, running: Invocation) -> str:
    from resolute.client.errors import MasterUnreachable

    text = str(error)
    if isinstance(error, MasterUnreachable):
        return (
            f"{text}. Name the address of a running master with -m or DET_MASTER, or start a cluster on this machine "
            "with `det deploy local cluster-up`."
        )
    if isinstance(error, Unauthenticated):
        return f"{text}. Log in with `det -m {running.master} user login`."
    if isinstance(error, PermissionDenied):
        return f"Forbidden({text}). Ask an administrator of the cluster if you should be allowed to do this."
    if isinstance(error, Unavailable):
        return f"{text}. Try again in a moment."
    return text


def _wants_details(environ: Mapping[str, str]) -> bool:
    return environ.get("DET_DEBUG", "").lower() in ("true", "1", "yes")


# ------------------------------------------------------------------------------------------------------------ parsing


def build_parser() -> argparse.ArgumentParser:
    """The parser of all nouns."""
    parser = WordParser(prog="det", description="Train models on a cluster that grows and shrinks.")
    parser.add_argument("-u", "--user", metavar="USERNAME", help="act as this user")
    parser.add_argument(
        "-m", "--master", metavar="ADDRESS", help="address of the master (default: DET_MASTER, else localhost:8080)"
    )
    parser.add_argument("-v", "--version", action=_ShowVersion, nargs=0, help="show program's version number and exit")
    parser.set_defaults(show_help=parser, run=None, task="run the command", format=None)
    nouns = add_words(parser)
    for noun in NOUNS:
        nouns.add_parser(
            noun.name,
            aliases=list(noun.aliases),
            help=noun.help,
            description=sentence(noun.help),
            fill=partial(_fill_noun, noun=noun),
        )
    return parser


def _fill_noun(parser: argparse.ArgumentParser, noun: Noun) -> None:
    fill_parser(parser, importlib.import_module(f"resolute_cli.nouns.{noun.module}").NOUN)


class _ShowVersion(argparse.Action):
    """Finds the version only when it is requested: the search takes longer than all of the help."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"det {client_version()}")
        parser.exit()


def client_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from resolute import DISTRIBUTION

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from a checkout that is on the path, not installed
        return "0+unknown"


if __name__ == "__main__":
    sys.exit(main())
