"""What an engine is asked for, and what it says, without an engine."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import InvalidInput
from resolute.wire.agent_link import BindMount, ContainerOptions, ContainerSpec, Device, Exit, HostDevice
from resolute.wire.states import FailureKind, SlotKind
from resolute_agent.runtimes import left_out
from resolute_agent.runtimes.base import TaskContext
from resolute_agent.runtimes.docker_engine import socket_of
from resolute_agent.runtimes.docker_follow import end_of, has_ended
from resolute_agent.runtimes.docker_output import Entry, FrameReader, NotFrames, after
from resolute_agent.runtimes.docker_request import (
    EngineOptions,
    Surroundings,
    auth_for,
    create_body,
    registry_of,
    why_not,
)
from support.agent_master import a_spec

AROUND = Surroundings(
    owner="/state/docker",
    run="/state/docker/containers/c1/run",
    wheel="/state/docker/wheel-1",
    image_environment=("PATH=/opt/conda/bin:/usr/bin", "PYTHONPATH=/image/code", "LANG=de_DE.UTF-8"),
    render_group="109",
)
MACHINE = {"DET_AGENT_ID": "agent-1", "DET_CLUSTER_ID": "cluster-1", "DET_MASTER_HOST": "10.0.0.1"}


def a_gpu(uuid: str, kind: SlotKind = SlotKind.CUDA) -> Device:
    return Device(index=3, kind=kind, brand="b", uuid=uuid)


def body_of(spec: ContainerSpec, *devices: Device, **options: Any) -> dict[str, Any]:
    context = TaskContext(environment=MACHINE, devices=devices, lease_s=60.0)
    return create_body(spec, context, AROUND, EngineOptions(**options))


def test_the_whole_request_of_a_plain_container() -> None:
    spec = a_spec(image="mine:1", command=("python3", "-m", "resolute.launch"), slots=(0,), description="d" * 99)
    body = body_of(spec)
    environment = dict(entry.split("=", 1) for entry in body.pop("Env"))
    assert environment["PATH"] == "/opt/conda/bin:/usr/bin"
    assert environment["PYTHONPATH"] == "/opt/resolute:/image/code"
    assert (environment["LANG"], environment["DET_RUN_DIR"]) == ("de_DE.UTF-8", "/run/determined")
    assert (environment["NVIDIA_VISIBLE_DEVICES"], environment["DET_PRIVATE_ROOT"]) == ("void", "1")
    assert body == {
        "Image": "mine:1",
        "Entrypoint": ["python3", "-m", "resolute.launch"],
        "Cmd": [],
        "WorkingDir": "/run/determined/workdir",
        "User": "",
        "Labels": {
            "ai.determined.container.type": "task-container",
            "ai.determined.container.id": "c1",
            "ai.determined.container.agent": "agent-1",
            "ai.determined.container.cluster": "cluster-1",
            "ai.determined.container.devices": "",
            "ai.determined.container.description": "d" * 63,
            "ai.resolute.allocation": "1.c1.1",
            "ai.resolute.owner": "/state/docker",
        },
        "ExposedPorts": {},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "Init": True,
            "AutoRemove": False,
            "RestartPolicy": {"Name": "no"},
            "NetworkMode": "bridge",
            "PublishAllPorts": False,
            "ShmSize": 4 * 1024**3,
            "CapAdd": [],
            "CapDrop": ["MKNOD", "NET_RAW", "SETFCAP"],
            "SecurityOpt": [],
            "Mounts": [
                a_mount("/state/docker/containers/c1/run", "/run/determined"),
                {**a_mount("/state/docker/wheel-1", "/opt/resolute"), "ReadOnly": True},
            ],
            "Devices": [],
            "DeviceRequests": [],
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1000000g", "mode": "blocking"}},
            "Ulimits": [],
        },
    }


def a_mount(source: str, target: str) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": False,
        "BindOptions": {"Propagation": "rprivate"},
    }


def test_everything_that_was_asked_for_is_asked_of_the_engine() -> None:
    options = ContainerOptions(
        network_mode="bridge",
        mounts=(BindMount(host_path="/a", container_path="rel", read_only=True, propagation="rslave"),),
        devices=(HostDevice(host_path="/dev/a", container_path="/dev/b", mode="r"),),
        add_capabilities=("SYS_PTRACE",),
        drop_capabilities=("KILL",),
        ports=(80,),
        user="7:8",
    )
    spec = a_spec(image="i", options=options, shm_bytes=5, environment={"PATH": "/own", "PYTHONPATH": "/mine"})
    body = body_of(spec, memory_bytes=6, ulimits={"memlock": -1})
    host = body["HostConfig"]
    assert host["Mounts"][-1] == {
        "Type": "bind",
        "Source": "/a",
        "Target": "/run/determined/workdir/rel",
        "ReadOnly": True,
        "BindOptions": {"Propagation": "rslave"},
    }
    assert host["Devices"] == [{"PathOnHost": "/dev/a", "PathInContainer": "/dev/b", "CgroupPermissions": "r"}]
    assert (host["CapAdd"], host["CapDrop"], host["ShmSize"]) == (["SYS_PTRACE"], ["KILL", "ALL"], 5)
    assert (host["PublishAllPorts"], body["ExposedPorts"], body["User"]) == (True, {"80/tcp": {}}, "7:8")
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert (host["Memory"], host["MemorySwap"]) == (6, 6)
    assert host["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]
    environment = dict(entry.split("=", 1) for entry in body["Env"])
    assert (environment["PATH"], environment["PYTHONPATH"]) == ("/own", "/opt/resolute:/mine")
    on_host = body_of(replace(spec, options=replace(options, network_mode="host")))
    assert on_host["HostConfig"]["PublishAllPorts"] is False


def test_gpus_are_asked_for_by_their_ids() -> None:
    body = body_of(a_spec(image="i"), a_gpu("GPU-1"), a_gpu("MIG-2"))
    assert body["HostConfig"]["DeviceRequests"] == [
        {"Driver": "nvidia", "DeviceIDs": ["GPU-1", "MIG-2"], "Capabilities": [["gpu", "compute", "utility"]]}
    ]
    assert "NVIDIA_VISIBLE_DEVICES=GPU-1,MIG-2" in body["Env"]
    assert body["Labels"]["ai.determined.container.devices"] == "3,3"


@pytest.mark.parametrize(
    ("user", "added", "dropped", "options"),
    [
        ("", (), ["MKNOD", "NET_RAW", "SETFCAP"], []),
        ("0:0", ("NET_RAW",), ["MKNOD", "SETFCAP"], []),
        ("0:7", ("cap_mknod",), ["NET_RAW", "SETFCAP"], []),
        ("7:7", (), ["ALL"], ["no-new-privileges:true"]),
        ("7:0", ("ALL",), [], ["no-new-privileges:true"]),
    ],
)
def test_a_container_has_only_the_capabilities_that_tasks_need(
    user: str, added: tuple[str, ...], dropped: list[str], options: list[str]
) -> None:
    host = body_of(a_spec(image="i", options=ContainerOptions(user=user, add_capabilities=added)))["HostConfig"]
    assert (host["CapDrop"], host["SecurityOpt"]) == (dropped, options)


def test_amd_gpus_are_files_and_a_variable() -> None:
    host = body_of(a_spec(image="i"), a_gpu("0x1a", SlotKind.ROCM))["HostConfig"]
    assert [each["PathOnHost"] for each in host["Devices"]] == ["/dev/kfd", "/dev/dri"]
    assert (host["SecurityOpt"], host["GroupAdd"], host["DeviceRequests"]) == (["seccomp=unconfined"], ["109"], [])


@pytest.mark.parametrize(
    ("changes", "host", "said"),
    [
        ({"image": "i", "command": ()}, "10.0.0.1", "no command"),
        ({"image": ""}, "10.0.0.1", "environment.image"),
        ({"image": "i"}, "127.0.0.1", "container_master_host"),
        ({"image": "i"}, "localhost", "network_mode: host"),
        ({"image": "i", "options": ContainerOptions(network_mode="host")}, "127.0.0.1", ""),
        ({"image": "i"}, "10.0.0.1", ""),
    ],
)
def test_what_cannot_work_anywhere_is_refused(changes: dict[str, Any], host: str, said: str) -> None:
    problem = why_not(a_spec(**changes), {"DET_MASTER_HOST": host})
    assert said in problem
    assert bool(problem) is bool(said)


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ubuntu", "docker.io"),
        ("pytorch/pytorch:2", "docker.io"),
        ("localhost/x", "localhost"),
        ("registry.example:5000/team/x@sha256:1", "registry.example:5000"),
    ],
)
def test_the_registry_of_an_image(image: str, registry: str) -> None:
    assert registry_of(image) == registry


def test_credentials_go_to_their_own_registry_only() -> None:
    mine = {"username": "u", "password": "p"}
    assert auth_for({}, "a/b") is None
    assert auth_for({**mine, "email": ""}, "r.example/b") == {**mine, "serveraddress": "r.example"}
    named = {**mine, "serveraddress": "https://index.docker.io/v1/"}
    assert auth_for(named, "a/b") == {**mine, "serveraddress": "index.docker.io"}
    with pytest.raises(InvalidInput, match=r"serveraddress: 'index.docker.io' is not the registry"):
        auth_for(named, "r.example/b")


def test_an_engine_elsewhere_is_refused() -> None:
    assert socket_of("unix:///var/run/docker.sock") == "/var/run/docker.sock"
    with pytest.raises(InvalidInput, match="docker_host: 'tcp://h:1' is no socket"):
        socket_of("tcp://h:1")


# ------------------------------------------------------------------------------------------------------ what it says


def a_frame(stream: int, text: bytes, time: bytes = b"2026-11-21T13:50:43.125000000Z") -> bytes:
    payload = time + b" " + text
    return struct.pack(">BxxxL", stream, len(payload)) + payload


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=20), st.integers(1, 17))
def test_frames_are_read_whatever_pieces_they_come_in(parts: list[tuple[int, bytes]], size: int) -> None:
    data = b"".join(a_frame(stream, text) for stream, text in parts)
    reader = FrameReader()
    entries = [entry for at in range(0, len(data), size) for entry in reader.feed(data[at : at + size])]
    assert [(entry.stream, entry.data) for entry in entries] == [
        ("stdout" if stream == 1 else "stderr", text) for stream, text in parts
    ]
    assert all(entry.seconds() == 1795269043.125 for entry in entries)


@pytest.mark.parametrize("data", [b"plain text of a terminal", a_frame(1, b"x", b"yesterday")])
def test_what_are_no_frames_is_not_taken_for_output(data: bytes) -> None:
    with pytest.raises(NotFrames):
        FrameReader().feed(data)


def test_what_follows_the_last_entry() -> None:
    entries = [Entry(stream="stdout", time=f"2026-11-21T13:50:4{n}Z", data=b"x") for n in range(3)]
    assert after(entries, None) == entries
    assert after(entries, entries[0]) == entries[1:]
    assert after(entries, entries[2]) == []
    assert after(entries[1:], entries[0]) is None


def a_state(**changes: object) -> dict[str, Any]:
    return {"State": {"Status": "exited", "ExitCode": 0, "OOMKilled": False, "Error": "", **changes}}


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (a_state(), Exit(code=0)),
        (a_state(OOMKilled=True), Exit(code=0)),
        (a_state(ExitCode=42), Exit(code=42, failure=FailureKind.CONTAINER_FAILED)),
        (a_state(ExitCode=143), Exit(code=143, failure=FailureKind.CONTAINER_FAILED, message="died by SIGTERM")),
        (a_state(ExitCode=1, Error="no"), Exit(code=1, failure=FailureKind.CONTAINER_FAILED, message="no")),
    ],
)
def test_ends(state: dict[str, Any], end: Exit) -> None:
    assert end_of(state, lease_over=False, memory_bytes=0) == end


def test_ends_of_which_more_is_known() -> None:
    killed = a_state(ExitCode=137, OOMKilled=True)
    assert end_of(killed, lease_over=True, memory_bytes=0).failure is FailureKind.AGENT_FAILED
    assert "its limit of 64 MiB" in end_of(killed, lease_over=False, memory_bytes=64 * 1024**2).message
    assert "what the machine has" in end_of(killed, lease_over=False, memory_bytes=0).message
    gone = end_of(None, lease_over=False, memory_bytes=0)
    assert (gone.code, gone.failure) == (None, FailureKind.TASK_ERROR)
    assert has_ended(None) and has_ended(a_state()) and not has_ended(a_state(Status="running"))


# ------------------------------------------------------------------------------------------- without an engine at all


def test_a_plain_process_says_what_it_leaves_out() -> None:
    assert left_out.warnings(a_spec(image="pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime"), own_user=False) == []
    options = ContainerOptions(
        add_capabilities=("A",), devices=(HostDevice(host_path="/a", container_path="/b"),), user="7:8"
    )
    said = " ".join(left_out.warnings(a_spec(image="mine:1", options=options), own_user=False))
    for word in ("'mine:1' is not used", "add_capabilities", "resources.devices", "the agent user 7:8 has no effect"):
        assert word in said
    assert "7:8" not in " ".join(left_out.warnings(a_spec(options=options), own_user=True))


@pytest.mark.parametrize(
    ("mount", "private", "said"),
    [
        (BindMount(host_path="/a", container_path="/b"), True, ""),
        (BindMount(host_path="/a", container_path="/a"), False, ""),
        (BindMount(host_path="/a", container_path="/b"), False, "no mount namespaces"),
        (BindMount(host_path="/a", container_path="/b", read_only=True), True, "read-only"),
        (BindMount(host_path="/a", container_path="b"), True, "absolute"),
    ],
)
def test_a_plain_process_refuses_mounts_that_it_cannot_have(mount: BindMount, private: bool, said: str) -> None:
    problem = left_out.why_not((mount,), private_root=private)
    assert said in problem
    assert bool(problem) is bool(said)
