"""`core.init`: the context that user code works in, put together for a managed trial, another task, or off-cluster."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from resolute.clock import Clock, SystemClock
from resolute.core.checkpoint import CheckpointContext, MasterRegistry, Origin, StorageRegistry
from resolute.core.distributed import DistributedContext
from resolute.core.preempt import LocalPreempt, ManagedPreempt, PreemptContext, PreemptMode
from resolute.core.searcher import MasterOperations, SearcherContext
from resolute.core.sender import Sender
from resolute.core.session import RetryPolicy, Session
from resolute.core.shareable import without_secrets
from resolute.core.train import EarlyExitReason, LocalTrain, ManagedTrain, TrainContext
from resolute.errors import InvalidInput
from resolute.ids import IdSource, SystemIds
from resolute.storage import CheckpointStorage, storage_from_config, storage_from_url
from resolute.task_info import (
    LOG_FORMAT,
    SHARED_FS_MOUNT,
    ProcessPlace,
    TaskInfo,
    TrialInfo,
    environment,
    user_data_dir,
)

logger = logging.getLogger("resolute.core")


class InvalidHP(Exception):
    """Raise inside a context if the hyperparameters are not valid: the trial ends, without an error."""


class Context:
    """The interface of user code. Use it as a context manager.

    `train` reports, `checkpoint` saves and restores, `preempt` returns when to stop, `distributed` communicates with the other
    processes of the job, `searcher` gives the length to train, `info` is the task (None off-cluster).
    """

    def __init__(
        self,
        *,
        train: TrainContext,
        checkpoint: CheckpointContext,
        preempt: PreemptContext,
        distributed: DistributedContext,
        searcher: SearcherContext,
        info: TaskInfo | None,
        session: Session | None = None,
        sender: Sender | None = None,
    ) -> None:
        self.train = train
        self.checkpoint = checkpoint
        self.preempt = preempt
        self.distributed = distributed
        self.searcher = searcher
        self.info = info
        self._session = session
        self._sender = sender

    def start(self) -> None:
        if self._sender is not None:
            self._sender.start()
        self.preempt.start()
        if threading.current_thread() is threading.main_thread() and hasattr(faulthandler, "register"):
            with contextlib.suppress(OSError, ValueError):  # no usable stderr: stacks cannot be shown
                faulthandler.register(signal.SIGUSR1, chain=True)

    def close(self, *, failed: bool = False) -> None:
        """Stop polling, send what is queued, close the connections. Raises if the master refused or did not get a report, unless
        `failed`."""
        with contextlib.ExitStack() as last_to_first:
            if self._session is not None:
                last_to_first.callback(self._session.close)
            last_to_first.callback(self.distributed.close)
            last_to_first.callback(self.train.close, failed=failed)
            self.preempt.close(failed=failed)

    def __enter__(self) -> Context:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, InvalidHP):
            logger.warning("invalid hyperparameters: %s", error)
            if self.distributed.rank == 0:
                self.train.report_early_exit(EarlyExitReason.INVALID_HP)
            self.close(failed=True)
            sys.exit(0)
        # Leaving by sys.exit(0) is a clean end: lost reports must then be an error like in any other clean end.
        clean = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        self.close(failed=not clean)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | Mapping[str, Any] | CheckpointStorage | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    sigterm_on_notice: bool = False,
    local_dir: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> Context:
    """The context of this process, to be entered with `with`.

    In a trial of a cluster all parts are real. In other tasks and off-cluster they are replacements without a master:
    checkpoints then go to `checkpoint_storage`, or below `local_dir`, or below the user's data directory, and reports
    to `metrics.jsonl` in `local_dir` if one is given. `distributed` defaults to what the launcher of this process says.
    `sigterm_on_notice` asks the agent for a SIGTERM when the machine will go away, and turns it into a preemption.
    """
    variables = environment() if environ is None else environ
    clock, ids = clock or SystemClock(), ids or SystemIds()
    _set_up_logging()
    info = TaskInfo.from_env(variables)
    distributed = distributed or _place(info, variables)
    if info is None or info.trial is None:
        return _local(distributed, checkpoint_storage, preempt_mode, local_dir, variables, clock, ids, info)
    return _managed(
        info, info.trial, distributed, checkpoint_storage, preempt_mode, sigterm_on_notice, retry, clock, ids
    )


def task_storage(info: TaskInfo, config: Mapping[str, Any]) -> CheckpointStorage:
    """The storage of a task's experiment configuration, as this container sees it."""
    return storage_from_config(config, shared_fs_mount=Path(SHARED_FS_MOUNT) if info.private_root else None)


