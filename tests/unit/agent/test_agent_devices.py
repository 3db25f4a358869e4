"""Which slots a machine has: the vendors' outputs of several generations, their faults, and what follows from each."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from pathlib import Path

import pynvml
import pytest

from resolute.errors import InvalidInput
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind
from resolute_agent.devices import nvidia, rocm, tools
from resolute_agent.devices.detection import artificial, detect, keep_numbers
from resolute_agent.devices.nvml_listing import listing
from resolute_agent.devices.tools import DetectionFailed
from support.nvml import Board, FakeNvml

A = "GPU-11111111-aaaa-bbbb-cccc-000000000001"
B = "GPU-22222222-aaaa-bbbb-cccc-000000000002"

# Driver 550 with two boards, of which the second is listed first; 470 and a product name with a comma; 418, which knows
# no MIG; a board for desktops.
DRIVER_550 = f"""\
1, {B}, 00000000:AF:00.0, 1560221000012, 550.54.15, Disabled, NVIDIA A100-SXM4-40GB
0, {A}, 00000000:3B:00.0, 1560221000011, 550.54.15, Disabled, NVIDIA A100-SXM4-40GB
"""
DRIVER_470 = f"0, {A}, 00000000:3B:00.0, [N/A], 470.82.01, [N/A], NVIDIA T4, Tesla\n"
DRIVER_418 = f"0, {A}, 00000000:3B:00.0, 0324717002233, 418.67, Tesla V100-SXM2-16GB\n"
DESKTOP = f"0, {A}, 00000000:01:00.0, [Not Supported], 390.48, [Not Supported], GeForce GTX 1080 Ti\n"
SPLIT = f"""\
0, {A}, 00000000:3B:00.0, 1560221000011, 550.54.15, Enabled, NVIDIA A100-SXM4-40GB
1, {B}, 00000000:AF:00.0, 1560221000012, 550.54.15, Disabled, NVIDIA A100-SXM4-40GB
"""
LISTED = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: {A})
  MIG 3g.20gb     Device  0: (UUID: MIG-aaaaaaaa-0000-1111-2222-333333333333)
  MIG 1c.3g.20gb  Device  1: (UUID: MIG-bbbbbbbb-0000-1111-2222-333333333333)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {B})
"""
LISTED_450 = f"""\
GPU 0: A100-SXM4-40GB (UUID: {A})
  MIG 1g.5gb Device 0: (UUID: MIG-{A}/7/0)
  MIG 1g.5gb Device 1: (UUID: MIG-{A}/8/0)
"""
LOST = f"""\
Unable to determine the device handle for GPU 0000:AF:00.0: GPU is lost.  Reboot the system to recover this GPU
{DRIVER_550.splitlines()[1]}
"""
LOST_560 = f"""\
{DRIVER_550.splitlines()[1]}
1, [GPU requires reset], 00000000:AF:00.0, [GPU requires reset], 560.35.03, [GPU requires reset], NVIDIA A100-SXM4-40GB
"""

ROCM_62 = """\
WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"Device Name": "Phoenix3", "Unique ID": "N/A"}, \
"card10": {"Card Series": "AMD Instinct MI300X", "Unique ID": "0x719D230578348E8C"}, \
"card2": {"Card Series": "AMD Instinct MI300X", "Unique ID": "0xac1b58f8c066790f"}, \
"system": {"Driver version": "6.8.5"}}
"""
ROCM_45 = '{"card0": {"Unique ID": "0x719d230578348e8c", "Card series": "Arcturus GL-XL [AMD Instinct MI100]"}}'
AMD_SMI = json.dumps(
    [
        {"gpu": 1, "bdf": "0000:26:00.0", "uuid": "97FF74A1-0000-1000-80B5-4E0B1A3F2A11", "kfd_id": 1, "node_id": 3},
        {"gpu": 0, "bdf": "0000:05:00.0", "uuid": "8BFF74A1-0000-1000-80E4-2D2B5A5F9A24", "kfd_id": 2, "node_id": 2},
    ]
)


