"""The cloud on this computer: each machine is a directory and a detached process, found again by what is on disk.

Boot delay, price, refusals and interruptions can be scripted, so that a whole elastic cluster with all of its
faults runs on a laptop. The machine's name here is the instance id of the request.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from resolute.clock import Clock
from resolute.errors import InvalidInput, NotFound
from resolute_provisioner.bootstrap import render_agent_settings
from resolute_provisioner.clouds.base import (
    CLOUD_ERRORS,
    BadRequest,
    CloudCapabilities,
    CloudInstance,
    Launched,
    LaunchRequest,
    Transient,
)
from resolute_provisioner.clouds.local.files import (
    MachineFiles,
    control_directory,
    create_machine,
    instances_directory,
    machines,
    process_lives,
)
from resolute_provisioner.clouds.records import Record, claim_json, locked, parse_time, read_json, time_text, write_json
from resolute_provisioner.model import Observed, RefusalKind

MACHINE_COMMAND = (sys.executable, "-m", "resolute_agent.machine")
POWER_OFF_COMMAND = (*MACHINE_COMMAND, "--power-off")
"""Command that ends the parts of a machine that do not end with its processes: the containers of a shared engine."""

FORGET_AFTER_S = 24 * 3600.0
"""Time after which an ended machine is deleted with its disk."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")

