"""`det deploy local`: a cluster, a master or an agent on this machine. Nothing here calls the master that -m names."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute.config.default_images import DEFAULT_CPU_IMAGE
from resolute.errors import FailedPrecondition, InvalidInput, PermissionDenied, Unauthenticated
from resolute.processors import usable_processors
from resolute_cli import local_agent
from resolute_cli.command import Command, Group, UsageError
from resolute_cli.invocation import Invocation
from resolute_cli.local_agent import AgentPlan, agent_down, agent_names, agent_up, directory_of
from resolute_cli.local_cluster import (
    RunningCluster,
    cluster_down,
    cluster_up,
    default_directory,
    follow_log,
    read_cluster,
    read_settings,
)
from resolute_cli.local_gpus import gpus_of_this_machine
from resolute_cli.local_plan import (
    DEFAULT_DOCKER_HOST,
    DEFAULT_PORT,
    ClusterPlan,
    database_of,
    differences,
    settings_of,
)
from resolute_cli.nouns.user import password_weakness

DEFAULT_NAME = "determined"
LOOPBACK = ("localhost", "127.0.0.1", "::1")

MOST_MACHINES = 4
"""Largest default number of machines of a local cluster. More machines share the memory and disk of each processor and do not
train faster."""


def instances_for(processors: int, slots_per_instance: int) -> int:
    """Machines of which each slot has a processor for itself; at least one."""
    return max(1, min(MOST_MACHINES, processors // slots_per_instance))


def sized(gpus: int, processors: int, slots_per_instance: int | None, max_instances: int | None) -> tuple[int, int]:
    """Slots of each machine, and most machines at a time. GPUs that were not divided are all in one machine, where the
    processes of one training reach each other best. Raises `UsageError` for more slots than there are GPUs."""
    slots = slots_per_instance or (max(1, gpus // max_instances) if gpus and max_instances else gpus or 1)
    most = max_instances or (gpus // slots if gpus else instances_for(processors, slots))
    if gpus and slots * max(1, most) > gpus:
        raise UsageError(
            f"{most or 1} machines of {slots} slots need more than the {gpus} GPUs of this machine; lower --slots-per-instance or "
            "--max-instances, or train on the processor with --no-gpu"
        )
    return slots, most


# ------------------------------------------------------------------------------------------------------- clusters, masters


def up(cli: Invocation, args: argparse.Namespace) -> None:
    for name in ("slots_per_instance", "max_instances"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(args, name)}: must be at least 1")
    if args.image and not args.docker:
        raise UsageError("--image: tasks run in an image with --docker only")
    kind, gpus = ("cpu", ()) if args.master_config_path else gpus_of_this_machine(args.gpu, cli.environ)
    slots, most = sized(len(gpus), usable_processors(), args.slots_per_instance, args.max_instances)
    machines = {
        "slots_per_instance": slots,
        "max_instances": most,
        "slot_type": kind,
        "gpus": gpus[: slots * most],
        **_given(args, boot_delay="boot_delay_s", price_per_hour="price_per_hour", max_idle_agent_period="idle_s"),
        "image": args.image or DEFAULT_CPU_IMAGE,
    }
    _start(cli, args, "Cluster", {**machines, "machines": True})


def master_up(cli: Invocation, args: argparse.Namespace) -> None:
    _start(cli, args, "Master", {"machines": False})


def _start(cli: Invocation, args: argparse.Namespace, what: str, more: Mapping[str, Any]) -> None:
    _refuse_what_cannot_be(args)
    directory = _directory(cli, args)
    plan = ClusterPlan(
        name=_name(args),
        directory=directory,
        storage=Path(args.storage_host_path).resolve() if args.storage_host_path else None,
        password=args.initial_user_password,
        docker=bool(args.docker),
        tls=bool(args.tls),
        docker_host=cli.environ.get("DOCKER_HOST") or DEFAULT_DOCKER_HOST,
        own_config=Path(args.master_config_path) if args.master_config_path else None,
        database=database_of(args.db_url, args.db_password) if args.db_url else {},
        work_dir=Path(args.auto_work_dir).resolve() if args.auto_work_dir else None,
        **_given(args, host="host", master_port="port"),
        **more,
    )
    before = read_cluster(directory)
    if before is not None and before.lives:
        _say_it_runs(cli, args, before, plan, what)
        return
    if args.delete_db and directory.is_dir():
        cluster_down(directory, delete_state=True)
    cli.render.note(f"Starting {what.lower()} '{plan.name}' in {_shown(directory, cli)} ...")
    if plan.gpus:
        cli.render.note(f"Its machines have the {len(plan.gpus)} GPUs of this machine: {', '.join(plan.gpus)}")
    running = cluster_up(plan, warn=cli.render.warning)
    _say_how_to_use(cli, running, f"{what} '{running.name}' is up.", plan.machines)


def _given(args: argparse.Namespace, **fields: str) -> dict[str, Any]:
    """Fields of the plan by the flags that were given; the others keep their defaults."""
    return {field: value for flag, field in fields.items() if (value := getattr(args, flag)) is not None}


def _refuse_what_cannot_be(args: argparse.Namespace) -> None:
    ours = {
        "docker": "in your own one set resource_pools[].provider.container_runtime",
        "tls": "in your own one set security.tls.enabled",
        "gpu": "in your own one set resource_pools[].provider.slot_type and visible_gpus",
        "db_url": "in your own one set db",
        "auto_work_dir": "in your own one set task_container_defaults.work_dir",
    }
    for name, instead in ours.items():
        if args.master_config_path and getattr(args, name, None):
            raise UsageError(f"--{name.replace('_', '-')} applies to the generated configuration only; {instead}")
    if args.db_password is not None and not args.db_url:
        raise UsageError("--db-password: requires --db-url; SQLite has none")
    weakness = password_weakness(args.initial_user_password) if args.initial_user_password is not None else None
    if weakness:
        raise UsageError(f"--initial-user-password is too weak: {weakness}; leave it out to generate one")
    if args.auto_work_dir and not Path(args.auto_work_dir).is_dir():
        raise InvalidInput(f"--auto-work-dir: there is no directory {args.auto_work_dir!r}")
    _refuse_other_versions(args)


def _refuse_other_versions(args: argparse.Namespace) -> None:
    from resolute import __version__

    if args.det_version not in (None, __version__):
        raise UsageError(
            f"--det-version {args.det_version}: master and agent are of the installed package, version {__version__}; install the "
            "other version, and run its det"
        )
    if args.image_repo_prefix is not None:
        raise UsageError(
            "--image-repo-prefix: master and agent run as processes of the installed package; docs/images.md shows how to run them "
            "from images"
        )
    if args.enterprise_edition:
        raise UsageError("--enterprise-edition: there is only one edition; leave the flag out")


def _say_it_runs(
    cli: Invocation, args: argparse.Namespace, before: RunningCluster, plan: ClusterPlan, what: str
) -> None:
    """Raises `FailedPrecondition` where it runs with other flags than those that were given."""
    now = settings_of(plan)
    flags = {name for name in now if getattr(args, name.removeprefix("--").replace("-", "_"), None) is not None}
    differing = differences(read_settings(before.directory), now, flags)
    if differing:
        lines = "".join(f"\n  {each}" for each in differing)
        raise FailedPrecondition(
            f"'{before.name}' already runs at {before.url}, with other settings than requested:{lines}\n"
            f"End it first: det deploy local cluster-down{_place(cli, before)}"
        )
    _say_how_to_use(cli, before, f"{what} '{before.name}' is running already.", plan.machines)


def _place(cli: Invocation, running: RunningCluster) -> str:
    """The flags by which this cluster is found again."""
    place = f" --dir {running.directory}" if running.directory != default_directory(running.name, cli.environ) else ""
    return (f" --cluster-name {running.name}" if running.name != DEFAULT_NAME else "") + place


def _say_how_to_use(cli: Invocation, running: RunningCluster, first: str, machines: bool) -> None:
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
    place = _place(cli, running)
    cli.render.success(first)
    cli.render.line(f"  address    {running.url}")
    if running.new_password is not None:
        cli.render.line(f"  login      user 'determined' or 'admin', password {running.new_password}")
        cli.render.line("             (shown this once; change it with `det user change-password`)")
    if running.cert_file:
        cli.render.line(f"  trust      export DET_MASTER_CERT_FILE={running.cert_file}")
    cli.render.line(f"  use it     export DET_MASTER={running.url}; det user login determined")
    if not machines:
        port = running.url.rpartition(":")[2]
        with_port = f" --master-port {port}" if port != str(DEFAULT_PORT) else ""
        cli.render.line(f"  an agent   det deploy local agent-up localhost{with_port}{place}")
    cli.render.line(f"  its log    det deploy local logs{place}")
    cli.render.line(f"  end it     det deploy local {'cluster' if machines else 'master'}-down{place}")


def down(cli: Invocation, args: argparse.Namespace) -> None:
    directory, name = _directory(cli, args), _name(args)
    master_only = hasattr(args, "master_name")
    found = cluster_down(directory, delete_state=args.delete_db, agents=not master_only)
    text = f"{'Master' if master_only else 'Cluster'} '{name}' "
    text += ("has ended" if master_only else "has ended; no process of it is left") if found else "was not running"
    if args.delete_db:
        text += ", its state is deleted"
    cli.render.done(text, name=name, directory=str(directory), ran=found, deleted=args.delete_db)


def logs(cli: Invocation, args: argparse.Namespace) -> None:
    for text in follow_log(_directory(cli, args), follow=not args.no_follow):
        cli.render.raw(text)


# ------------------------------------------------------------------------------------------------------------------ agents


def start_agent(cli: Invocation, args: argparse.Namespace) -> None:
    _refuse_other_versions(args)
    cluster = _directory(cli, args)
    config = Path(args.agent_config_path) if args.agent_config_path else None
    kind, _ = gpus_of_this_machine(args.gpu, cli.environ)
    settings: dict[str, Any] = {
        "master_host": args.master_host,
        "master_port": args.master_port,
        "resource_pool": args.agent_resource_pool,
        "slot_type": kind if args.gpu is not None or config is None else None,
    }
    if args.docker:
        settings |= {
            "container_runtime": "docker",
            "docker_host": cli.environ.get("DOCKER_HOST") or DEFAULT_DOCKER_HOST,
        }
    certificate = args.master_cert_file or _certificate_here(cluster, args)
    if certificate:
        settings |= {"security_tls_enabled": True, "security_tls_master_cert": str(Path(certificate).resolve())}
    joining = _joining(cli, args, cluster, config, certificate)
    plan = AgentPlan(
        name=args.agent_name or f"det-agent-{socket.gethostname()}",
        cluster=cluster,
        settings={name: value for name, value in {**settings, **joining}.items() if value is not None},
        own_config=config,
        restart=not args.no_autorestart,
    )
    running = agent_up(plan)
    if not running.joined:
        cli.render.warning(
            f"No master has answered at {running.master_url} yet; the agent keeps trying. Its log: {running.directory}/agent.log"
        )
    if cli.render.format == "json":
        cli.render.done(
            "",
            name=running.name,
            master_url=running.master_url,
            joined=running.joined,
            directory=str(running.directory),
            pid=running.machine.pid,
        )
        return
    does = "works for" if running.joined else "looks for"
    cli.render.success(f"Agent '{running.name}' {does} the master at {running.master_url}")
    cli.render.line(f"  its log    {_shown(running.directory, cli)}/agent.log")
    cli.render.line(f"  end it     det deploy local agent-down --agent-name {running.name}{_named(cli, args)}")


def _certificate_here(cluster: Path, args: argparse.Namespace) -> str:
    """The certificate file of this cluster's master if the agent joins that master, so that TLS needs no flag; otherwise ""."""
    master = read_cluster(cluster)
    if master is None or not master.cert_file or args.master_host not in LOOPBACK:
        return ""
    return master.cert_file if master.url.endswith(f":{args.master_port}") else ""