class Tools:
    """A PATH with vendors' tools that print what was recorded."""

    def __init__(self, directory: Path) -> None:
        self.path = directory

    def put(self, name: str, *answers: tuple[str, str, int]) -> None:
        """Each answer is (a part of the arguments, output, exit code); the first that fits is given."""
        script = ['#!/bin/sh\ncase "$*" in\n']
        script += [f"*'{part}'*) printf '%s' {shlex.quote(text)}; exit {code};;\n" for part, text, code in answers]
        tool = self.path / name
        tool.write_text("".join([*script, "*) exit 99;;\nesac\n"]))
        tool.chmod(0o755)

    def detect(
        self, slot_type: str = "auto", *visible: str, pci: str = "no-such", limit_s: float = 30
    ) -> tuple[Device, ...]:
        return detect(
            slot_type,
            artificial_slots=0,
            agent_id="a",
            visible_gpus=visible,
            search_path=str(self.path),
            nvml_listing=(),
            pci_devices=self.path / pci,
            limit_s=limit_s,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def rows(devices: tuple[Device, ...]) -> list[tuple[int, str, str]]:
    return [(device.index, device.brand, device.uuid) for device in devices]


# ------------------------------------------------------------------------------------------------------ without a GPU


def test_artificial_slots_are_the_same_at_each_start_and_differ_between_agents() -> None:
    one = detect("cuda", artificial_slots=3, agent_id="a")
    assert one == detect("auto", artificial_slots=3, agent_id="a") == artificial(3, "a")
    assert {device.uuid for device in one}.isdisjoint(device.uuid for device in artificial(3, "b"))
    assert [device.index for device in one] == [0, 1, 2]


def test_a_machine_without_gpus_offers_its_processor_or_nothing(machine: Tools) -> None:
    (cpu,) = machine.detect("cpu")
    assert cpu.kind is SlotKind.CPU and cpu.brand and machine.detect("auto") == (cpu,)
    assert machine.detect("none") == ()
    with pytest.raises(InvalidInput, match="slot_type: 'tpu'"):
        machine.detect("tpu")
    for slot_type, missing in (("cuda", "nvidia-smi"), ("rocm", "rocm-smi")):
        with pytest.raises(DetectionFailed, match=f"{missing}.*{slot_type} requires its devices"):
            machine.detect(slot_type)


@pytest.mark.parametrize(("vendor", "kind", "name"), [("0x10de", "0x030200", "NVIDIA"), ("0x1002", "0x120000", "AMD")])
def test_a_gpu_without_a_driver_is_no_machine_without_gpus(machine: Tools, vendor: str, kind: str, name: str) -> None:
    device = machine.path / "pci" / "0000:3b:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    with pytest.raises(DetectionFailed, match=f"{name} at 0000:3b:00.0.*install the driver"):
        machine.detect("auto", pci="pci")
    assert machine.detect("cpu", pci="pci")[0].kind is SlotKind.CPU
    (device / "class").write_text("0x030000\n")  # what drives a screen needs no driver for computing
    assert machine.detect("auto", pci="pci")[0].kind is SlotKind.CPU


def test_a_hidden_gpu_is_none(machine: Tools) -> None:
    machine.put("nvidia-smi", ("query", DRIVER_550, 0))
    assert machine.detect("auto", "-1")[0].kind is SlotKind.CPU


# --------------------------------------------------------------------------------------------------------- nvidia-smi


@pytest.mark.parametrize(
    ("text", "brand"),
    [(DRIVER_470, "NVIDIA T4, Tesla"), (DESKTOP, "GeForce GTX 1080 Ti")],
)
def test_older_drivers_and_desktop_boards(machine: Tools, text: str, brand: str) -> None:
    machine.put("nvidia-smi", ("query", text, 0))
    assert rows(machine.detect()) == [(0, brand, A)]


def test_a_driver_that_knows_no_mig_is_asked_without_it(machine: Tools) -> None:
    refusal = 'Field "mig.mode.current" is not a valid field to query.\n\n'
    machine.put("nvidia-smi", ("mig.mode.current", refusal, 2), ("query", DRIVER_418, 0))
    assert rows(machine.detect("cuda")) == [(0, "Tesla V100-SXM2-16GB", A)]


def test_gpus_keep_their_index_and_are_chosen_by_any_name_that_they_have(machine: Tools) -> None:
    machine.put("nvidia-smi", ("query", DRIVER_550, 0))
    both = machine.detect("gpu")
    assert rows(both) == [(0, "NVIDIA A100-SXM4-40GB", A), (1, "NVIDIA A100-SXM4-40GB", B)]
    for name in ("1", B, "GPU-2222", "00000000:AF:00.0", "0000:af:00.0", "AF:00.0", "1560221000012"):
        assert machine.detect("cuda", name) == both[1:], name
    assert machine.detect("cuda", "1", "GPU-1111") == both
    for name in ("7", "GPU-3", "0000:00:00.0", "MIG-1"):
        with pytest.raises(InvalidInput, match=rf"visible_gpus: '{name}' is no device here; there are 0 \({A}\)"):
            machine.detect("cuda", name)


def test_mig_instances_are_slots_beside_boards_that_are_whole(machine: Tools) -> None:
    machine.put("nvidia-smi", ("query", SPLIT, 0), ("-L", LISTED, 0))
    whole = "NVIDIA A100-SXM4-40GB"
    assert rows(machine.detect()) == [
        (0, f"{whole} MIG 3g.20gb", "MIG-aaaaaaaa-0000-1111-2222-333333333333"),
        (1, f"{whole} MIG 1c.3g.20gb", "MIG-bbbbbbbb-0000-1111-2222-333333333333"),
        (2, whole, B),
    ]
    assert rows(machine.detect("cuda", "MIG-bbbb")) == [
        (0, f"{whole} MIG 1c.3g.20gb", "MIG-bbbbbbbb-0000-1111-2222-333333333333")
    ]
    assert rows(machine.detect("cuda", "1")) == [(1, whole, B)]
    machine.put("nvidia-smi", ("query", SPLIT.splitlines()[0], 0), ("-L", LISTED_450, 0))
    assert [uuid for _, _, uuid in rows(machine.detect())] == [f"MIG-{A}/7/0", f"MIG-{A}/8/0"]


def test_a_board_in_mig_mode_without_instances_is_said_and_can_be_left_out(machine: Tools) -> None:
    machine.put("nvidia-smi", ("query", SPLIT, 0), ("-L", LISTED.replace("MIG", "no"), 0))
    with pytest.raises(DetectionFailed, match=r"GPU 0 .* in MIG mode and has no instance.*nvidia-smi mig -cgi"):
        machine.detect()
    assert rows(machine.detect("auto", B)) == [(1, "NVIDIA A100-SXM4-40GB", B)]


@pytest.mark.parametrize("text", [LOST, LOST_560])
def test_a_gpu_that_is_lost_is_left_out_and_said(machine: Tools, text: str, caplog: pytest.LogCaptureFixture) -> None:
    machine.put("nvidia-smi", ("query", text, 15))
    with caplog.at_level(logging.ERROR):
        assert rows(machine.detect()) == [(0, "NVIDIA A100-SXM4-40GB", A)]
    assert "left out" in caplog.text and "AF:00.0" in caplog.text
    assert rows(machine.detect("cuda", "0", "1")) == [(0, "NVIDIA A100-SXM4-40GB", A)]
    with pytest.raises(DetectionFailed, match=r"none of visible_gpus \['1'\] is usable"):
        machine.detect("cuda", "1")
    machine.put("nvidia-smi", ("query", text.replace(DRIVER_550.splitlines()[1], ""), 15))
    with pytest.raises(DetectionFailed, match="reboot the machine"):
        machine.detect()


@pytest.mark.parametrize(
    ("said", "code", "advice"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173", 18, "reboot"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.",
            9,
            "modprobe nvidia",
        ),
        ("Failed to initialize NVML: Insufficient Permissions", 4, "with access to /dev/nvidia"),
        ("Failed to initialize NVML: Unknown Error", 255, "reset the GPU or reboot"),
        ("No devices were found", 6, "set slot_type to cpu"),
        ("", 0, "lists no GPU"),
        ("some news of the vendor", 0, "which describes no device"),
    ],
)
@pytest.mark.parametrize("slot_type", ["auto", "cuda"])
def test_a_broken_driver_fails_loudly_with_what_to_do(
    machine: Tools, slot_type: str, said: str, code: int, advice: str
) -> None:
    machine.put("nvidia-smi", ("query", said, code))
    with pytest.raises(DetectionFailed, match=advice) as error:
        machine.detect(slot_type)
    assert " ".join(said.split())[:40] in str(error.value)


