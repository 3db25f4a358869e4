"""A trial that uses all of the released harness that talks to the master, and the calls that only other schedulers' tasks make.

Runs inside the task, under the interpreter of the released client; nothing of this repository is imported.
"""

import json
import os
import pathlib
import subprocess
import sys
import uuid

import determined as det
from determined import core
from determined.common.api import authentication, bindings, certs
from determined.experimental import client


def main() -> None:
    info = det.get_cluster_info()
    assert info is not None and info.trial is not None
    prepare(info)
    with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
        report(context)
        save_and_remove(context, info)
        session = authentication.login_from_task(info.master_url, cert=certs.default_load(info.master_url))
        used = client.Checkpoint(session, info.trial.hparams["uses"])
        context.experimental.report_task_using_checkpoint(used)
        for operation in context.searcher.operations():
            operation.report_progress(operation.length)
            operation.report_completed(0.25)
        assert not context.preempt.should_preempt()
    calls_of_other_schedulers(info)
    print("every call was answered", flush=True)


def prepare(info: det.ClusterInfo) -> None:
    """What the released start-up does before a trial of its own."""
    directory = pathlib.Path("prepared")
    directory.mkdir()
    flags = ["--download_context_directory", "--resources", "--rendezvous", "--proxy"]
    environ = {**os.environ, "DET_RESOURCES_TYPE": "docker-container"}
    command = [sys.executable, "-m", "determined.exec.prep_container", *flags]
    subprocess.run(command, cwd=directory, env=environ, check=True)
    assert (directory / "released_calls.py").read_bytes() == pathlib.Path(__file__).read_bytes()


def report(context: core.Context) -> None:
    context.train.set_status("reporting")
    context.train.set_metadata({"colour": "blue"})
    assert context.train.get_metadata() == {"colour": "blue"}
    for step in (1, 2, 3):
        context.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0 / step})
        context.train.report_progress(step / 3)
    context.train.report_metrics("inference", steps_completed=3, metrics={"accuracy": 0.75})
    (context.train.get_tensorboard_path() / "events.out.tfevents.1").write_bytes(b"event")
    context.train.upload_tensorboard_files()
    context.train.report_validation_metrics(steps_completed=3, metrics={"loss": 0.25})


def save_and_remove(context: core.Context, info: det.ClusterInfo) -> None:
    """A checkpoint that stays, with two files, and one that is removed again."""
    with context.checkpoint.store_path({"steps_completed": 3}) as (path, kept):
        (path / "state.json").write_text(json.dumps({"done": 3}))
        (path / "big.bin").write_bytes(b"b" * 1000)
    assert context.checkpoint.get_metadata(kept)["steps_completed"] == 3
    with context.checkpoint.store_path({"steps_completed": 2}) as (path, removed):
        (path / "state.json").write_text("{}")
    context.checkpoint.delete(removed)
    # Reports are sent in the background; this asks the master until the validation has come through.
    for _ in range(100):
        if context.train.get_experiment_best_validation() == 0.25:
            return
    raise AssertionError("the validation did not arrive")


def calls_of_other_schedulers(info: det.ClusterInfo) -> None:
    """Kubernetes' and Slurm's start-up, and the watchers that run beside notebooks, through the client's own bindings."""
    session = authentication.login_from_task(info.master_url, cert=certs.default_load(info.master_url))
    allocation, container = info.allocation_id, os.environ["DET_CONTAINER_ID"]
    gathered = bindings.post_AllocationAllGather(
        session,
        allocationId=allocation,
        body=bindings.v1AllocationAllGatherRequest(
            allocationId=allocation, data={"rank": 0}, numPeers=1, requestUuid=str(uuid.uuid4())
        ),
    )
    assert gathered.data == [{"rank": 0}]
    notified = bindings.v1NotifyContainerRunningRequest(
        allocationId=allocation, data={"rank": 0}, numPeers=1, requestUuid=str(uuid.uuid4()), nodeName="n", rank=0
    )
    bindings.post_NotifyContainerRunning(session, allocationId=allocation, body=notified)
    address = bindings.v1PostAllocationProxyAddressRequest(proxyAddress="127.0.0.1")
    bindings.post_PostAllocationProxyAddress(session, allocationId=allocation, body=address)
    bindings.post_AllocationWaiting(
        session, allocationId=allocation, body=bindings.v1AllocationWaitingRequest(allocationId=allocation)
    )
    bindings.post_AllocationReady(
        session, allocationId=allocation, body=bindings.v1AllocationReadyRequest(allocationId=allocation)
    )
    daemon = bindings.v1MarkAllocationResourcesDaemonRequest(allocationId=allocation)
    bindings.post_MarkAllocationResourcesDaemon(session, allocationId=allocation, resourcesId=container, body=daemon)
    line = bindings.v1TaskLog(taskId=info.task_id, log="posted by the bindings\n")
    bindings.post_PostTaskLogs(session, body=bindings.v1PostTaskLogsRequest(logs=[line]))
    body = bindings.v1AllocationPendingPreemptionSignalRequest(allocationId=allocation)
    bindings.post_AllocationPendingPreemptionSignal(session, allocationId=allocation, body=body)


if __name__ == "__main__":
    main()