def _joining(
    cli: Invocation, args: argparse.Namespace, cluster: Path, config: Path | None, certificate: str
) -> dict[str, Any]:
    """How the agent proves that it may join: a file of the operator, the master's own here, or the login of an administrator."""
    if args.join_token_file:
        return {"join_token_file": str(Path(args.join_token_file).resolve())}
    if config is not None and _has_token(config):
        return {}
    here = cluster / local_agent.JOIN_TOKEN
    if here.is_file():
        return {"join_token_file": str(here)}
    cli.given_master = f"{'https' if certificate else 'http'}://{args.master_host}:{args.master_port}"
    if certificate:
        cli.environ = {**cli.environ, "DET_MASTER_CERT_FILE": certificate}
    try:
        return {"join_token": cli.api().agents.join_token().join_token}
    except (Unauthenticated, PermissionDenied, InvalidInput) as error:
        raise FailedPrecondition(
            f"an agent needs the join token of its cluster ({error}); log in to {cli.given_master} as an administrator, or "
            "give the file with what `det agent join-token` prints there as --join-token-file"
        ) from None


def _has_token(config: Path) -> bool:
    import yaml

    try:
        read = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False  # what is wrong with it is said where it is read
    return isinstance(read, dict) and bool(read.get("join_token") or read.get("join_token_file"))


