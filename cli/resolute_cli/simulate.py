"""`det simulate`: the production scheduler and planner on a trace, under virtual time; and a recorded journal once more.

Both run here, without a master. They are loaded when they are requested: a command line alone does not need them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from resolute.errors import InvalidInput
from resolute_cli.command import UsageError, not_negative
from resolute_cli.invocation import Invocation
from resolute_cli.loading import loading
from resolute_cli.render import duration_text, percent_text

if TYPE_CHECKING:
    from resolute_sim.twin.compare import Request

MOST_PROCESSES, LONGEST_S = 64, 86_400.0
SIMULATOR = ("the simulator", "cli,master")
DEFAULTS = {
    "seed": 0,
    "boot": 180.0,
    "notice": 120.0,
    "restart": 60.0,
    "save": 10.0,
    "checkpoint_every": 1800.0,
    "processes": 2,
}
"""Default options of a simulation; times in seconds. The parser leaves None instead, so that options that were given can be
recognised."""

OF_A_SIMULATION = (
    "pool",
    "jobs",
    "spot",
    "policy",
    "resource_pool",
    "first_day",
    "last_day",
    "html",
    "frontier",
    *DEFAULTS,
)
"""Flags that mean nothing to a recorded journal."""


def simulate(cli: Invocation, args: argparse.Namespace) -> int:
    if args.journal is not None:
        _check_journal_alone(args)
        return _replay(cli, args)
    if args.config_file is not None:
        raise UsageError("--config-file goes with --journal only; name the pool's configuration with --pool")
    if args.pool is None or args.jobs is None:
        raise UsageError("name the pool with --pool and the jobs with --jobs, or a recorded journal with --journal")
    with loading(*SIMULATOR):
        from resolute_sim.twin import compare
    request = _request(compare, args)
    _check_outputs(args)
    setting = compare.setting_of(request)
    with cli.render.progress("jobs", counted=True) as progress:
        found = compare.simulate_all(
            compare.variants_of(request, setting), request.processes, tell=cli.render.status, progress=progress
        )
    reports, settings = compare.split(request, found)
    report: dict[str, Any] = compare.as_json(request, setting, reports, settings)
    _table(cli, report)
    if settings:
        _frontier_table(cli, report)
    if args.json is not None:
        _write("--json", args.json, json.dumps(report, indent=2) + "\n")
    if args.html is not None:
        subtitle = (
            f"{len(setting.jobs)} jobs of {request.jobs}; seed {request.seed}; machines start in {request.boot_s:g} s"
        )
        with loading(*SIMULATOR):
            from resolute_sim.twin.page import page
        _write("--html", args.html, page(f"Pool {setting.pool.name}, simulated", subtitle, reports, settings))
    return 0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pool", type=Path, metavar="POOL.yaml", help="an entry of resource_pools, or a master.yaml")
    parser.add_argument("--resource-pool", metavar="NAME", help="name of the pool, for a file with several pools")
    parser.add_argument(
        "--jobs",
        type=Path,
        metavar="JOBS.csv",
        help="columns job_id, submit_s, duration_s, slots, group, and others that docs/simulation.md lists; or 'synthetic' for a "
        "trace made from the seed",
    )
    parser.add_argument(
        "--spot", type=Path, action="append", default=[], metavar="FILE_OR_DIR", help="traces of capacity and price"
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="NAME",
        help="resolute (the default), determined, static, cheapest, packing; may be given again",
    )
    parser.add_argument(
        "--frontier",
        action="store_true",
        help="show cost and waiting under other values of max_idle_cost, consolidation and spot_fallback, too",
    )
    parser.add_argument("--seed", type=int, help="seed of all random choices (default 0)")
    parser.add_argument(
        "--first-day",
        type=not_negative,
        metavar="DAY",
        help="first simulated day of the trace; earlier jobs are left out",
    )
    parser.add_argument(
        "--last-day", type=not_negative, metavar="DAY", help="first day of the trace that is not simulated"
    )
    _overhead_arguments(parser)
    parser.add_argument("--processes", type=int, help="policies that run at a time (default 2)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures to this file")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write a page with plots to this file")
    parser.add_argument(
        "--journal", metavar="DIR_OR_DB", help="replay a recorded journal instead: a state directory, file or URL"
    )
    parser.add_argument(
        "--config-file", type=Path, metavar="FILE", help="with --journal: the configuration under which it ran"
    )


def _overhead_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--boot",
        type=not_negative,
        metavar="SECONDS",
        help="time from the launch of a machine to its join (default 180)",
    )
    parser.add_argument(
        "--notice",
        type=not_negative,
        metavar="SECONDS",
        help="time from a notice to the end of the machine (default 120)",
    )
    parser.add_argument(
        "--restart", type=not_negative, metavar="SECONDS", help="time to resume from a checkpoint (default 60)"
    )
    parser.add_argument(
        "--save", type=not_negative, metavar="SECONDS", help="time to save at a preemption (default 10)"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=not_negative,
        metavar="SECONDS",
        help="time between two checkpoints, the most that an interruption without a notice loses (default 1800)",
    )


def _check_journal_alone(args: argparse.Namespace) -> None:
    """A recorded journal brings its own jobs and machines: what would be ignored is refused."""
    for flag in OF_A_SIMULATION:
        given = getattr(args, flag)
        if given is not None and given is not False and given != []:
            raise UsageError(
                f"--{flag.replace('_', '-')} does not go with --journal, which replays a recorded journal; leave one of them out"
            )


def _request(module: ModuleType, args: argparse.Namespace) -> Request:
    for flag, default in DEFAULTS.items():
        if getattr(args, flag) is None:
            setattr(args, flag, default)
    if not 1 <= args.processes <= MOST_PROCESSES:
        raise UsageError(f"--processes: must be 1 to {MOST_PROCESSES}, and is {args.processes}")
    for flag in ("boot", "notice", "restart", "save"):
        if getattr(args, flag) > LONGEST_S:
            raise UsageError(
                f"--{flag}: must be seconds, {LONGEST_S:g} (a day) at most, and is {getattr(args, flag):g}; convert it"
            )
    if args.checkpoint_every <= 0:
        raise UsageError("--checkpoint-every: must be above 0")
    twice = next((policy for policy in args.policy if args.policy.count(policy) > 1), None)
    if twice is not None:
        raise UsageError(f"--policy: {twice!r} is given {args.policy.count(twice)} times; give each policy once")
    request: Request = module.Request(
        pool=args.pool,
        jobs=args.jobs,
        resource_pool=args.resource_pool,
        spot=tuple(args.spot),
        policies=tuple(args.policy) or (module.POLICIES[0],),
        seed=args.seed,
        first_day=args.first_day,
        last_day=args.last_day,
        boot_s=args.boot,
        overheads=module.Overheads(
            restart_s=args.restart,
            save_s=args.save,
            checkpoint_every_s=args.checkpoint_every,
            notice_s=args.notice,
        ),
        processes=args.processes,
        frontier=args.frontier,
    )
    return request


def _check_outputs(args: argparse.Namespace) -> None:
    """What could not be written after the run is refused before it."""
    for flag, path in (("--json", args.json), ("--html", args.html)):
        if path is None:
            continue
        if path.is_dir():
            raise InvalidInput(f"{flag}: {path} is a directory; name a file in it")
        if not path.parent.is_dir():
            raise InvalidInput(
                f"{flag}: {path} cannot be written (there is no directory {path.parent}); make it, or name another"
            )
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise InvalidInput(f"{flag}: {path} cannot be written (no permission); name another file")
        for given, source in (("--pool", args.pool), ("--jobs", args.jobs), *(("--spot", each) for each in args.spot)):
            if path.resolve() == source.resolve():
                raise InvalidInput(
                    f"{flag}: {path} is the file of {given}, and would be overwritten; name another file"
                )
    if args.json is not None and args.html is not None and args.json.resolve() == args.html.resolve():
        raise InvalidInput(f"--html: {args.html} is the file of --json, too; give each its own")


def _table(cli: Invocation, report: Mapping[str, Any]) -> None:
    """One column a policy: more than one screen is wide would not fit the other way round."""
    policies: Mapping[str, Mapping[str, Any]] = report["policies"]
    rows = [(title, *(shown(figures) for figures in policies.values())) for title, shown in ROWS]
    cli.render.table(("Figure", *policies), rows, report)


def _frontier_table(cli: Invocation, report: Mapping[str, Any]) -> None:
    rows = [
        (
            each["setting"],
            _money("cost")(each),
            percent_text(each["excess"]),
            duration_text(each["wait_mean_s"]),
            duration_text(each["wait_p90_s"]),
            "yes" if each["on_frontier"] else "no",
        )
        for each in report["frontier"]
    ]
    columns = ("Setting", "Cost", "Excess", "Mean Wait", "90% Wait", "On Frontier")
    cli.render.table(columns, rows, report, title="Frontier: other settings of the pool")


def _money(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: f"{figures[key]:,.2f}"


def _share(key: str) -> Callable[[Mapping[str, Any]], str]:
    """Formats a figure as a percentage of the cost."""
    return lambda figures: percent_text(figures[key] / figures["cost"] if figures["cost"] else 0.0)


def _percent(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: percent_text(figures[key])


def _time(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: duration_text(figures[key])


def _count(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: f"{figures[key]:,}"


ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("Cost", _money("cost")),
    ("Lower Bound", _money("cost_lower_bound")),
    ("Excess", _percent("excess")),
    ("Useful, of Cost", _share("cost_useful")),
    ("Repeated", _share("cost_repeated")),
    ("Boot", _share("cost_boot")),
    ("Empty", _share("cost_empty")),
    ("Half-Empty", _share("cost_half_empty")),
    ("Mean Wait", _time("wait_mean_s")),
    ("Median Wait", _time("wait_median_s")),
    ("90% Wait", _time("wait_p90_s")),
    ("Longest Wait", _time("wait_max_s")),
    ("JCT Ratio", lambda figures: f"{figures['jct_ratio']:.4f}"),
    ("Utilisation", _percent("utilisation")),
    ("Goodput", _percent("goodput")),
    ("Interruptions", _count("interruptions")),
    ("Launches", _count("launches")),
    ("Jobs Completed", _count("jobs_completed")),
    ("Jobs Failed", _count("jobs_failed")),
    ("Jobs Stopped", _count("jobs_stopped")),
    ("Deadlines Missed", _count("deadlines_missed")),
    ("Decision CPU", _time("decision_cpu_s")),
    ("Digest", lambda figures: str(figures["digest"][:10])),
)
"""A figure's title, and how it is shown. docs/simulation.md defines the figures."""


def _replay(cli: Invocation, args: argparse.Namespace) -> int:
    """0 when every cycle came out as recorded, 1 when one did not."""
    with loading(*SIMULATOR):
        from resolute_sim.twin.recorded import replay_recorded
    told = replay_recorded(args.journal, args.config_file)
    if args.json is not None:
        _write("--json", args.json, json.dumps(told.as_json(), indent=2) + "\n")
    cli.render.line(told.sentence)
    return 0 if told.as_recorded else 1


def _write(flag: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{flag}: {path} cannot be written ({error.strerror}); name another file") from None