def test_a_tool_that_hangs_is_ended_with_what_it_started(machine: Tools) -> None:
    pid_file = machine.path / "pid"
    tool = machine.path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {pid_file}\nwait\n")
    tool.chmod(0o755)
    with pytest.raises(DetectionFailed, match="has not answered in 1 s: the driver hangs"):
        machine.detect(limit_s=1)
    assert not Path(f"/proc/{int(pid_file.read_text())}/root").exists()


# --------------------------------------------------------------------------------------------------------------- NVML


def through_nvml(fake: FakeNvml) -> nvidia.Listing | None:
    found = nvidia.parse_nvml(json.dumps(listing(fake)))
    assert fake.open == 0
    return found


def test_nvml_lists_what_nvidia_smi_lists() -> None:
    instances = (("3g.20gb", "MIG-a"), None, ("1g.5gb", "MIG-b"))
    found = through_nvml(
        FakeNvml(boards=[Board(uuid=A, serial="1", mig=instances, split=True), Board(uuid=B, name="NVIDIA T4")])
    )
    assert found is not None and found.driver == "550.54.15" and found.gpus[0].serial == "1"
    assert rows(nvidia.devices(found)) == [
        (0, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-a"),
        (1, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-b"),
        (2, "NVIDIA T4", B),
    ]
    unsplit = through_nvml(FakeNvml(boards=[Board(uuid=A, mig=instances)]))
    assert unsplit is not None and rows(nvidia.devices(unsplit)) == [(0, "NVIDIA A100-SXM4-40GB", A)]


def test_nvml_leaves_out_a_gpu_that_is_lost() -> None:
    found = through_nvml(FakeNvml(boards=[Board(uuid=A, fault=pynvml.NVML_ERROR_GPU_IS_LOST), Board(uuid=B)]))
    assert found is not None and [gpu.index for gpu in found.gpus] == [1]
    assert found.unusable == ("GPU 0: GPU is lost",) and "Xid" in tools.repair(found.unusable[0])


def test_nvml_without_its_library_is_absent_and_a_broken_one_is_an_error() -> None:
    assert through_nvml(FakeNvml(fault=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)) is None
    for fault, advice in (
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidia"),
    ):
        with pytest.raises(DetectionFailed) as error:
            through_nvml(FakeNvml(fault=fault))
        assert advice in tools.repair(str(error.value))


def test_nvml_wins_over_nvidia_smi_and_is_not_missed(machine: Tools) -> None:
    machine.put("nvidia-smi", ("query", DRIVER_550, 0))

    def detected(answer: str, code: int = 0) -> tuple[Device, ...]:
        program = f"import sys; sys.stdout.write({answer!r}); sys.exit({code})"
        return detect(
            "auto",
            artificial_slots=0,
            agent_id="a",
            search_path=str(machine.path),
            nvml_listing=(sys.executable, "-c", program),
        )

    assert rows(detected(json.dumps(listing(FakeNvml(boards=[Board(uuid=B)])))))[0][2] == B
    assert len(detected('{"absent": "no library"}')) == 2
    assert len(detected("", -11)) == 2
    with pytest.raises(DetectionFailed, match=r"NVML: Driver/library version mismatch; .*reboot"):
        detected('{"error": "Driver/library version mismatch"}')
    with pytest.raises(DetectionFailed, match="NVML's listing cannot be read"):
        detected('{"gpus": 3}')


def test_the_listing_program_runs_on_this_machine() -> None:
    answer = tools.ask(sys.executable, "-m", "resolute_agent.devices.nvml_listing")
    assert answer.code == 0 and json.loads(answer.out).keys() & {"absent", "error", "gpus"}


# --------------------------------------------------------------------------------------------------------------- ROCm


def test_rocm_cards_are_sorted_and_what_is_built_into_the_processor_is_none(machine: Tools) -> None:
    machine.put("rocm-smi", ("showproductname", ROCM_62, 0))
    cards = machine.detect()
    assert rows(cards) == [
        (2, "AMD Instinct MI300X", "0xac1b58f8c066790f"),
        (10, "AMD Instinct MI300X", "0x719d230578348e8c"),
    ]
    assert [rocm.runtime_name(card) for card in cards] == ["GPU-ac1b58f8c066790f", "GPU-719d230578348e8c"]
    for name in ("10", "0x719d", "GPU-719D230578348E8C"):
        assert machine.detect("rocm", name) == cards[1:], name
    with pytest.raises(InvalidInput, match="visible_gpus: '3'"):
        machine.detect("rocm", "3")
    machine.put("rocm-smi", ("showproductname", "Traceback", 1), ("--showuniqueid --json", ROCM_45, 0))
    assert rows(machine.detect("rocm")) == [(0, "Arcturus GL-XL [AMD Instinct MI100]", "0x719d230578348e8c")]


def test_partitions_of_one_board_are_told_apart() -> None:
    cards = rocm.parse_rocm_smi(json.dumps({f"card{n}": {"Unique ID": "0xab"} for n in (0, 1)}))
    assert [card.uuid for card in cards] == ["0xab/0", "0xab/1"]
    assert [rocm.runtime_name(card) for card in cards] == ["0", "1"]


def test_amd_smi_stands_in_where_rocm_smi_is_gone(machine: Tools) -> None:
    for text in (AMD_SMI, json.dumps({"gpu_data": json.loads(AMD_SMI)})):
        machine.put("amd-smi", ("list --json", text, 0))
        cards = machine.detect()
        assert [(card.index, card.uuid[:8]) for card in cards] == [(0, "8bff74a1"), (1, "97ff74a1")]
        assert [rocm.runtime_name(card) for card in cards] == ["0", "1"]
    machine.put("amd-smi", ("list", '[{"bdf": 1, "uuid": "x"}]', 0))
    with pytest.raises(DetectionFailed, match="cannot be read"):
        machine.detect()


@pytest.mark.parametrize(
    ("said", "code", "advice"),
    [
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)", 2, "modprobe amdgpu"),
        ("ERROR: driver not loaded", 0, "did not answer in JSON"),
        ("WARNING: No AMD GPUs specified", 0, "did not answer in JSON"),
        ("{}", 0, "lists no GPU"),
    ],
)
def test_a_broken_rocm_fails_loudly(machine: Tools, said: str, code: int, advice: str) -> None:
    machine.put("rocm-smi", ("--json", said, code))
    with pytest.raises(DetectionFailed, match=advice):
        machine.detect("auto")


# ---------------------------------------------------------------------------------------------------------- once more


def test_devices_that_are_seen_again_keep_their_numbers() -> None:
    def gpu(index: int, uuid: str) -> Device:
        return Device(index=index, kind=SlotKind.CUDA, brand="g", uuid=uuid)

    before = (gpu(0, "a"), gpu(1, "b"), gpu(2, "c"))
    assert keep_numbers(before, before) == before
    # After the loss of the first the driver counts the others from 0; a new one takes what is free.
    assert keep_numbers((gpu(0, "b"), gpu(1, "c")), before) == before[1:]
    assert keep_numbers((gpu(0, "b"), gpu(1, "c"), gpu(2, "d")), before) == (gpu(1, "b"), gpu(2, "c"), gpu(3, "d"))
