"""Flags and printing of log streams."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from resolute.wire.rest.enums import LogLevel, OrderBy
from resolute_cli.command import UsageError
from resolute_cli.invocation import Invocation
from resolute_cli.render import json_text

if TYPE_CHECKING:
    from resolute.wire.rest.logs import LogsQuery, TaskLogsResponse, TrialLogsResponse

LEVELS = tuple(level.name for level in LogLevel)


def log_flags(parser: argparse.ArgumentParser) -> None:
    """Which lines of a trial to print."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-f", "--follow", action="store_true", help="follow the log until the trial has ended")
    which.add_argument("--head", type=positive, help="maximum number of lines, from the beginning of the log")
    which.add_argument("--tail", type=positive, help="maximum number of lines, from the end of the log")
    parser.add_argument("--agent-id", dest="agent_ids", action="append", default=[], help="only from this agent")
    parser.add_argument(
        "--container-id", dest="container_ids", action="append", default=[], help="only of this container"
    )
    parser.add_argument("--rank-id", dest="rank_ids", type=int, action="append", default=[], help="only of this rank")
    parser.add_argument("--source", dest="sources", action="append", default=[], help="only from this source")
    parser.add_argument("--stdtype", dest="stdtypes", action="append", default=[], help="only stdout or stderr")
    parser.add_argument("--level", choices=LEVELS, help="only this level and those above it")
    parser.add_argument("--timestamp-before", type=time, help="only before this time (RFC 3339)")
    parser.add_argument("--timestamp-after", type=time, help="only after this time (RFC 3339)")


def query_of(args: argparse.Namespace) -> LogsQuery:
    """The query for the flags; with `--tail` from the end."""
    from resolute.wire.rest.logs import LogsQuery

    return LogsQuery(
        follow=args.follow,
        limit=args.head or args.tail or 0,
        order_by=OrderBy.DESC if args.tail else OrderBy.UNSPECIFIED,
        agent_ids=tuple(args.agent_ids),
        container_ids=tuple(args.container_ids),
        rank_ids=tuple(args.rank_ids),
        sources=tuple(args.sources),
        stdtypes=tuple(args.stdtypes),
        levels=levels_from(args.level),
        timestamp_before=args.timestamp_before,
        timestamp_after=args.timestamp_after,
    )


def levels_from(name: str | None) -> tuple[LogLevel, ...]:
    """The named level and every one above it; an empty tuple means all lines."""
    if name is None:
        return ()
    levels = tuple(LogLevel)
    return levels[levels.index(LogLevel[name]) :]


def days_flags(parser: argparse.ArgumentParser) -> None:
    """How long to keep logs; exactly one of the two."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--days", type=int, help="days after the end; -1 is for ever, 0 keeps them until the next clean-up"
    )
    which.add_argument("--forever", dest="days", action="store_const", const=-1, help="for ever")


def print_task_logs(cli: Invocation, task_id: str, query: LogsQuery) -> None:
    """Prints lines as they arrive, as `print_trial_logs` does."""
    lines: Iterator[TaskLogsResponse] = cli.api().cluster.task_logs(task_id, query)
    if query.order_by == OrderBy.DESC:
        lines = reversed(list(lines))
    for line in lines:
        if cli.render.format == "json":
            cli.render.line(json_text(line, indent=None))
        else:
            cli.render.raw(line.message)


def print_trial_logs(cli: Invocation, trial_id: int, query: LogsQuery) -> None:
    """Prints lines as they arrive; the last ones are turned around, because they come newest first."""
    lines: Iterator[TrialLogsResponse] = cli.api().trials.logs(trial_id, query)
    if query.order_by == OrderBy.DESC:
        lines = reversed(list(lines))
    try:
        for line in lines:
            if cli.render.format == "json":
                cli.render.line(json_text(line, indent=None))
            else:
                cli.render.raw(line.message)
    finally:
        if query.follow:
            cli.render.success(f"The log ends here for now. To see it again: det trial logs -f {trial_id}")


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number that is at least 1, and is {text!r}")
    return int(text)


def time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 2024-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; write it like 2024-05-01T12:00:00Z")
    return moment.astimezone(UTC)


def refuse_format_with_follow(args: argparse.Namespace) -> None:
    """JSON of a followed experiment would mix two results on one stream."""
    if args.format is not None and args.follow:
        raise UsageError("follow the log of a trial as JSON with `det trial logs -f --json`")


def moment(text: str) -> datetime:
    """A time, or a duration before now."""
    from resolute.clock import SystemClock
    from resolute.config.durations import parse_duration

    try:
        return SystemClock().now() - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        pass  # no duration, or one that reaches to before all times
    try:
        return time(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; or a duration: 30s, 10m, 1h30m") from None
