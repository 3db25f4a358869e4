"""Lists and downloads of checkpoints, for every noun that has some."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from resolute_cli.invocation import Invocation
from resolute_cli.render import Block, size_text, state_text

if TYPE_CHECKING:
    from resolute.wire.rest.checkpoints import Checkpoint


REMOVAL = ("Removed Because",)


def checkpoint_table(cli: Invocation, checkpoints: Sequence[Checkpoint]) -> None:
    """The table of `list-checkpoints`, with a column for the reason if one was removed."""
    columns = ("Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources", "Size")
    removed = any(checkpoint.removal for checkpoint in checkpoints)
    rows = [
        (
            checkpoint.training.trial_id,
            checkpoint.metadata.get("steps_completed"),
            state_text(checkpoint.state),
            checkpoint.training.searcher_metric,
            checkpoint.uuid,
            Block(sorted(checkpoint.resources)),
            size_text(sum(checkpoint.resources.values())),
            *((checkpoint.removal or "",) if removed else ()),
        )
        for checkpoint in checkpoints
    ]
    cli.render.table((*columns, *(REMOVAL if removed else ())), rows, checkpoints)


def checkpoint_record(cli: Invocation, checkpoint: Checkpoint) -> None:
    """The table of `checkpoint describe`."""
    columns = ("Experiment ID", "Trial ID", "Steps Completed", "Report Time", "Checkpoint UUID")
    metrics = checkpoint.training.validation_metrics
    row = (
        checkpoint.training.experiment_id,
        checkpoint.training.trial_id,
        checkpoint.metadata.get("steps_completed"),
        checkpoint.report_time,
        checkpoint.uuid,
        metrics.avg_metrics if metrics else None,
        checkpoint.metadata,
    )
    gone = ("State", *REMOVAL) if checkpoint.removal else ()
    why = (state_text(checkpoint.state), checkpoint.removal) if checkpoint.removal else ()
    cli.render.table((*columns, "Validation Metrics", "Metadata", *gone), [(*row, *why)], checkpoint)


def download(cli: Invocation, uuid: str, target: Path, mode: str, *, quiet: bool) -> None:
    """Downloads with a progress bar and prints the path of the files."""
    from resolute.client.checkpoints import Mode

    chosen: dict[str, Mode] = {"auto": "auto", "direct": "direct", "master": "master"}
    with cli.render.progress(f"Downloading {uuid}") as progress:
        cli.api().checkpoints.download(uuid, target, mode=chosen[mode], progress=progress)
    cli.render.done(str(target) if quiet else f"Local checkpoint path: {target}", uuid=uuid, path=str(target))
