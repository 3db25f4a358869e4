"""`det job`: the queue."""

from __future__ import annotations

import argparse

from resolute.errors import NotFound
from resolute.wire.rest.enums import OrderBy, SchedulerType
from resolute.wire.rest.jobs import GetJobsQuery, QueueControl, RBACJob
from resolute.wire.rest.pools import ResourcePool
from resolute_cli.command import Command, Group, UsageError, paging
from resolute_cli.invocation import Invocation
from resolute_cli.job_explain import explain
from resolute_cli.job_snapshot import schedule, schedule_arguments, snapshot, snapshot_arguments
from resolute_cli.job_starts import COLUMNS, Starts, failure_note, pool_starts, starts_note

OPERATIONS = ("priority", "weight", "resource-pool", "ahead-of", "behind-of")
"""Operations of `det job update-batch`."""


def list_jobs(cli: Invocation, args: argparse.Namespace) -> None:
    queue = cli.api().queue
    pool = _pool(queue.pools(), args.resource_pool)
    query = GetJobsQuery(
        limit=args.limit,
        offset=args.offset,
        order_by=OrderBy.DESC if args.reverse else OrderBy.ASC,
        resource_pool=args.resource_pool,
        reasons=cli.render.format != "csv",
    )
    jobs = queue.page(query).jobs if args.pages == "1" else queue.list(query)
    weighs = pool.scheduler_type == SchedulerType.FAIR_SHARE
    columns: tuple[str, ...] = ("#", "ID", "Type", "Job Name", "Weight" if weighs else "Priority", "Submitted")
    columns += ("Slots (acquired/needed)", "State", "User")
    rows = [_row(job, weighs=weighs) for job in jobs]
    shown = [entry.full or entry.limited for entry in jobs]
    # Programs get what they always got, unless they ask for more.
    for_people = cli.render.format in (None, "table")
    if for_people and len({job.resource_pool for job in shown if job is not None}) > 1:
        columns += ("Resource Pool",)
        rows = [(*row, job.resource_pool if job else "***") for row, job in zip(rows, shown, strict=True)]
    wanted = args.starts or for_people
    found = pool_starts(queue, shown, needed=args.starts) if wanted else Starts()
    for name, failure in sorted(found.failures.items()):
        cli.render.warning(failure_note(name, failure))
    values: object = jobs
    if found.answers or args.starts:
        columns += COLUMNS
        rows = [(*row, *cells) for row, cells in zip(rows, found.cells(shown), strict=True)]
        values = {"jobs": jobs, "starts": found.by_job()}
    reasons = [entry.full.reason or "" if entry.full else "" for entry in jobs]
    if for_people and any(reasons):
        columns += ("Why It Waits",)
        rows = [(*row, reason) for row, reason in zip(rows, reasons, strict=True)]
    cli.render.table(columns, rows, values)
    for name, answer in sorted(found.answers.items()):
        cli.render.note(starts_note(name, answer))


def _pool(pools: tuple[ResourcePool, ...], name: str | None) -> ResourcePool:
    """The pool whose scheduler determines the order of the queue."""
    for pool in pools:
        if pool.name == name if name is not None else pool.default_compute_pool:
            return pool
    raise NotFound("resource pool", name if name is not None else "default")


def _row(entry: RBACJob, *, weighs: bool) -> tuple[object, ...]:
    """One job; what the caller may not see is `***`."""
    job = entry.full or entry.limited
    if job is None:
        return ("N/A", *["***"] * 8)
    ahead = job.summary.jobs_ahead if job.summary and job.summary.jobs_ahead >= 0 else "N/A"
    state = job.summary.state.name if job.summary else None
    rank = job.weight if weighs else job.priority
    slots = f"{job.allocated_slots}/{job.requested_slots}"
    if entry.full is None:
        return (ahead, job.job_id, job.type.name, "***", rank, "***", slots, state, "***")
    full = entry.full
    submitted = full.submission_time
    return (ahead, full.job_id, full.type.name, full.name, rank, submitted, slots, state, full.username)


