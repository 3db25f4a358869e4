"""The operator's own machines behind the cloud port: which machine is given out, and what the programs may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from resolute.clock import FixedClock, SystemClock
from resolute_provisioner.clouds.base import BadRequest, LaunchRequest, NoCapacity, Transient
from resolute_provisioner.clouds.command.cloud import CommandCloud, CommandSettings
from resolute_provisioner.clouds.command.fake import Rack
from resolute_provisioner.clouds.command.machines import GIVEN_FOR_S
from resolute_provisioner.model import Observed
from support.cluster import T0
from support.provisioner import a_request, an_offer


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    return Rack(tmp_path / "rack", ("node-1", "node-2"))


Opened = Callable[..., CommandCloud]


@pytest.fixture
def opened(rack: Rack, tmp_path: Path) -> Opened:
    offer = an_offer()
    settings = rack.settings(tmp_path / "pool", offer.instance_type, offer.zone)

    def open_cloud(*, at: timedelta | None = None, **changes: object) -> CommandCloud:
        changed: CommandSettings = replace(settings, **changes)  # type: ignore[arg-type]
        return CommandCloud(changed, clock=SystemClock() if at is None else FixedClock(T0 + at))

    return open_cloud


def record_of(tmp_path: Path, instance_id: str) -> dict[str, object]:
    return dict(json.loads((tmp_path / "pool" / "requests" / f"{instance_id}.json").read_text()))


async def test_machines_are_given_out_in_order_and_come_back(rack: Rack, opened: Opened) -> None:
    cloud = opened()
    for name, machine in (("i-1", "node-1/i-1"), ("i-2", "node-2/i-2")):
        assert (await cloud.launch(a_request(name))).provider_id == machine
    with pytest.raises(NoCapacity, match="node-1 is used by i-1, node-2 is used by i-2"):
        await cloud.launch(a_request("i-3"))
    await cloud.list("cluster-1")
    await cloud.terminate(["node-1/i-1"])
    assert (await cloud.launch(a_request("i-3"))).provider_id == "node-1/i-3"
    assert [(each.provider_id, each.observed) for each in await cloud.list("cluster-1")] == [
        ("node-1/i-1", Observed.GONE),
        ("node-1/i-3", Observed.RUNNING),
        ("node-2/i-2", Observed.RUNNING),
    ]
    await cloud.terminate(["node-1/i-1"])  # its machine is another request's now
    assert sorted(each.name for each in rack.on.iterdir()) == ["node-1", "node-2"]


async def test_a_machine_in_other_use_is_left_alone(rack: Rack, opened: Opened) -> None:
    (rack.on / "node-1").touch()
    assert (await opened().launch(a_request())).provider_id == "node-2/i-1"
    with pytest.raises(NoCapacity, match="node-1 is on, and this pool did not turn it on"):
        await opened().launch(a_request("i-2"))
    assert [each.instance_id for each in await opened().list("cluster-1")] == ["i-1"]


async def test_the_program_gets_the_boot_script_and_is_told_of_the_request(
    rack: Rack, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tell"
    program.write_text(f'#!/bin/sh\nenv >"{tmp_path}/told"\nexec "{rack.program}" on "$2"\n')
    program.chmod(0o755)
    monkeypatch.setenv("DET_DB_PASSWORD", "of the master alone")
    await opened(launch=(str(program), "--now")).launch(a_request())
    assert (rack.directory / "boot-node-1").read_text() == "#!/bin/sh\n# i-1\n"
    told = dict(line.split("=", 1) for line in (tmp_path / "told").read_text().splitlines() if "=" in line)
    assert (told["RESOLUTE_MACHINE"], told["RESOLUTE_INSTANCE"], told["RESOLUTE_CLUSTER"]) == (
        "node-1",
        "i-1",
        "cluster-1",
    )
    assert (told["RESOLUTE_INSTANCE_TYPE"], told["RESOLUTE_ZONE"]) == (an_offer().instance_type, an_offer().zone)
    assert "DET_DB_PASSWORD" not in told


def process_lives(pid: int) -> bool:
    """A zombie, which its new parent has not looked for yet, does not."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def a_program(path: Path, *lines: str) -> tuple[str]:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return (str(path),)


