"""Composition root of the agent process: reads its settings once, builds the parts, runs until it is stopped."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import gc
import logging
import os
import random
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TextIO

import resolute
from resolute import logs, printable, private_files
from resolute.clock import Clock, SystemClock
from resolute.errors import InvalidInput, ResoluteError
from resolute.ids import SystemIds
from resolute.processors import usable_processors
from resolute.providers import NOTICE_SOURCES, part
from resolute.wire.agent_link import Device
from resolute_agent.agent import Agent, AgentRefused, AgentSetup
from resolute_agent.devices.detection import detect
from resolute_agent.devices.tools import TOOL_TIMEOUT_S
from resolute_agent.environment import SLOT_THREADS, machine_environment, slot_threads, trust_environment
from resolute_agent.exit_codes import EXIT_MACHINE_ENDS, EXIT_MISCONFIGURED
from resolute_agent.machine import DOCKER
from resolute_agent.memory import FileMemory, Memory
from resolute_agent.notices import FileNotices, HttpNotices, NoticeSource
from resolute_agent.reach import reach_of
from resolute_agent.runtimes.base import Closing, Runtime
from resolute_agent.runtimes.process import ProcessRuntime
from resolute_agent.runtimes.scripted import ScriptedRuntime
from resolute_agent.settings import AgentSettings, join_token_of, read_settings
from resolute_agent.websocket import WebSocketConnector

log = logging.getLogger(__name__)

HEARD = "heard"
"""Touched in the state directory at each message of a master, so that the parent process detects a machine without one."""

LOOK_AGAIN_S = 20.0
"""Time limit of a tool that runs again while the agent serves."""


def lock_state_dir(directory: Path) -> TextIO:
    """Take the state directory for this process, and make it private. Raises `InvalidInput` when it cannot be had."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise InvalidInput(f"state_dir: {directory} cannot be used: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise InvalidInput(f"state_dir: {directory} is in use by another agent") from None
    return lock


def _mend_rights(settings: AgentSettings) -> None:
    """Makes the files and directories that belong to this agent alone private, and logs those that were open to others."""
    state = Path(settings.state_dir)
    named = [Path(each) for each in (settings.config_file, settings.join_token_file) if each]
    directories = [state, state / "containers", state / DOCKER]
    for sentence in private_files.mend(directories=directories, files=[*private_files.state_files(state), *named]):
        log.warning("%s", sentence)


def _master_cert(settings: AgentSettings) -> str:
    """PEM of the authority that the settings name. Raises `InvalidInput` for a file that is none."""
    path = settings.tls_master_cert
    if not path or not settings.master_url.startswith("https:"):
        return ""
    try:
        text = Path(path).read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"security.tls.master_cert: {path} cannot be used: {error}; copy the master's ca.pem there"
        ) from error
    return text


def _tls(settings: AgentSettings, master_cert: str) -> ssl.SSLContext | None:
    """What the agent trusts. None: what the machine does, or plain HTTP."""
    if not settings.master_url.startswith("https:"):
        return None
    if settings.tls_skip_verify:
        log.warning(
            "security.tls.skip_verify: any certificate is accepted as the master's, so an attacker between the two "
            "can give this machine "
            "work; name the master's ca.pem as security.tls.master_cert instead"
        )
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif master_cert:
        context = ssl.create_default_context(cadata=master_cert)
    else:
        return None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _notices(settings: AgentSettings, clock: Clock) -> NoticeSource | None:
    if settings.notice_file:
        return FileNotices(Path(settings.notice_file), clock=clock)
    if settings.notice_url:
        return HttpNotices(settings.notice_url, clock=clock)
    if settings.notice_metadata:
        opened: NoticeSource = part(NOTICE_SOURCES[settings.notice_metadata], "notices", "open_notices")(clock)
        return opened
    return None


def _devices(settings: AgentSettings, limit_s: float = TOOL_TIMEOUT_S) -> tuple[Device, ...]:
    return detect(
        settings.slot_type,
        artificial_slots=settings.artificial_slots,
        agent_id=settings.agent_id,
        visible_gpus=settings.visible_gpus,
        limit_s=limit_s,
    )


async def runtime_of(settings: AgentSettings) -> Runtime:
    """The runtime of the settings."""
    if settings.runtime == "scripted":
        return ScriptedRuntime()
    if settings.runtime == "docker":
        return await _docker_runtime(settings)
    runtime = await ProcessRuntime.open(
        Path(settings.state_dir) / "containers", private_root=settings.private_root, reach=reach_of(settings)
    )
    roots = runtime.private_roots
    if not roots.private:
        log.warning("tasks get no private /run/determined on this machine: %s", roots.reason)
    if os.geteuid() == 0 and not roots.isolated:
        log.warning(
            "tasks run as root on this machine, and may read and change everything in it: %s; give the agent CAP_SYS_ADMIN, or run "
            "it as another user",
            roots.reason,
        )
    return runtime