def update(cli: Invocation, args: argparse.Namespace) -> None:
    change = QueueControl(
        job_id=args.job_id,
        priority=args.priority,
        weight=args.weight,
        resource_pool=args.resource_pool,
        ahead_of=args.ahead_of,
        behind_of=args.behind_of,
    )
    cli.api().queue.update(change)
    cli.render.done(f"Updated job {args.job_id}", job=args.job_id)


def update_batch(cli: Invocation, args: argparse.Namespace) -> None:
    """One after the other, in one request; those that are refused are named together."""
    changes = [parse_operation(text) for text in args.operation]
    cli.api().queue.update(*changes)
    jobs = [change.job_id for change in changes]
    cli.render.done(f"Updated {len(jobs)} job(s)", jobs=jobs)


def parse_operation(text: str) -> QueueControl:
    """`<job id>.<operation>=<value>`. Raises `UsageError`."""
    job, dot, change = text.partition(".")
    name, equals, value = change.partition("=")
    if not (job and dot and equals and value):
        raise UsageError(f"'{text}': write it as <jobID>.<operation>=<value>, for instance {job or 'ID'}.priority=7")
    try:
        match name.replace("_", "-"):
            case "priority":
                return QueueControl(job_id=job, priority=int(value))
            case "weight":
                return QueueControl(job_id=job, weight=float(value))
            case "resource-pool":
                return QueueControl(job_id=job, resource_pool=value)
            case "ahead-of":
                return QueueControl(job_id=job, ahead_of=value)
            case "behind-of":
                return QueueControl(job_id=job, behind_of=value)
    except ValueError:
        raise UsageError(f"'{text}': {name} takes a number, not '{value}'") from None
    raise UsageError(f"'{text}': unknown operation '{name}'; use {', '.join(OPERATIONS)}")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--resource-pool", help="only jobs of this pool")
    parser.add_argument("--reverse", action="store_true", help="last in the queue first")
    parser.add_argument(
        "--starts",
        action="store_true",
        help="include expected starts in JSON and CSV, as the table does",
    )
    paging(parser, limit=100)


def _update_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job_id", help="id of the job, or of its experiment")
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("-p", "--priority", type=int, help="new priority, 1 (first) to 99")
    one.add_argument("-w", "--weight", type=float, help="new weight, for fair-share pools")
    one.add_argument("--resource-pool", help="pool to move to")
    one.add_argument(
        "--ahead-of", metavar="JOB_ID", help="move right before this job (or experiment), with its priority"
    )
    one.add_argument(
        "--behind-of", metavar="JOB_ID", help="move right behind this job (or experiment), with its priority"
    )


def _batch_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "operation",
        nargs="+",
        help=f"<jobID>.<operation>=<value>, where the operation is one of {', '.join(OPERATIONS)}; "
        "<jobID> may also be the id of an experiment",
    )


NOUN = Group(
    name="job",
    help="manage the job queue",
    default="list",
    commands=(
        Command(
            name="list",
            aliases=("ls",),
            help="list jobs",
            run=list_jobs,
            arguments=_list_arguments,
            formats=("json", "yaml", "table", "csv"),
        ),
        Command(name="update", aliases=("u",), help="update a job", run=update, arguments=_update_arguments),
        Command(name="update-batch", help="update several jobs", run=update_batch, arguments=_batch_arguments),
        Command(
            name="explain",
            help="explain why a job waits, and what would start it",
            run=explain,
            arguments=lambda p: p.add_argument("job_id", help="id of the job, or of its experiment"),
        ),
        Command(
            name="snapshot",
            help="write the scheduler's snapshot of a pool",
            run=snapshot,
            arguments=snapshot_arguments,
        ),
        Command(
            name="schedule",
            help="run the scheduler on a snapshot, without a master",
            run=schedule,
            arguments=schedule_arguments,
        ),
    ),
)
