"""The small parts: frames, back-off, scripts, environment, settings, notices, memory."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from resolute.clock import FixedClock
from resolute.errors import InvalidInput
from resolute.wire.agent_link import (
    MAX_FRAME_BYTES,
    ContainerReport,
    Device,
    Exit,
    Hello,
    StartContainer,
    Welcome,
)
from resolute.wire.states import ContainerState, FailureKind, NoticeKind, SlotKind
from resolute_agent.command_line import settings_from_command_line
from resolute_agent.environment import THREAD_VARIABLES, Place, machine_environment, slot_threads, task_environment
from resolute_agent.link import Backoff, FrameError, decode_agent_frame, decode_master_frame, encode_frame
from resolute_agent.memory import FileMemory
from resolute_agent.notices import FileNotices, parse_notice
from resolute_agent.runtimes.process import _homes_of_programs
from resolute_agent.runtimes.scripted import Step, parse_script
from resolute_agent.settings import read_settings, settings_from_mapping
from resolute_agent.state import ContainerRecord, Durable
from support.agent_master import a_spec
from support.agent_virtual import run_virtually

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

# ---------------------------------------------------------------------------------------------------------- link


def a_report() -> ContainerReport:
    return ContainerReport(
        container_id="c",
        allocation_id="a",
        state=ContainerState.TERMINATED,
        sequence=3,
        at=NOW,
        exit=Exit(code=1, failure=FailureKind.CONTAINER_FAILED, message="no"),
    )


def test_messages_survive_their_frames() -> None:
    devices = (Device(index=0, kind=SlotKind.CUDA, brand="b", uuid="u"),)
    hello = Hello(
        protocol=1,
        version="v",
        agent_id="a",
        resource_pool="p",
        incarnation="i",
        devices=devices,
        address="10.0.0.1",
        containers=(a_report(),),
    )
    assert decode_agent_frame(encode_frame(hello)) == hello
    spec = a_spec(slots=(0, 1), environment={"A": "1"}, shared_directories=(("/a", "/b"),))
    start = StartContainer(spec=spec)
    assert decode_master_frame(encode_frame(start)) == start
    assert json.loads(encode_frame(start))["type"] == "StartContainer"


def test_unknown_message_types_are_left_to_the_caller_and_nonsense_is_not() -> None:
    assert decode_master_frame('{"type": "FromTheFuture", "body": {"x": 1}}') is None
    for text in ("", "[]", '{"type": "Welcome"}', '{"type": "Welcome", "body": {"cluster_id": 5}}', "\x00"):
        with pytest.raises(FrameError):
            decode_master_frame(text)
    with pytest.raises(FrameError, match="over the limit"):
        decode_master_frame(" " * (MAX_FRAME_BYTES + 1))


def test_fields_of_newer_masters_are_ignored() -> None:
    body = {"cluster_id": "c", "cluster_name": "n", "master_id": "m", "heartbeat_s": 1, "lease_s": 2, "new": True}
    message = decode_master_frame(json.dumps({"type": "Welcome", "body": body}))
    assert isinstance(message, Welcome) and message.lease_s == 2.0


def test_back_off_grows_is_jittered_capped_and_reset() -> None:
    backoff = Backoff(random.Random(1), first_s=1.0, cap_s=30.0)
    waits = [backoff.next_s() for _ in range(50)]
    for attempt, wait in enumerate(waits):
        whole = min(30.0, 2.0**attempt)
        assert whole / 2 <= wait <= whole
    assert len(set(waits[10:])) > 30
    backoff.reset()
    assert backoff.next_s() <= 1.0


# -------------------------------------------------------------------------------------------------------- scripts


def test_scripts_are_read() -> None:
    assert parse_script("pull 3s; run 0.5s;; log 2 lines; say a: b; ignore kill 60s; exit 137") == (
        Step(verb="pull", number=3.0),
        Step(verb="run", number=0.5),
        Step(verb="log", number=2.0),
        Step(verb="say", text="a: b"),
        Step(verb="ignore kill", number=60.0),
        Step(verb="exit", number=137.0),
    )


@pytest.mark.parametrize("script", ["run", "run 3", "exit", "exit -1", "walk 3s", "log x lines"])
def test_a_step_that_is_none_is_named(script: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{script}' is no step"):
        parse_script(f"run 1s; {script}")


# ---------------------------------------------------------------------------------------------------- environment

PLACE = Place(
    run_dir="/run/determined",
    tmp_dir="/x/tmp",
    private_root=True,
    python_bin="/venv/bin",
    package_roots=("/src/resolute",),
)


def test_a_task_gets_what_the_contract_names() -> None:
    machine = {**machine_environment("http://m.example:8080"), "DET_AGENT_ID": "a", "DET_CLUSTER_ID": "k"}
    spec = a_spec(environment={"DET_TASK_ID": "t", "PYTHONPATH": "/own", "DET_AGENT_ID": "forged"})
    devices = [Device(index=3, kind=SlotKind.CPU, brand="", uuid="u")]
    environment = task_environment(spec, machine, devices, PLACE)
    expected = {
        "DET_MASTER": "http://m.example:8080",
        "DET_MASTER_HOST": "m.example",
        "DET_MASTER_ADDR": "m.example",
        "DET_MASTER_PORT": "8080",
        "DET_AGENT_ID": "a",
        "DET_CLUSTER_ID": "k",
        "DET_CONTAINER_ID": "c1",
        "DET_RESOURCES_ID": "c1",
        "DET_RESOURCES_TYPE": "docker-container",
        "DET_SLOT_IDS": "[3]",
        "DET_RUN_DIR": "/run/determined",
        "DET_WORKDIR": "/run/determined/workdir",
        "HOME": "/run/determined/workdir",
        "DET_PRIVATE_ROOT": "1",
        "DET_TASK_ID": "t",
        "PYTHONPATH": "/src/resolute:/own",
        "PYTHONUNBUFFERED": "1",
    }
    assert expected.items() <= environment.items()
    assert environment["PATH"].startswith("/venv/bin:")
    assert "TMPDIR" not in environment


def test_a_user_who_sets_a_proxy_keeps_it_in_any_spelling() -> None:
    machine = machine_environment("http://m", {"HTTP_PROXY": "http://machine", "NO_PROXY": "m", "FTP_PROXY": ""})
    environment = task_environment(a_spec(environment={"http_proxy": "http://mine"}), machine, [], PLACE)
    assert "HTTP_PROXY" not in environment and environment["http_proxy"] == "http://mine"
    assert environment["NO_PROXY"] == "m" and "FTP_PROXY" not in environment


def test_a_task_sees_its_own_gpus_only() -> None:
    gpu = Device(index=1, kind=SlotKind.CUDA, brand="", uuid="GPU-2")
    assert task_environment(a_spec(), {}, [gpu], PLACE)["CUDA_VISIBLE_DEVICES"] == "GPU-2"
    assert task_environment(a_spec(), {}, [], PLACE)["CUDA_VISIBLE_DEVICES"] == ""


def test_ports_follow_from_the_scheme_and_nonsense_is_refused() -> None:
    assert machine_environment("https://m")["DET_MASTER"] == "https://m:443"
    for url in ("m:8080", "ftp://m", "http://"):
        with pytest.raises(InvalidInput, match="master_url"):
            machine_environment(url)


# ------------------------------------------------------------------------------------------------------- settings

SETTINGS = {"master_url": "http://m:1", "state_dir": "/s", "agent_id": "a"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"artifical_slots": 1}, "did you mean 'artificial_slots'"),
        ({"artificial_slots": "two"}, "artificial_slots"),
        ({"artificial_slots": -1}, "artificial_slots: -1 must not be negative"),
        ({"master_url": "m"}, "master_url: 'm'"),
        ({"slot_type": "tpu"}, "slot_type: 'tpu'"),
        ({"agent_id": ""}, "agent_id: must not be empty"),
        ({"notice_file": "/n", "notice_url": "http://n"}, "give one of them"),
        ({"master_timeout_s": 0}, "master_timeout_s: 0"),
    ],
)
def test_bad_settings_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        settings_from_mapping({**SETTINGS, **change}, origin="agent.json")


def test_settings_files(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    with pytest.raises(InvalidInput, match="no such configuration file"):
        read_settings(file)
    file.write_text("{")
    with pytest.raises(InvalidInput, match="not a JSON file"):
        read_settings(file)
    file.write_text(json.dumps({**SETTINGS, "artificial_slots": 4}))
    assert settings_from_command_line(["--config", str(file)], {}).artificial_slots == 4


def test_flags_go_over_environment_and_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("master_host: file\nresource_pool: file\nartificial_slots: 1\nagent_id: one\n")
    environ = {"DET_RESOURCE_POOL": "environment", "DET_ARTIFICIAL_SLOTS": "2"}
    settings = settings_from_command_line(["--config-file", str(file), "--artificial-slots", "3"], environ)
    assert (settings.master_url, settings.resource_pool, settings.artificial_slots) == (
        "http://file:80",
        "environment",
        3,
    )


def test_the_usual_file_is_read_where_nothing_names_another(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("master_host: usual\n")
    settings = settings_from_command_line(["--artificial-slots", "3"], {}, usual_file=file)
    assert (settings.master_url, settings.config_file) == ("http://usual:80", str(file))
    other = settings_from_command_line(["--master-host", "flag"], {}, usual_file=tmp_path / "none.yaml")
    assert (other.master_url, other.config_file) == ("http://flag:80", "")


# -------------------------------------------------------------------------------------------------------- notices


def test_notices_are_read() -> None:
    notice = parse_notice(b'{"kind": "rebalance", "deadline": null, "reason": "risk"}', NOW)
    assert (notice.kind, notice.deadline, notice.reason, notice.at) == (NoticeKind.REBALANCE, None, "risk", NOW)
    timed = parse_notice(b'{"kind": "interruption", "deadline": "2030-01-01T12:02:00+00:00", "reason": "x"}', NOW)
    assert timed.deadline is not None and (timed.deadline - NOW).total_seconds() == 120


def test_a_file_without_sense_is_complained_about_and_the_next_one_believed(tmp_path: Path) -> None:
    file = tmp_path / "notice.json"
    file.write_text("{")
    source = FileNotices(file, clock=FixedClock(NOW), poll_s=1.0)

    async def scenario() -> None:
        import asyncio

        waiting = asyncio.create_task(source.next())
        await asyncio.sleep(5)
        assert not waiting.done()
        file.write_text('{"kind": "maintenance", "deadline": null, "reason": "service"}')
        notice = await asyncio.wait_for(waiting, 5)
        assert notice.kind is NoticeKind.MAINTENANCE
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.next(), 60)  # the same notice is not told again

    run_virtually(scenario())


# --------------------------------------------------------------------------------------------------------- memory


def test_the_memory_of_an_agent_survives_and_a_broken_one_is_named(tmp_path: Path) -> None:
    memory = FileMemory(tmp_path / "agent-state.json")
    assert memory.load() is None
    record = ContainerRecord(
        container_id="c",
        allocation_id="a",
        task_id="t",
        slots=(0,),
        state=ContainerState.RUNNING,
        sequence=2,
        at=NOW,
        launched=True,
        ended=Exit(code=3, failure=FailureKind.CONTAINER_FAILED),
    )
    durable = Durable(sequence=5, acknowledged=4, containers=(record,), ended=(a_report(),))
    memory.save(durable)
    assert memory.load() == durable
    (tmp_path / "agent-state.json").write_text("{}x")
    with pytest.raises(InvalidInput, match=r"agent-state\.json"):
        memory.load()


def test_the_environments_on_a_tasks_path_are_named_by_their_home() -> None:
    assert _homes_of_programs("/tmp/clone/.venv/bin:/usr/bin:/tmp/odd") == ["/tmp/clone/.venv", "/usr"]


def test_a_cpu_slot_computes_with_its_share_unless_the_experiment_says_otherwise() -> None:
    cpu = Device(index=0, kind=SlotKind.CPU, brand="x", uuid="c")
    gpu = Device(index=1, kind=SlotKind.CUDA, brand="x", uuid="GPU-2")
    machine = {"RESOLUTE_SLOT_THREADS": "3"}
    shared = task_environment(a_spec(), machine, [cpu], PLACE)
    assert {shared[name] for name in THREAD_VARIABLES} == {"3"}
    chosen = task_environment(a_spec(environment={"OMP_NUM_THREADS": "8"}), machine, [cpu], PLACE)
    assert (chosen["OMP_NUM_THREADS"], chosen["MKL_NUM_THREADS"]) == ("8", "3")
    for devices in ([gpu], []):
        assert not task_environment(a_spec(), machine, devices, PLACE).keys() & set(THREAD_VARIABLES)


@pytest.mark.parametrize(("cpus", "slots", "threads"), [(8, 2, 4), (2, 4, 1), (7, 2, 3), (16, 0, 16)])
def test_processors_are_shared_out(cpus: int, slots: int, threads: int) -> None:
    assert slot_threads(cpus, slots) == threads