def end_agent(cli: Invocation, args: argparse.Namespace) -> None:
    cluster = _directory(cli, args)
    if args.all and args.agent_name:
        raise UsageError("--all and --agent-name: give one of them")
    names = agent_names(cluster) if args.all else [args.agent_name or f"det-agent-{socket.gethostname()}"]
    ended = [name for name in names if agent_down(directory_of(cluster, name))]
    text = f"Ended {', '.join(ended)} with all tasks" if ended else "No agent of this cluster was running here"
    cli.render.done(text, ended=ended)


def _named(cli: Invocation, args: argparse.Namespace) -> str:
    named = f" --cluster-name {args.cluster_name}" if args.cluster_name != DEFAULT_NAME else ""
    return named + (f" --dir {args.dir}" if args.dir else "")


# ------------------------------------------------------------------------------------------------------------------- flags


def _name(args: argparse.Namespace) -> str:
    name: str = getattr(args, "master_name", None) or args.cluster_name
    return name


def _directory(cli: Invocation, args: argparse.Namespace) -> Path:
    directory = Path(args.dir) if args.dir else default_directory(_name(args), cli.environ)
    return directory.resolve()


def _shown(directory: Path, cli: Invocation) -> str:
    """As a shell reads it, with `~` for the home of the caller."""
    home = cli.environ.get("HOME", "")
    return f"~/{directory.relative_to(home)}" if home and directory.is_relative_to(home) else str(directory)


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster-name", default=DEFAULT_NAME, help=f"name of the cluster (default: {DEFAULT_NAME})")
    parser.add_argument("--dir", help="directory of the cluster (default: ~/.local/share/resolute/<cluster-name>)")


