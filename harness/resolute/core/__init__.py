"""The API of training code: report, save, restore, poll for preemption, communicate with the other ranks.

Connects to a master, or runs without one. Must not depend on schedulers, clouds or frameworks; the standard library only.
"""

from resolute.core.checkpoint import CheckpointContext, DownloadMode
from resolute.core.context import Context, InvalidHP, init, task_storage
from resolute.core.distributed import DistributedContext, PeerLost
from resolute.core.preempt import PreemptContext, PreemptMode
from resolute.core.searcher import SearcherContext, SearcherMode, SearcherOperation, Unit, parse_length
from resolute.core.session import RetryPolicy, Session, StaleRun
from resolute.core.train import EarlyExitReason, TrainContext
from resolute.storage import CheckpointStorage, CorruptCheckpoint, StorageUnavailable
from resolute.task_info import RendezvousInfo, TaskInfo, TrialInfo, environment

__all__ = [
    "CheckpointContext",
    "CheckpointStorage",
    "Context",
    "CorruptCheckpoint",
    "DistributedContext",
    "DownloadMode",
    "EarlyExitReason",
    "InvalidHP",
    "PeerLost",
    "PreemptContext",
    "PreemptMode",
    "RendezvousInfo",
    "RetryPolicy",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "Session",
    "StaleRun",
    "StorageUnavailable",
    "TaskInfo",
    "TrainContext",
    "TrialInfo",
    "Unit",
    "get_cluster_info",
    "init",
    "parse_length",
    "task_storage",
]


def get_cluster_info() -> TaskInfo | None:
    """The task that this process belongs to; None off-cluster."""
    return TaskInfo.from_env(environment())