def _managed(
    info: TaskInfo,
    trial: TrialInfo,
    distributed: DistributedContext,
    checkpoint_storage: str | Path | Mapping[str, Any] | CheckpointStorage | None,
    preempt_mode: PreemptMode,
    sigterm_on_notice: bool,
    retry: RetryPolicy | None,
    clock: Clock,
    ids: IdSource,
) -> Context:
    session = Session.for_task(info, retry=retry)
    configured = trial.config.get("checkpoint_storage") or {}
    storage = _storage(checkpoint_storage) or task_storage(info, configured)
    prepared = session.post("/api/v1/runs/start", {"runId": trial.trial_id, "checkpointStorage": dict(configured)})
    sender = Sender(session)
    train = ManagedTrain(
        session=session,
        sender=sender,
        trial=trial,
        allocation_id=info.allocation_id,
        clock=clock,
        marking=distributed.rank == 0,
    )
    checkpoint = CheckpointContext(
        storage=storage,
        registry=MasterRegistry(session=session, info=info, storage_id=prepared.get("storageId"), clock=clock),
        distributed=distributed,
        train=train,
        clock=clock,
        ids=ids,
        origin=_origin(trial, info),
        parent=info.latest_checkpoint,
    )
    if distributed.rank == 0:
        checkpoint.sweep_abandoned()
    preempt = ManagedPreempt(
        session=session,
        allocation_id=info.allocation_id,
        run_dir=info.run_dir,
        distributed=distributed,
        mode=preempt_mode,
        clock=clock,
        sigterm_on_notice=sigterm_on_notice,
    )
    return Context(
        train=train,
        checkpoint=checkpoint,
        preempt=preempt,
        distributed=distributed,
        searcher=SearcherContext(
            trial.config,
            train,
            distributed=distributed,
            operations=MasterOperations(session, trial_id=trial.trial_id, allocation_id=info.allocation_id),
        ),
        info=info,
        session=session,
        sender=sender,
    )


def _origin(trial: TrialInfo, info: TaskInfo) -> Origin:
    return Origin(
        trial_id=trial.trial_id,
        trial_run_id=trial.trial_run_id,
        code=info.model_dir,
        config={"config": without_secrets(trial.config), "hparams": trial.hparams, "trial_seed": trial.trial_seed},
    )


def _local(
    distributed: DistributedContext,
    checkpoint_storage: str | Path | Mapping[str, Any] | CheckpointStorage | None,
    preempt_mode: PreemptMode,
    local_dir: str | Path | None,
    variables: Mapping[str, str],
    clock: Clock,
    ids: IdSource,
    info: TaskInfo | None,
) -> Context:
    base = Path(local_dir) if local_dir is not None else None
    storage = _storage(checkpoint_storage)
    if storage is None:
        storage = storage_from_url(str((base or user_data_dir(variables)) / "checkpoints"))
    train = LocalTrain(clock=clock, path=base / "metrics.jsonl" if base is not None else None)
    checkpoint = CheckpointContext(
        storage=storage,
        registry=StorageRegistry(storage),
        distributed=distributed,
        train=train,
        clock=clock,
        ids=ids,
        origin=Origin(),
    )
    return Context(
        train=train,
        checkpoint=checkpoint,
        preempt=LocalPreempt(distributed, preempt_mode),
        distributed=distributed,
        searcher=SearcherContext({}, train, chief=distributed.rank == 0),
        info=info,
    )


def _storage(wanted: str | Path | Mapping[str, Any] | CheckpointStorage | None) -> CheckpointStorage | None:
    if wanted is None:
        return None
    if isinstance(wanted, (str, Path)):
        return storage_from_url(str(wanted))
    if isinstance(wanted, Mapping):
        if wanted.get("type") == "shared_fs":
            raise InvalidInput(
                "checkpoint_storage of type shared_fs is the cluster's to mount; pass the directory's path"
            )
        return storage_from_config(wanted, shared_fs_mount=None)
    return wanted


def _place(info: TaskInfo | None, variables: Mapping[str, str]) -> DistributedContext:
    place = ProcessPlace.from_env(variables)
    if place is not None:
        return DistributedContext.from_place(place, info.allocation_id if info is not None else "")
    return DistributedContext.one_per_container(info) if info is not None else DistributedContext.alone()


def _set_up_logging() -> None:
    """Sets the log format from which the log pipeline reads levels. A program that has set up logging keeps its own."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
