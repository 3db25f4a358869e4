"""Output of the demonstration: a live picture on a terminal, occasional lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo import scenario
from demo.pictures import GONE, Picture
from resolute import printable
from resolute.wire.rest.extensions import Decision, GetLedgerResponse, Instance

BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 60
QUIET_LINE_S = 5.0
"""Without a terminal: interval of lines while only the number of steps changes."""

STYLES = {
    "requested": "yellow",
    "starting": "yellow",
    "running": "green",
    "draining": "magenta",
    "stopping": "magenta",
    "gone": "dim",
    "refused": "red",
}
PARTS = ("useful", "starting", "checkpointing", "lost", "idle")


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """The values as bars of eight heights, averaged down to `width` bars. Empty for no values."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[round((mean - low) / span * (len(BARS) - 1))] for mean in means)


@dataclass(slots=True, kw_only=True)
class Screen:
    """Shows successive pictures. Use as a context."""

    console: Console
    next_text: str = ""
    _live: Live | None = None
    _said: set[tuple[datetime, str, str]] = field(default_factory=set)
    _states: dict[str, str] = field(default_factory=dict)
    _last_line_s: float = 0.0

    def __enter__(self) -> Screen:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)
            self._live = None

    def show(self, picture: Picture, *, elapsed_s: float, now: datetime) -> None:
        if self._live is not None:
            self._live.update(drawn(picture, elapsed_s=elapsed_s, now=now, next_text=self.next_text))
        else:
            self._write_lines(picture, elapsed_s)

    def say(self, text: str, *, elapsed_s: float) -> None:
        """Prints a persistent line."""
        self.console.print(f"{elapsed_s:6.1f}s  {printable.lines(text)}", highlight=False, markup=False, soft_wrap=True)

    def _write_lines(self, picture: Picture, elapsed_s: float) -> None:
        for decision in picture.decisions:
            key = (decision.at, decision.kind, decision.subject)
            if key not in self._said:
                self._said.add(key)
                self.say(f"decided: {decision_text(decision)}", elapsed_s=elapsed_s)
        for one in picture.instances:
            if self._states.get(one.id) != one.state:
                self._states[one.id] = one.state
                self.say(f"machine {one.id} is {one.state}", elapsed_s=elapsed_s)
        if elapsed_s - self._last_line_s >= QUIET_LINE_S:
            self._last_line_s = elapsed_s
            self.say(f"{progress_text(picture)}; next: {self.next_text}", elapsed_s=elapsed_s)


def progress_text(picture: Picture) -> str:
    run = len(picture.allocations)
    loss = f", loss {picture.losses[-1][1]:.3f}" if picture.losses else ""
    accuracy = f", accuracy {picture.accuracy:.3f}" if picture.accuracy is not None else ""
    return f"{picture.state.lower()}: step {picture.steps}/{scenario.STEPS} in run {run}{loss}{accuracy}"


def decision_text(decision: Decision) -> str:
    return f"{decision.kind} {decision.subject}: {decision.reason}"


# ------------------------------------------------------------------------------------------------------------- drawing


def drawn(picture: Picture, *, elapsed_s: float, now: datetime, next_text: str) -> RenderableType:
    head = Text.assemble(
        ("Resolute  ", "bold"), (f"{elapsed_s:.0f} s  ", "cyan"), ("next: ", "dim"), (next_text, "bold yellow")
    )
    return Group(
        head,
        Panel(_queue(picture), title="job queue", title_align="left", border_style="blue"),
        Panel(_machines(picture, now), title="machines", title_align="left", border_style="blue"),
        Panel(_training(picture), title="training", title_align="left", border_style="blue"),
        Panel(_decisions(picture.decisions), title="decisions", title_align="left", border_style="blue"),
    )


