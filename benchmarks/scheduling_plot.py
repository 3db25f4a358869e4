"""The curves of `benchmarks.scheduling` as one picture, with one panel per scheduler and logarithmic axes."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure


def draw(curves: dict[tuple[str, str], dict[int, float]], path: Path) -> None:
    """`curves` contains milliseconds by length of the queue for each scheduler and subject. Equal curves give an equal file."""
    schedulers = list(dict.fromkeys(scheduler for scheduler, _ in curves))
    figure = Figure(figsize=(3.6 * len(schedulers), 3.8), layout="tight")
    panels = figure.subplots(1, len(schedulers), sharey=True, squeeze=False)[0]
    for panel, scheduler in zip(panels, schedulers, strict=True):
        for (of, subject), ms in curves.items():
            if of == scheduler:
                panel.loglog(list(ms), list(ms.values()), marker="o", markersize=3, label=subject)
        lengths = sorted({length for (of, _), ms in curves.items() if of == scheduler for length in ms})
        panel.set_xticks(lengths, [f"{length:,}" for length in lengths], fontsize=7, rotation=30)
        panel.set_xticks([], minor=True)
        panel.set_title(scheduler, fontsize=10)
        panel.set_xlabel("allocations queued")
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("processor time, ms (median)")
    panels[-1].legend(fontsize=7)
    with rc_context({"svg.hashsalt": "resolute"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
