"""`det master`: identity, configuration and log of the master."""

from __future__ import annotations

import argparse

from resolute import printable
from resolute.wire.rest.enums import LogLevel
from resolute_cli.command import Command, Group, UsageError
from resolute_cli.invocation import Invocation
from resolute_cli.logs import LEVELS, moment, positive
from resolute_cli.render import json_text, time_text


def info(cli: Invocation, args: argparse.Namespace) -> None:
    cli.render.value(cli.api().cluster.master())


def config(cli: Invocation, args: argparse.Namespace) -> None:
    cli.render.value(cli.api().cluster.config())


def set_config(cli: Invocation, args: argparse.Namespace) -> None:
    if args.level is None and args.color is None:
        raise UsageError("nothing to set; give --log.level or --log.color")
    cli.api().cluster.set_log(
        level=None if args.level is None else LogLevel[args.level],
        color=None if args.color is None else args.color == "on",
    )
    given = {"log.level": args.level, "log.color": args.color}
    text = ", ".join(f"{name} {value}" for name, value in given.items() if value is not None)
    cli.render.done(f"Set {text} until the master's next start", **given)


def _set_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log.level", dest="level", type=str.upper, choices=LEVELS, help="minimum level of lines")
    parser.add_argument("--log.color", dest="color", choices=("on", "off"), help="colours of lines")


def logs(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.master import MasterLogsQuery

    query = MasterLogsQuery(follow=args.follow, offset=-args.tail if args.tail else 0, timestamp_after=args.since)
    for entry in cli.api().cluster.logs(query):
        if cli.render.format == "json":
            cli.render.paragraph(json_text(entry, indent=None))
        else:
            level = entry.level.value.removeprefix("LOG_LEVEL_")
            about = " ".join(printable.one_line(f"{name}={value}") for name, value in entry.fields.items())
            first, newline, rest = entry.message.partition("\n")
            cli.render.paragraph(
                f"{time_text(entry.timestamp)} [{level}]: {first}{about and f' [{about}]'}{newline}{rest}"
            )


def _log_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log")
    parser.add_argument("--tail", type=positive, help="maximum number of lines, from the end of the log")
    parser.add_argument(
        "--since", type=moment, help="only after this time (RFC 3339), or of this last period (10m, 1h30m)"
    )


NOUN = Group(
    name="master",
    help="show the master and its configuration",
    commands=(
        Command(name="info", help="show the master's identity", run=info, formats=("json", "yaml")),
        Group(
            name="config",
            help="show or change the master's configuration",
            default="show",
            commands=(
                Command(name="show", help="show the master's configuration", run=config, formats=("json", "yaml")),
                Command(
                    name="set",
                    help="set the master's log until its next start",
                    run=set_config,
                    arguments=_set_arguments,
                ),
            ),
        ),
        Command(name="logs", help="show the master's log", run=logs, arguments=_log_arguments),
    ),
)
