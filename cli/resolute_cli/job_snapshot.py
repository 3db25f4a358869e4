"""`det job snapshot` writes what the scheduler sees of a pool; `det job schedule` decides on such a file, without a master."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resolute import printable
from resolute.errors import InvalidInput, NotFound
from resolute_cli.invocation import Invocation
from resolute_cli.job_explain import show_explanation
from resolute_cli.loading import loading

if TYPE_CHECKING:
    from resolute_master.decision.offline import Decided

# -- writing -------------------------------------------------------------------------------------------------------------


def snapshot(cli: Invocation, args: argparse.Namespace) -> None:
    queue = cli.api().queue
    pool = args.resource_pool or _default_pool(cli)
    text = printable.json_escaped(json.dumps(queue.snapshot(pool), indent=2, ensure_ascii=False)) + "\n"
    if args.output is None:
        cli.render.raw(text)
        return
    try:
        args.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--output: {args.output} cannot be written ({error.strerror}); name another file") from None
    cli.render.done(f"Wrote the scheduler's snapshot of pool {pool} to {args.output}", pool=pool, file=str(args.output))


def _default_pool(cli: Invocation) -> str:
    for pool in cli.api().queue.pools():
        if pool.default_compute_pool:
            return pool.name
    raise NotFound("resource pool", "default")


def snapshot_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--resource-pool", help="the pool (default: the one for work with slots)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (default: the standard output)"
    )


# -- deciding ------------------------------------------------------------------------------------------------------------


def schedule(cli: Invocation, args: argparse.Namespace) -> None:
    with loading("the scheduler"):
        from resolute_master.decision import offline  # needs none of what a master needs
    data = _read(args.snapshot, offline.parsed)
    if args.explain is not None:
        show_explanation(cli.render, offline.explained(data, args.set, args.explain))
        return
    decided: Decided = offline.decide(data, args.set)
    if cli.render.format == "json":
        cli.render.value(asdict(decided))
        return
    for line in plan_lines(decided):
        cli.render.line(line)


def schedule_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--snapshot",
        type=Path,
        required=True,
        metavar="FILE",
        help="a file of `det job snapshot`, or of the same format",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the snapshot first, for instance jobs.j1.priority=10; may be given again",
    )
    parser.add_argument("--explain", metavar="JOB_ID", help="explain why this job waits, instead of the plan")


def _read(path: Path, parsed: Callable[[str], object]) -> object:
    try:
        return parsed(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidInput(f"--snapshot: {path} cannot be read ({error.strerror}); name a file") from None
    except InvalidInput as error:
        raise InvalidInput(f"--snapshot: {path}: {error}") from None
    except ValueError as error:
        raise InvalidInput(f"--snapshot: {path} is not JSON ({error}); correct it there") from None


def plan_lines(decided: Decided) -> Iterator[str]:
    """The plan in words, then the allocations that still wait, and why."""
    yield f"Pool {decided.pool} at {decided.now}:"
    for row in decided.place:
        yield f"  start {row['task']} on {_slots(row['on'])}: {row['reason']}"
    for row in decided.preempt:
        yield f"  preempt {row['task']}: {row['reason']}"
    for row in decided.hold:
        agents = ", ".join(f"{agent} ({slots} slot(s))" for agent, slots in row["agents"].items())
        yield f"  keep {agents} for {row['task']} until {row['until']}"
    if decided.machines:
        wanted = ", ".join(decided.machines[:8]) + _more(len(decided.machines) - 8)
        if decided.no_machines:
            yield f"  request no machines, although {wanted} could use some: {decided.no_machines}"
        else:
            yield f"  request machines for {wanted}"
    if not (decided.place or decided.preempt or decided.hold or decided.machines):
        yield "  no change"
    if decided.waiting:
        yield "Waiting:"
    for row in decided.waiting:
        yield f"  {row['task']} of job {row['job']}: {row['reason']}"
    if decided.waiting_count > len(decided.waiting):
        yield f"  and {decided.waiting_count - len(decided.waiting)} more"
    if decided.revisit_at is not None:
        yield f"Next decision at {decided.revisit_at}."


def _slots(on: Mapping[str, Any]) -> str:
    places = (f"{agent} (slots {', '.join(map(str, slots))})" if slots else agent for agent, slots in on.items())
    return ", ".join(places)


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