PASSED_ON = re.compile(
    r"PATH|HOME|LANG|LC_.*|TZ|TMPDIR|USER|PYTHON.*|VIRTUAL_ENV|LD_LIBRARY_PATH|CUDA_.*|OMP_.*|MKL_.*"
)
"""Variables that a machine inherits. A real one would inherit nothing, and the master's secrets are not for it."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedRefusal:
    """The `launch`-th request for a machine is refused. The first is 1; a repeated launched token does not count."""

    launch: int
    error: RefusalKind = RefusalKind.NO_CAPACITY

    def __post_init__(self) -> None:
        if self.launch < 1:
            raise InvalidInput(f"refuse: launch {self.launch}: launches are counted from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedInterruption:
    """The `instance`-th launched machine (the first is 1) is interrupted.

    `after_s` counts from the start of its process and is carried out by the machine's host. `after_steps` is for a
    caller who watches the training and then calls `interrupt`. `notice_s` None: without a notice.
    """

    instance: int
    after_s: float | None = None
    after_steps: int | None = None
    notice_s: float | None = None

    def __post_init__(self) -> None:
        if (self.after_s is None) == (self.after_steps is None):
            raise InvalidInput(
                f"interruptions: instance {self.instance}: give exactly one of after (seconds) and after_steps"
            )
        if self.instance < 1:
            raise InvalidInput(f"interruptions: instance {self.instance}: instances are counted from 1")
        for key, value in (("after", self.after_s), ("after_steps", self.after_steps), ("notice", self.notice_s)):
            if value is not None and value < 0:
                raise InvalidInput(
                    f"interruptions: instance {self.instance}: {key} is {value}; it must not be negative"
                )


def machine_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of this process's environment that the machines get."""
    return {name: value for name, value in sorted(environ.items()) if PASSED_ON.fullmatch(name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCloudSettings:
    root: Path
    """Directory of one pool. Launches and machines are counted per root."""
    environment: Mapping[str, str]
    """Environment of the machine processes; see `machine_environment`."""
    boot_delay_s: float = 0.0
    """Time from the launch to the start of the machine process, from which on the machine is paid."""
    stop_grace_s: float = 15.0
    """Time after which a machine that ignores an order to end is killed."""
    refuse: tuple[ScriptedRefusal, ...] = ()
    interruptions: tuple[ScriptedInterruption, ...] = ()
    machine_command: tuple[str, ...] = field(default=MACHINE_COMMAND)
    """Command of a machine, called with the machine's directory as its only further argument."""
    gpus: tuple[str, ...] = ()
    """GPUs by UUID. A machine has as many of them as it has slots, for itself and until its end."""
    power_off_command: tuple[str, ...] = ()
    """Command that is called in the same way when every process of the machine has ended; the machine has ended when it returns."""


class LocalCloud:
    """Implements the `Cloud` contract. It has no state but its settings: several processes may use one root at once."""

    def __init__(self, settings: LocalCloudSettings, *, clock: Clock) -> None:
        self.settings = settings
        self._root = settings.root.absolute()
        self._clock = clock

    @property
    def capabilities(self) -> CloudCapabilities:
        return CloudCapabilities(name="local", gives_notice=True, listing_lag_s=0.0, poll_s=0.5)

    async def launch(self, request: LaunchRequest) -> Launched:
        return await _in_thread(lambda: self._launch(request))

    async def terminate(self, provider_ids: Collection[str]) -> None:
        await _in_thread(lambda: order_end(self._root, sorted(provider_ids), self._clock))

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        return await _in_thread(lambda: self.list_now(cluster))

    async def interrupt(self, provider_id: str, *, notice_s: float | None, reason: str = "") -> None:
        """Interrupt a machine: `notice_s` after its `notice.json` appeared, or at once without a notice."""
        await _in_thread(lambda: order_interruption(self._root, provider_id, notice_s=notice_s, reason=reason))

    def list_now(self, cluster: str | None) -> tuple[CloudInstance, ...]:
        """The listing, in the calling thread; None lists the machines of every cluster."""
        listed = []
        for files, record in machines(self._root):
            if cluster is None or record["cluster"] == cluster:
                self._carry_on(files)
                machine = as_listed(files, record, self._clock)
                if machine.observed is Observed.GONE and self._forgotten(files):
                    continue
                listed.append(machine)
        return tuple(listed)

    def _launch(self, request: LaunchRequest) -> Launched:
        if NAME.fullmatch(request.instance_id) is None:
            raise BadRequest(f"instance id {request.instance_id!r}: use letters, digits, '.', '_' and '-'")
        with locked(self._root):
            known = machines(self._root)
            found = next((each for each in known if each[1]["token"] == request.token), None)
            if found is None:
                if any(record["instance_id"] == request.instance_id for _, record in known):
                    raise BadRequest(f"instance {request.instance_id} was already launched with another token")
                self._count_and_refuse()
                found = self._create(request, self._free_gpus(known, request.offer.slots))
            files, record = found
            self._carry_on(files)
        machine = as_listed(files, record, self._clock)
        return Launched(provider_id=machine.provider_id, observed=machine.observed, paid_from=machine.paid_from)

    def _count_and_refuse(self) -> None:
        book = read_json(self._root / "cloud.json") or {}
        number = int(book.get("launch_requests", 0)) + 1
        write_json(self._root / "cloud.json", {**book, "launch_requests": number})
        for refusal in self.settings.refuse:
            if refusal.launch == number:
                raise CLOUD_ERRORS[refusal.error](f"scripted: launch request {number} is refused")

    def _free_gpus(self, known: Sequence[tuple[MachineFiles, Record]], count: int) -> tuple[str, ...]:
        """The GPUs of a new machine. A machine has its GPUs until it has ended, because another one must not train beside its
        last task."""
        if not self.settings.gpus:
            return ()
        living = (
            record for files, record in known if as_listed(files, record, self._clock).observed is not Observed.GONE
        )
        taken = {gpu for record in living for gpu in record.get("gpus", ())}
        free = [gpu for gpu in self.settings.gpus if gpu not in taken]
        if len(free) < count:
            raise CLOUD_ERRORS[RefusalKind.NO_CAPACITY](
                f"{len(free)} of the {len(self.settings.gpus)} GPUs of this machine are free, and a machine needs {count}"
            )
        return tuple(free[:count])

    def _create(self, request: LaunchRequest, gpus: tuple[str, ...]) -> tuple[MachineFiles, Record]:
        book = read_json(self._root / "cloud.json") or {}
        ordinal = int(book.get("machines", 0)) + 1
        final = MachineFiles(instances_directory(self._root) / request.instance_id)
        record: Record = {
            "instance_id": request.instance_id,
            "token": request.token,
            "cluster": request.cluster,
            "pool": request.pool,
            "tags": dict(sorted(request.tags.items())),
            "offer_id": request.offer.offer_id,
            "slots": request.offer.slots,
            "gpus": list(gpus),
            "price_per_hour": request.offer.price_per_hour,
            "ordinal": ordinal,
            "requested_at": time_text(self._clock.now()),
            "boot_delay_s": self.settings.boot_delay_s,
            "stop_grace_s": self.settings.stop_grace_s,
            "command": list(self.settings.machine_command),
            "power_off": list(self.settings.power_off_command),
            "interruptions": [
                {"after_s": each.after_s, "notice_s": each.notice_s}
                for each in self.settings.interruptions
                if each.instance == ordinal and each.after_s is not None
            ],
        }
        boot = request.boot
        if gpus:
            boot = replace(boot, agent_options={**boot.agent_options, "visible_gpus": list(gpus)})
        agent_json = render_agent_settings(
            boot, state_dir=str(final.directory / "state"), notice_file=str(final.notice)
        )
        # Counted before it exists: a kill in between skips a number, the other order would give one out twice.
        write_json(self._root / "cloud.json", {**book, "machines": ordinal})
        return create_machine(self._root, request.instance_id, record, agent_json), record

    def _carry_on(self, files: MachineFiles) -> None:
        """Start the machine's host unless that was done: the launch may have been cut off between record and start."""
        if files.host.exists() or files.stop.exists() or files.gone.exists():
            return
        with (files.directory / "host.log").open("ab") as output:
            subprocess.run(
                [sys.executable, "-m", "resolute_provisioner.clouds.local.host", str(files.directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(self.settings.environment),
                start_new_session=True,
                check=True,
            )

    def _forgotten(self, files: MachineFiles) -> bool:
        gone_at = parse_time((read_json(files.gone) or {}).get("at"))
        if gone_at is None or gone_at + timedelta(seconds=FORGET_AFTER_S) > self._clock.now():
            return False
        shutil.rmtree(files.directory, ignore_errors=True)
        return True


def as_listed(files: MachineFiles, record: Record, clock: Clock) -> CloudInstance:
    started = read_json(files.started)
    gone = _end_of(files, started, clock)
    if gone is not None:
        observed = Observed.GONE
    elif files.stop.exists():
        observed = Observed.STOPPING
    else:
        observed = Observed.RUNNING if started is not None else Observed.PENDING
    return CloudInstance(
        provider_id=record["instance_id"],
        token=record["token"],
        instance_id=record["instance_id"],
        pool=record["pool"],
        observed=observed,
        requested_at=parse_time(record["requested_at"]),
        paid_from=parse_time((started or {}).get("paid_from")),
        paid_until=parse_time((gone or {}).get("at")) if started is not None else None,
        message=str((gone or {}).get("reason", "")),
    )


def _end_of(files: MachineFiles, started: Record | None, clock: Clock) -> Record | None:
    """The recorded end of the machine; None while it runs. A host that was killed could not write it: then the end
    is written here, with the time of the discovery, which is the best that can be known."""
    # The order matters: a host writes the end before it ends itself, and a machine is gone when its host is, too.
    host = read_json(files.host)
    alive = process_lives(host)
    gone = read_json(files.gone)
    if alive or host is None:
        return None
    if gone is not None:
        return gone
    if process_lives(started):
        return None  # dying with its host at this moment
    claim_json(files.gone, {"at": time_text(clock.now()), "reason": "its host process was found dead"})
    return read_json(files.gone)


def order_end(root: Path, provider_ids: Sequence[str], clock: Clock) -> None:
    """Write the order to end for the machines' hosts."""
    for provider_id in provider_ids:
        files = MachineFiles(instances_directory(root) / provider_id)
        if NAME.fullmatch(provider_id) is None or not files.instance.exists():
            continue
        files.stop.touch()
        # Not claimed, so that a host that was just being started leaves the machine alone.
        if not files.host.exists() and claim_json(files.host, {"pid": 0}):
            claim_json(files.gone, {"at": time_text(clock.now()), "reason": "ended before it had booted"})


async def _in_thread(work: Callable[[], Result]) -> Result:
    try:
        return await asyncio.to_thread(work)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Transient(f"the local cloud's folder could not be used: {error}") from error


def order_interruption(root: Path, instance_id: str, *, notice_s: float | None, reason: str = "") -> None:
    """Write the order for the machine's host. Raises `NotFound` for a machine that does not exist or has ended."""
    files = MachineFiles(instances_directory(root) / instance_id)
    if NAME.fullmatch(instance_id) is None or not files.instance.exists() or files.gone.exists():
        raise NotFound("running instance", instance_id)
    control_directory(root).mkdir(exist_ok=True)
    write_json(files.interrupt_order, {"notice_s": notice_s, "reason": reason})


def stop_all(root: Path, *, clock: Clock, wait_s: float = 60.0) -> tuple[str, ...]:
    """End every machine under the root and wait for it. Returns the ids of those that are still there."""
    give_up_at = clock.monotonic() + wait_s
    while True:
        known = machines(root)
        order_end(root, [record["instance_id"] for _, record in known], clock)
        listed = [as_listed(files, record, clock) for files, record in known]
        living = tuple(each.provider_id for each in listed if each.observed is not Observed.GONE)
        if not living or clock.monotonic() >= give_up_at:
            return living
        time.sleep(0.1)