def _table(*columns: str) -> Table:
    """A table whose last column takes the remaining width."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    for index, column in enumerate(columns):
        last = index == len(columns) - 1
        table.add_column(
            column, no_wrap=True, overflow="ellipsis", ratio=1 if last else None, max_width=None if last else 24
        )
    return table


def _name(text: str) -> Text:
    """Literal text: a plain string would be parsed as markup."""
    return Text(printable.one_line(text))


def _queue(picture: Picture) -> RenderableType:
    if not picture.jobs:
        return Text("empty", style="dim")
    table = _table("job", "ahead", "slots", "why")
    for job, why in picture.jobs:
        ahead = str(job.summary.jobs_ahead) if job.summary is not None else "-"
        table.add_row(_name(job.name), ahead, f"{job.allocated_slots}/{job.requested_slots}", _name(why))
    return table


def _machines(picture: Picture, now: datetime) -> RenderableType:
    if not picture.instances:
        return Text("none: nothing is paid for", style="dim")
    used = _used_slots(picture)
    table = _table("machine", "state", "slots", "paid", "")
    for one in picture.instances:
        table.add_row(
            _name(one.id),
            Text(one.state, style=STYLES.get(one.state, "")),
            f"{used.get(one.agent_id, 0)}/{one.slots}" if one.state not in GONE else "",
            f"{paid_s(one, now):.0f} s" if one.paid_from else "",
            _remark(one, now),
        )
    return table


def _used_slots(picture: Picture) -> dict[str, int]:
    return {agent.id: sum(slot.container is not None for slot in agent.slots.values()) for agent in picture.agents}


def paid_s(instance: Instance, now: datetime) -> float:
    if instance.paid_from is None:
        return 0.0
    return ((instance.paid_until or now) - instance.paid_from).total_seconds()


def _remark(instance: Instance, now: datetime) -> Text:
    notice = instance.notice
    if notice is not None and instance.state not in GONE:
        left = f", {max(0.0, (notice.deadline - now).total_seconds()):.0f} s left" if notice.deadline else ""
        return Text(f"will be taken away{left}", style="bold red")
    return Text(printable.one_line(instance.end_reason), style="dim")


def _training(picture: Picture) -> RenderableType:
    line = Text(sparkline([loss for _, loss in picture.losses]), style="green")
    bar = Table.grid()
    bar.add_row(ProgressBar(total=scenario.STEPS, completed=picture.steps, width=SPARK_WIDTH))
    return Group(Text(progress_text(picture)), bar, line)


def _decisions(decisions: Iterable[Decision]) -> RenderableType:
    table = _table("at", "decision", "about", "why")
    for one in decisions:
        table.add_row(one.at.strftime("%H:%M:%S"), one.kind, _name(one.subject), _name(one.reason))
    return table


# -------------------------------------------------------------------------------------------------------------- ledger


def ledger_table(ledger: GetLedgerResponse) -> Table:
    """Use of the paid time: one row per machine, then the sum and its price."""
    table = Table(
        title="Ledger: slot-seconds by what they were spent on",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("machine", no_wrap=True)
    for name in (*PARTS, "paid", "price"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in ledger.instances:
        seconds = [f"{getattr(one.row, f'{part}_s'):.1f}" for part in PARTS]
        table.add_row(_name(one.instance_id), *seconds, f"{one.row.paid_s:.1f}", f"{one.row.cost or 0.0:.4f}")
    total = ledger.totals
    sums = [f"{getattr(total, f'{part}_s'):.1f}" for part in PARTS]
    table.add_section()
    table.add_row("all", *sums, f"{total.paid_s:.1f}", f"{total.cost or 0.0:.4f}", style="bold")
    table.add_row("price", *(f"{total.costs.get(part, 0.0):.4f}" for part in PARTS), f"{total.cost or 0.0:.4f}", "")
    return table


def interruption_lines(ledger: GetLedgerResponse) -> list[str]:
    lines = []
    for one in ledger.interruptions:
        how = "with notice" if one.noticed else "without notice"
        lines.append(
            f"{one.instance_id} was taken away {how}: {one.steps_done} steps done, {one.steps_saved} saved, "
            f"{one.steps_lost} lost"
        )
    return lines
