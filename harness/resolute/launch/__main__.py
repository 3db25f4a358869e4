"""`python -m resolute.launch`: the command of every container.

First stage: unpack the context, write the info files. Then the startup hooks, if there are any, are sourced by a
shell that turns into the second stage (`hooks`), so that what they export is there afterwards. Second stage: find the Python
that was requested, meet the other containers and report the accelerators beside it, prove that checkpoints can be stored,
and become the entrypoint; as the first process of a container, run it and end with its exit code.

The context and, for a container that is alone, the meeting come with the order where they can (`handed`); then nothing is asked.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
from typing import Any

from resolute.core.context import task_storage
from resolute.core.session import Session, TimedOut
from resolute.errors import InvalidInput, ResoluteError
from resolute.launch import child, chosen_python, context_dir, handed, hooks, info_files
from resolute.launch.entrypoint import command_of, uses_released_harness
from resolute.launch.gang_variables import gang_variables
from resolute.task_info import LOG_FORMAT, RendezvousInfo, TaskInfo, environment
from resolute.wire.states import TaskType

logger = logging.getLogger("resolute.launch")

EXIT_FAILED = 1
EXIT_REFUSED = 78
"""Exit code of a task that can never run here; a retry is useless."""
RENDEZVOUS_WAIT_S = 120.0
REPORT_TIMEOUT_S = 5.0
"""Time to wait for reports to the master beside the rendezvous."""


def main(arguments: list[str] | None = None) -> int:
    """Run one task to its end and return its exit code."""
    options = _options(arguments)
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    try:
        info = TaskInfo.from_env(environment())
        if info is None:
            raise InvalidInput("this is no task environment: DET_ALLOCATION_ID and DET_MASTER are not set")
        if not options.after_hook:
            prepare(info)
            become_hooks(info, options.command)
        return start(info, options.command)
    except Refused as error:
        logger.error("%s", error)
        return EXIT_REFUSED
    except ResoluteError as error:
        logger.error("%s", error)
        return EXIT_FAILED


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m resolute.launch", description="Start the task of this container.")
    parser.add_argument("--after-hook", action="store_true", help="continue after the startup hooks")
    parser.add_argument("command", nargs="*", help="what to run; default: the entrypoint of the configuration")
    return parser.parse_args(arguments)


def rehearse(directory: str) -> None:
    """Run the steps of a task once for a dummy task, with `directory` as its run directory.

    A process that is forked from this one afterwards is faster: the interpreter has loaded the code.
    """
    sample = {
        **dict.fromkeys(("DET_ALLOCATION_ID", "DET_TASK_ID", "DET_SESSION_TOKEN", "DET_CONTAINER_ID"), "rehearsal"),
        **dict.fromkeys(("DET_TRIAL_ID", "DET_EXPERIMENT_ID", "DET_TRIAL_RUN_ID", "DET_TRIAL_SEED"), "1"),
        **dict.fromkeys(("DET_HPARAMS", "DET_EXPERIMENT_CONFIG"), "{}"),
        **{
            "DET_MASTER": "http://127.0.0.1:1",
            "DET_TASK_TYPE": "TRIAL",
            "DET_SLOT_IDS": "[0]",
            "DET_RUN_DIR": directory,
        },
    }
    _options([])
    info = TaskInfo.from_env(sample)
    assert info is not None
    info_files.write_identity(info)
    Session.for_task(info).close()


class Refused(ResoluteError):
    """The task can never run on this machine."""


def prepare(info: TaskInfo) -> None:
    """Everything before the user's hook: code and info files. Ends in the working directory."""
    with_default = info.workdir == info.run_dir / "workdir"
    if with_default:
        info.workdir.mkdir(parents=True, exist_ok=True)
    try:
        os.chdir(info.workdir)
    except OSError as error:
        raise InvalidInput(f"the working directory {info.workdir} cannot be entered: {error}") from None
    info_files.write_identity(info)
    code = handed.read(info).code
    count = context_dir.unpack(fetch_code(info) if code is None else code, (info.workdir, info.model_dir))
    logger.info("%s of %s: %d files of code", info.task_type.lower(), info.task_id, count)
    if info.task_type is TaskType.TRIAL:
        info_files.write_resources(info, visible_gpus(environment()))


def fetch_code(info: TaskInfo) -> str:
    """Fetches the context from the master, for `context_dir.unpack`."""
    session = Session.for_task(info)
    try:
        answer = session.get(f"/api/v1/tasks/{info.task_id}/context_directory", timeout_s=600.0)
        return answer.get("b64Tgz") or ""
    finally:
        session.close()