async def test_a_program_that_hangs_is_ended_with_what_it_started(opened: Opened, tmp_path: Path) -> None:
    hangs = a_program(tmp_path / "hangs", f"sleep 1000 & echo $! >{tmp_path}/child", "wait")
    with pytest.raises(Transient, match=r"did not end within 1 s"):
        await opened(launch=hangs, limit_s=1.0).launch(a_request())
    child = int((tmp_path / "child").read_text())
    assert not process_lives(child)


async def test_what_a_program_says_last_is_what_people_are_shown(opened: Opened, tmp_path: Path) -> None:
    fails = a_program(tmp_path / "fails", "echo checking >&2", "echo 'BMC of node-1: no route to host' >&2", "exit 1")
    with pytest.raises(Transient, match=r"fails ended with status 1: BMC of node-1: no route to host$"):
        await opened(launch=fails).launch(a_request())
    with pytest.raises(BadRequest, match=r"/nowhere cannot be run: No such file or directory"):
        await opened(launch=("/nowhere",)).launch(a_request("i-2"))
    with pytest.raises(Transient, match="no route to host"):
        await opened(list=fails).list("cluster-1")


async def test_an_end_that_fails_is_tried_again(rack: Rack, opened: Opened, tmp_path: Path) -> None:
    launched = await opened().launch(a_request())
    await opened().list("cluster-1")
    fails = a_program(tmp_path / "fails", "echo the controller is busy >&2", "exit 1")
    with pytest.raises(Transient, match=r"node-1: .*the controller is busy"):
        await opened(end=fails).terminate([launched.provider_id])
    (machine,) = await opened().list("cluster-1")
    assert machine.observed is Observed.STOPPING
    await opened().terminate([launched.provider_id])
    (machine,) = await opened().list("cluster-1")
    assert (machine.observed, machine.message) == (Observed.GONE, "it was ended")


async def test_a_machine_is_written_down_before_its_program_runs(rack: Rack, opened: Opened, tmp_path: Path) -> None:
    """A master that is killed while the program runs finds the machine again, by the same token or in the list."""
    looks = a_program(tmp_path / "looks", f'cp "{tmp_path}/pool/requests/i-1.json" "{tmp_path}/seen"', "exit 1")
    with pytest.raises(Transient):
        await opened(launch=looks).launch(a_request())
    seen = json.loads((tmp_path / "seen").read_text())
    assert (seen["token"], seen["machine"], seen["launched_at"]) == ("token-i-1", "node-1", None)
    assert await opened().list("cluster-1") == ()
    (rack.on / "node-1").touch()  # it came on all the same
    (found,) = await opened().list("cluster-1")
    assert (found.token, found.observed) == ("token-i-1", Observed.RUNNING)
    assert (await opened().launch(a_request())).provider_id == "node-1/i-1"


async def test_a_launch_that_never_succeeded_keeps_its_machine_for_a_while_only(opened: Opened, tmp_path: Path) -> None:
    fails = a_program(tmp_path / "fails", "exit 1")
    for name in ("i-1", "i-2"):
        with pytest.raises(Transient):
            await opened(at=timedelta(0), launch=fails).launch(a_request(name))
    with pytest.raises(NoCapacity):
        await opened(at=timedelta(seconds=GIVEN_FOR_S - 1)).launch(a_request("i-3"))
    later = opened(at=timedelta(seconds=GIVEN_FOR_S + 1))
    assert (await later.launch(a_request("i-3"))).provider_id == "node-1/i-3"


async def test_many_at_once_get_a_machine_each(opened: Opened) -> None:
    async def launch(request: LaunchRequest) -> str:
        try:
            return (await opened().launch(request)).provider_id.partition("/")[0]
        except NoCapacity:
            return "none"

    given = await asyncio.gather(*(launch(a_request(f"i-{number}")) for number in range(6)))
    assert sorted(given) == ["node-1", "node-2", *["none"] * 4]


async def test_a_type_that_the_configuration_no_longer_has_is_refused(opened: Opened) -> None:
    with pytest.raises(BadRequest, match="names no such machines"):
        await opened(machines={}).launch(a_request())