def _which_master(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument("--master-name", help="name of the master (default: that of the cluster)")


def _gpu_arguments(parser: argparse.ArgumentParser) -> None:
    gpu = parser.add_mutually_exclusive_group()
    gpu.add_argument(
        "--gpu", action="store_true", default=None, help="use the GPUs of this machine, and fail if there are none"
    )
    gpu.add_argument(
        "--no-gpu",
        dest="gpu",
        action="store_false",
        default=None,
        help="train on the processor (default: on GPUs, if there are any)",
    )


def _accepted_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the contract that mean something for containers of master and agent."""
    parser.add_argument("--det-version", help="version to run; must be the installed one")
    parser.add_argument("--image-repo-prefix", help=argparse.SUPPRESS)
    parser.add_argument("--enterprise-edition", action="store_true", help=argparse.SUPPRESS)


def _master_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--master-config-path", metavar="PATH", help="configuration of the master, instead of the generated one"
    )
    source.add_argument("--storage-host-path", metavar="PATH", help="directory for checkpoints")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1: this machine only)")
    parser.add_argument("--master-port", type=int, help=f"port of the master (default {DEFAULT_PORT})")
    parser.add_argument("--initial-user-password", help="password of the first users (default: a generated one)")
    parser.add_argument("--delete-db", action="store_true", help="start with an empty database")
    parser.add_argument(
        "--db-url", metavar="URL", help="a PostgreSQL database, postgresql://user@host:port/name (default: SQLite)"
    )
    parser.add_argument("--db-password", help="password for the database of --db-url")
    parser.add_argument(
        "--tls", action="store_true", default=None, help="serve TLS; clients trust tls/ca.pem in the directory"
    )
    parser.add_argument(
        "--auto-work-dir", metavar="PATH", help="working directory of commands, mounted under the same path"
    )
    parser.add_argument(
        "--no-autorestart", action="store_true", help="accepted; a master is never restarted automatically"
    )
    _accepted_arguments(parser)


def _up_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    _master_arguments(parser)
    parser.add_argument(
        "--slots-per-instance", type=int, help="slots of each machine (default: all GPUs, or 1 without GPUs)"
    )
    parser.add_argument(
        "--max-instances",
        "--agents",
        type=int,
        help=f"maximum number of machines (default: as many as have a GPU or processor for each slot, at most {MOST_MACHINES} "
        "without GPUs)",
    )
    parser.add_argument("--boot-delay", type=float, help="seconds a machine takes to start (default 0)")
    parser.add_argument("--price-per-hour", type=float, help="price of a machine in the ledger (default 0)")
    parser.add_argument("--max-idle-agent-period", type=float, help="seconds an idle machine is kept (default 300)")
    parser.add_argument(
        "--docker",
        action="store_true",
        default=None,
        help="run tasks in containers of the engine at DOCKER_HOST, or of this machine",
    )
    parser.add_argument(
        "--image", help=f"with --docker, image of tasks whose experiment names none (default: {DEFAULT_CPU_IMAGE})"
    )
    _gpu_arguments(parser)


def _master_up_arguments(parser: argparse.ArgumentParser) -> None:
    _which_master(parser)
    _master_arguments(parser)
    parser.set_defaults(docker=None)


def _down_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument(
        "--delete-db", action="store_true", help="also delete the database and machines, but not checkpoints"
    )


def _master_down_arguments(parser: argparse.ArgumentParser) -> None:
    _down_arguments(parser)
    parser.add_argument("--master-name", help="name of the master (default: that of the cluster)")


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    _which_master(parser)
    parser.add_argument("--no-follow", action="store_true", help="stop at the end of the log")


def _agent_up_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("master_host", help="host of the master")
    _which(parser)
    parser.add_argument("--master-port", type=int, default=DEFAULT_PORT, help=f"its port (default {DEFAULT_PORT})")
    parser.add_argument(
        "--master-cert-file", metavar="PATH", help="connect to the master by TLS, and trust this certificate"
    )
    parser.add_argument("--join-token-file", metavar="PATH", help="file with the token of `det agent join-token`")
    parser.add_argument("--agent-config-path", metavar="PATH", help="agent.yaml; flags take precedence")
    parser.add_argument("--agent-name", help="name of the agent (default: det-agent-<host name>)")
    parser.add_argument("--agent-resource-pool", help="pool that it joins (default: default)")
    parser.add_argument("--docker", action="store_true", help="run tasks in containers of the engine at DOCKER_HOST")
    parser.add_argument("--no-autorestart", action="store_true", help="do not restart it when it has ended")
    _gpu_arguments(parser)
    _accepted_arguments(parser)


def _agent_down_arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument("--agent-name", help="name of the agent (default: det-agent-<host name>)")
    parser.add_argument("--all", action="store_true", help="every agent of the cluster on this machine")


LOCAL = Group(
    name="local",
    help="a cluster on this machine, a master, or agents",
    commands=(
        Command(name="cluster-up", help="start a cluster", run=up, arguments=_up_arguments),
        Command(name="cluster-down", help="end a cluster", run=down, arguments=_down_arguments),
        Command(
            name="master-up", help="start a master without machines", run=master_up, arguments=_master_up_arguments
        ),
        Command(
            name="master-down", help="end a master, but not its agents", run=down, arguments=_master_down_arguments
        ),
        Command(name="agent-up", help="start an agent for a master", run=start_agent, arguments=_agent_up_arguments),
        Command(name="agent-down", help="end an agent with its tasks", run=end_agent, arguments=_agent_down_arguments),
        Command(name="logs", help="show the master's log", run=logs, arguments=_logs_arguments),
    ),
)
