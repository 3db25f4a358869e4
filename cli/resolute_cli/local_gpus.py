"""The GPUs of this machine that a local cluster uses."""

from __future__ import annotations

from collections.abc import Mapping

from resolute.errors import FailedPrecondition, ResoluteError
from resolute.wire.states import SlotKind
from resolute_cli.loading import loading


def gpus_of_this_machine(
    wanted: bool | None, environ: Mapping[str, str], *, ask_nvml: bool = True
) -> tuple[str, tuple[str, ...]]:
    """The type of the slots and the UUIDs of their GPUs: ("cpu", ()) where there is none, or none is wanted.

    `wanted` None takes the existing ones; without NVML the tools on the PATH of `environ` are used. Raises
    `FailedPrecondition` for `True` and no GPU, and for a GPU whose driver does not work.
    """
    if wanted is False:
        return "cpu", ()
    with loading("what looks for GPUs", "cli,master,agent"):
        from resolute_agent.devices.detection import NVML_LISTING, detect
    shown = environ.get("ROCR_VISIBLE_DEVICES") or environ.get("CUDA_VISIBLE_DEVICES") or ""
    visible = tuple(part.strip() for part in shown.split(",") if part.strip())
    try:
        found = detect(
            "auto",
            artificial_slots=0,
            agent_id="",
            visible_gpus=visible,
            search_path=environ.get("PATH"),
            nvml_listing=NVML_LISTING if ask_nvml else (),
        )
    except ResoluteError as error:
        raise FailedPrecondition(f"{error} (or train on the processor with --no-gpu)") from None
    gpus = tuple(each.uuid for each in found if each.kind is not SlotKind.CPU)
    if not gpus:
        if wanted:
            raise FailedPrecondition("--gpu: this machine has no GPU that its driver lists; leave the flag out")
        return "cpu", ()
    return found[0].kind.value, gpus