async def _docker_runtime(settings: AgentSettings) -> Runtime:
    """Raises `EngineGone` when no engine answers."""
    try:
        from resolute_agent.runtimes.docker import DockerRuntime
        from resolute_agent.runtimes.docker_engine import Engine
        from resolute_agent.runtimes.docker_request import EngineOptions
    except ImportError as error:
        raise InvalidInput(
            f"container_runtime: docker needs a package that is not installed ({error.name}); run "
            "pip install 'resolute-ml[agent,docker]'"
        ) from error
    options = EngineOptions(
        memory_bytes=settings.docker_memory_bytes, ulimits=settings.docker_ulimits, rules=reach_of(settings).rules
    )
    engine = await asyncio.to_thread(Engine, settings.docker_host)
    return await DockerRuntime.open(Path(settings.state_dir) / DOCKER, engine, options)


async def serve(
    settings: AgentSettings,
    open_runtime: Callable[[AgentSettings], Awaitable[Runtime]] = runtime_of,
    open_memory: Callable[[Path], Memory] = FileMemory,
) -> int:
    """Run the agent; the exit code determines whether its machine ends (`EXIT_MACHINE_ENDS`) or not (0)."""
    clock = SystemClock()
    ids = SystemIds()
    devices = _devices(settings)
    master_cert = _master_cert(settings)
    setup = AgentSetup(
        agent_id=settings.agent_id,
        resource_pool=settings.resource_pool,
        version=resolute.__version__,
        devices=devices,
        join_token=join_token_of(settings),
        instance_id=settings.instance_id,
        address=settings.address,
        master_timeout_s=settings.master_timeout_s,
        reconnect_cap_s=settings.reconnect_cap_s,
        master_cert=master_cert,
        environment={
            SLOT_THREADS: str(settings.slot_threads or slot_threads(usable_processors(), len(devices))),
            **machine_environment(settings.container_master_url or settings.master_url, settings.proxies),
            **trust_environment(
                has_cert=bool(master_cert),
                skip_verify=settings.tls_skip_verify and settings.master_url.startswith("https:"),
                cert_name=settings.tls_cert_name,
            ),
            **({"RESOLUTE_INSTANCE": settings.instance_id} if settings.instance_id else {}),
        },
    )
    runtime = await open_runtime(settings)
    agent = Agent(
        setup,
        connector=WebSocketConnector(
            settings.master_url, tls=_tls(settings, master_cert), cert_name=settings.tls_cert_name
        ),
        runtime=runtime,
        memory=open_memory(Path(settings.state_dir) / "agent-state.json"),
        clock=clock,
        ids=ids,
        rng=random.Random(ids.bits(64)),
        notices=_notices(settings, clock),
        look_again=lambda: asyncio.to_thread(_devices, settings, LOOK_AGAIN_S),
        on_message=(Path(settings.state_dir) / HEARD).touch,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    log.info("agent %s with %d slots, master %s", settings.agent_id, len(devices), settings.master_url)
    try:
        reason = await agent.run()
    finally:
        if isinstance(runtime, Closing):
            await runtime.close()
    if reason is None:
        log.info("stopped; containers continue")
        return 0
    return EXIT_MACHINE_ENDS


def _shown(text: str) -> str:
    """What comes from the network, for a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def run(
    settings: AgentSettings,
    open_runtime: Callable[[AgentSettings], Awaitable[Runtime]] = runtime_of,
    open_memory: Callable[[Path], Memory] = FileMemory,
) -> int:
    """The whole process but for the reading of its settings; returns its exit code."""
    private_files.keep_private()
    logs.set_up(level=settings.log_level, form=settings.log_format, color=settings.log_color)
    try:
        with logs.about(agent=settings.agent_id), lock_state_dir(Path(settings.state_dir)):
            _mend_rights(settings)
            return asyncio.run(serve(settings, open_runtime, open_memory))
    except InvalidInput as error:
        print(f"agent: {printable.lines(str(error))}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    except AgentRefused as error:
        print(f"agent: the master {settings.master_url} refused this agent: {_shown(str(error))}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    except ResoluteError as error:
        print(f"agent: {printable.lines(str(error))}", file=sys.stderr)
        return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m resolute_agent [--config FILE] [flags]`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["--config"] and given[2:] == [] and given[-1].endswith(".json"):
            # As each machine of the local cloud starts it: what reads agent.yaml and flags would take a quarter of the start.
            settings = read_settings(Path(given[-1]))
        else:
            from resolute_agent.command_line import settings_from_command_line

            settings = settings_from_command_line(given, os.environ)
    except InvalidInput as error:
        print(f"agent: {printable.lines(str(error))}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    atexit.register(gc.freeze)  # else the interpreter visits all objects at its end
    return run(settings)