def become_hooks(info: TaskInfo, command: list[str]) -> None:
    """Source the hooks in a shell that then runs our second stage. Returns only when there is no hook."""
    found = hooks.hooks_of(info)
    if not found:
        return
    # -P: the working directory holds the user's code by now, whose modules must not shadow ours.
    again = [sys.executable, "-P", "-m", "resolute.launch", "--after-hook", *(["--", *command] if command else [])]
    logger.info("running %s", ", then ".join(hook.name for hook in found))
    sys.stdout.flush()
    sys.stderr.flush()
    shell = hooks.shell_of()
    os.execve(shell, [shell, "-c", hooks.script(found, again)], chosen_python.for_hooks(environment(), info))


def start(info: TaskInfo, given: list[str]) -> int:
    """Wait for the gang, check the storage, run the program."""
    reporting = threading.Thread(
        target=try_to_report_accelerators, args=(info, visible_gpus(environment())), daemon=True
    )
    reporting.start()
    variables, python = chosen_python.for_entrypoint(task_environment(info), info)
    processes = 1
    if info.task_type is TaskType.TRIAL:
        gang = handed.gang_of_one(handed.read(info)) or meet(info)
        info_files.write_rendezvous(info, gang)
        processes = sum(gang.container_slot_counts)
        variables |= gang_variables(gang, variables)
    command = given or command_of(_entrypoint(info), processes=processes, python=python)
    refuse_released_harness(info, command)
    if info.trial is not None:
        task_storage(info, info.trial.config.get("checkpoint_storage") or {}).check_writable()
    os.chdir(info.workdir)
    reporting.join(REPORT_TIMEOUT_S)
    if os.getpid() == 1:
        # The first process of a container gets no signal that it does not handle: the program could not be asked to end.
        return child.run(command, variables)
    return child.become(command, variables)


def refuse_released_harness(info: TaskInfo, command: list[str]) -> None:
    """Refuses the released harness without a private root: it reads fixed paths, where it would find the identity of another
    task."""
    if info.private_root:
        return
    where = uses_released_harness(command, info.model_dir)
    if where is not None:
        raise Refused(
            f"this task uses the package `determined` ({where}), which needs /run/determined for itself alone, and "
            "this machine does not allow mount namespaces. Run the agent where namespaces are allowed, or port the "
            "task to `import resolute`."
        )


def meet(info: TaskInfo) -> RendezvousInfo:
    """`rendezvous` with a session of its own."""
    session = Session.for_task(info)
    try:
        return rendezvous(session, info)
    finally:
        session.close()


def rendezvous(session: Session, info: TaskInfo) -> RendezvousInfo:
    """Wait until every container of the allocation is ready, without a limit; only the master ends the wait."""
    path = f"/api/v1/allocations/{info.allocation_id}/resources/{info.resources_id}/rendezvous"
    while True:
        try:
            answer: dict[str, Any] = session.get(path, timeout_s=RENDEZVOUS_WAIT_S)["rendezvousInfo"]
        except TimedOut:
            logger.info("still waiting for the other containers of this allocation")
            continue
        return RendezvousInfo(
            container_addrs=tuple(answer["addresses"]),
            container_rank=int(answer["rank"]),
            container_slot_counts=tuple(int(count) for count in answer["slots"]),
        )


def try_to_report_accelerators(info: TaskInfo, gpu_uuids: list[str]) -> None:
    """Report which accelerators the task has, if it has any: for display only, so that the program does not depend on it."""
    if info.task_type is not TaskType.TRIAL or not gpu_uuids:
        return
    session = Session.for_task(info)
    try:
        report_accelerators(session, info, gpu_uuids)
    except ResoluteError as error:
        logger.warning("the accelerators of this task were not reported to the master: %s", error)
    finally:
        session.close()


def report_accelerators(session: Session, info: TaskInfo, gpu_uuids: list[str]) -> None:
    body = {
        "allocationId": info.allocation_id,
        "acceleratorData": {
            "containerId": info.container_id,
            "allocationId": info.allocation_id,
            "taskId": info.task_id,
            "nodeName": info.agent_id,
            "acceleratorType": "cuda",
            "acceleratorUuids": gpu_uuids,
        },
    }
    session.post(f"/api/v1/allocations/{info.allocation_id}/acceleratorData", body)


def visible_gpus(environ: dict[str, str]) -> list[str]:
    """The GPUs that this container was given by uuid; the agent names them, so nothing is probed here."""
    listed = environ.get("NVIDIA_VISIBLE_DEVICES") or environ.get("CUDA_VISIBLE_DEVICES") or ""
    return [name.strip() for name in listed.split(",") if name.strip().startswith(("GPU-", "MIG-"))]


def task_environment(info: TaskInfo) -> dict[str, str]:
    """The program's environment: the launcher's, with the model code importable from any directory."""
    environ = environment()
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    code = str(info.workdir)
    if code not in paths:
        environ["PYTHONPATH"] = os.pathsep.join([code, *paths])
    return environ


def _entrypoint(info: TaskInfo) -> Any:
    if info.trial is None:
        raise InvalidInput("this task was started without a command; give one after `python -m resolute.launch --`")
    return info.trial.config.get("entrypoint")


if __name__ == "__main__":
    sys.exit(main())
