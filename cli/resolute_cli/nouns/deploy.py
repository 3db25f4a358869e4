"""`det deploy`: clusters to keep. Nothing here speaks to the master that -m names."""

from __future__ import annotations

import argparse
from pathlib import Path

from resolute.config.environment import DEFAULT_CPU_IMAGE
from resolute.processors import usable_processors
from resolute_cli.command import Command, Group, UsageError
from resolute_cli.invocation import Invocation
from resolute_cli.local_cluster import (
    DEFAULT_DOCKER_HOST,
    ClusterPlan,
    RunningCluster,
    cluster_down,
    cluster_up,
    default_directory,
    follow_log,
    read_cluster,
)
from resolute_deploy.command import AWS

DEFAULT_NAME = "determined"


MOST_MACHINES = 4
"""Of a local cluster that nobody sized: more share each processor's memory and disk, and train no faster."""


def instances_for(processors: int, slots_per_instance: int) -> int:
    """Machines of which each slot has a processor for itself; at least one."""
    return max(1, min(MOST_MACHINES, processors // slots_per_instance))


def _shown(directory: Path, cli: Invocation) -> str:
    """As a shell reads it, with `~` for the home of who asks."""
    home = cli.environ.get("HOME", "")
    return f"~/{directory.relative_to(home)}" if home and directory.is_relative_to(home) else str(directory)


def up(cli: Invocation, args: argparse.Namespace) -> None:
    directory = _directory(cli, args)
    if args.gpu:
        cli.render.warning("Machines of a local cluster have CPU slots; --gpu changes nothing.")
    for name in ("slots_per_instance", "max_instances"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(args, name)}: must be at least 1")
    if args.docker and args.master_config_path:
        raise UsageError(
            "--docker goes with our configuration; in your own one set resource_pools[].provider.container_runtime"
        )
    if args.tls and args.master_config_path:
        raise UsageError("--tls goes with our configuration; in your own one set security.tls.enabled")
    if args.image and not args.docker:
        raise UsageError("--image: tasks run in an image with --docker only")
    before = read_cluster(directory)
    if before is not None and before.lives:
        _say_how_to_use(cli, before, f"Cluster '{before.name}' is running already.")
        return
    if args.delete_db and directory.is_dir():
        cluster_down(directory, delete_state=True)
    plan = ClusterPlan(
        name=args.cluster_name,
        directory=directory,
        host=args.host,
        port=args.master_port,
        slots_per_instance=args.slots_per_instance,
        max_instances=args.max_instances or instances_for(usable_processors(), args.slots_per_instance),
        boot_delay_s=args.boot_delay,
        price_per_hour=args.price_per_hour,
        idle_s=args.max_idle_agent_period,
        storage=Path(args.storage_host_path).resolve() if args.storage_host_path else None,
        password=args.initial_user_password,
        docker=args.docker,
        tls=args.tls,
        docker_host=cli.environ.get("DOCKER_HOST") or DEFAULT_DOCKER_HOST,
        image=args.image or DEFAULT_CPU_IMAGE,
        own_config=Path(args.master_config_path) if args.master_config_path else None,
    )
    cli.render.note(f"Starting cluster '{plan.name}' in {_shown(directory, cli)} ...")
    running = cluster_up(plan, warn=cli.render.warning)
    _say_how_to_use(cli, running, f"Cluster '{running.name}' is up.")


def _say_how_to_use(cli: Invocation, running: RunningCluster, first: str) -> None:
    facts = {
        "name": running.name,
        "url": running.url,
        "directory": str(running.directory),
        "pid": running.master.pid,
        "password": running.new_password,
        **({"cert_file": running.cert_file} if running.cert_file else {}),
    }
    if cli.render.format == "json":
        cli.render.done("", **facts)
        return
    place = f" --dir {running.directory}" if running.directory != default_directory(running.name, cli.environ) else ""
    named = f" --cluster-name {running.name}" if running.name != DEFAULT_NAME else ""
    cli.render.success(first)
    cli.render.line(f"  address    {running.url}")
    if running.new_password is not None:
        cli.render.line(f"  login      user 'determined' or 'admin', password {running.new_password}")
        cli.render.line("             (shown this once; change it with `det user change-password`)")
    if running.cert_file:
        cli.render.line(f"  trust      export DET_MASTER_CERT_FILE={running.cert_file}")
    cli.render.line(f"  use it     export DET_MASTER={running.url}; det user login determined")
    cli.render.line(f"  its log    det deploy local logs{named}{place}")
    cli.render.line(f"  end it     det deploy local cluster-down{named}{place}")


def down(cli: Invocation, args: argparse.Namespace) -> None:
    directory = _directory(cli, args)
    found = cluster_down(directory, delete_state=args.delete_db)
    text = f"Cluster '{args.cluster_name}' " + ("has ended; no process of it is left" if found else "was not running")
    if args.delete_db:
        text += ", its state is deleted"
    cli.render.done(text, name=args.cluster_name, directory=str(directory), ran=found, deleted=args.delete_db)


def logs(cli: Invocation, args: argparse.Namespace) -> None:
    for text in follow_log(_directory(cli, args), follow=not args.no_follow):
        cli.render.raw(text)


def _directory(cli: Invocation, args: argparse.Namespace) -> Path:
    directory = Path(args.dir) if args.dir else default_directory(args.cluster_name, cli.environ)
    return directory.resolve()


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster-name", default=DEFAULT_NAME, help=f"name of the cluster (default: {DEFAULT_NAME})")
    parser.add_argument("--dir", help="directory of the cluster (default: ~/.local/share/resolute/<cluster-name>)")


def _up_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--master-config-path", metavar="PATH", help="configuration of the master, instead of ours")
    source.add_argument("--storage-host-path", metavar="PATH", help="directory for checkpoints")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--master-port", type=int, default=8080, help="port of the master (default 8080)")
    parser.add_argument("--slots-per-instance", type=int, default=1, help="slots of each machine (default 1)")
    parser.add_argument(
        "--max-instances",
        type=int,
        help=f"most machines at a time (default: as many as have a processor for each slot, at most {MOST_MACHINES})",
    )
    parser.add_argument("--boot-delay", type=float, default=0.0, help="seconds a machine takes to start (default 0)")
    parser.add_argument(
        "--price-per-hour", type=float, default=0.0, help="price of a machine in the ledger (default 0)"
    )
    parser.add_argument(
        "--max-idle-agent-period", type=float, default=300.0, help="seconds an idle machine is kept (default 300)"
    )
    parser.add_argument("--initial-user-password", help="password of the first users (default: a generated one)")
    parser.add_argument("--delete-db", action="store_true", help="begin with an empty database")
    parser.add_argument(
        "--docker", action="store_true", help="run tasks in containers of the engine at DOCKER_HOST, or of this machine"
    )
    parser.add_argument(
        "--image", help=f"image of tasks whose experiment names none, with --docker (default: {DEFAULT_CPU_IMAGE})"
    )
    parser.add_argument(
        "--tls", action="store_true", help="serve TLS; clients trust tls/ca.pem in the directory of the cluster"
    )
    gpu = parser.add_mutually_exclusive_group()
    gpu.add_argument("--gpu", action="store_true", help="accepted; local machines have CPU slots")
    gpu.add_argument("--no-gpu", action="store_true", help="accepted; local machines have CPU slots")


def _down_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument(
        "--delete-db", action="store_true", help="delete the database and machines too, not checkpoints"
    )


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument("--no-follow", action="store_true", help="end at the end of the log")


NOUN = Group(
    name="deploy",
    help="start and stop clusters",
    commands=(
        AWS,
        Group(
            name="local",
            help="an elastic cluster on this machine",
            commands=(
                Command(name="cluster-up", help="start a cluster", run=up, arguments=_up_arguments),
                Command(name="cluster-down", help="end a cluster", run=down, arguments=_down_arguments),
                Command(name="logs", help="show the master's log", run=logs, arguments=_logs_arguments),
            ),
        ),
    ),
)
