"""The report as one HTML page: figures, plots and a timeline of the machines. It loads no other resource."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from resolute_provisioner.model import Cause
from resolute_sim.twin.figures import Report, Span
from resolute_sim.twin.frontier import frontier_of

MEANINGS: Mapping[str, str] = {
    "cost": "cost of all machines, from launch to end",
    "cost_lower_bound": "run time of all jobs at the lowest price of a slot-hour",
    "excess": "(cost − bound) / bound",
    "cost_useful": "of the cost: slots of jobs that made progress",
    "cost_repeated": "of the cost: slots of jobs that saved, restored or repeated lost work",
    "cost_boot": "of the cost: machines before they joined",
    "cost_empty": "of the cost: machines without work",
    "cost_half_empty": "of the cost: free slots of machines with work",
    "wait_mean_s": "mean time in the queue of a job, including the time after interruptions",
    "wait_median_s": "half of the jobs wait no longer",
    "wait_p90_s": "90 % of the jobs wait no longer",
    "wait_p95_s": "95 % of the jobs wait no longer",
    "wait_max_s": "no job waits longer",
    "jct_ratio": "time from submission to end / run time, each summed over the completed jobs",
    "utilisation": "slot-seconds that jobs held / slot-seconds paid",
    "goodput": "slot-seconds of progress / slot-seconds that jobs held",
    "interruptions": "runs that ended with their machine",
    "lost_slot_s": "slot-seconds that jobs held without progress: saves, restores, repeated work",
    "launches": "launched machines",
    "jobs_completed": "completed jobs",
    "jobs_failed": "jobs that failed because the pool had stopped launching machines for them",
    "jobs_stopped": "jobs that were stopped at their cost limit",
    "deadlines_missed": "jobs with a deadline that were not completed by then",
    "decision_cpu_s": "processor seconds of all decisions",
    "digest": "digest of the log of decisions: equal for equal simulations",
}
TAKEN = "#c0392b"
TAKEN_BACK = ("taken back", Cause.NOTICE.value)
"""Causes of an interruption: the notice expired, or the machine was ended after its work had saved."""
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d6a9f")
WIDTH, HEIGHT, MARGIN = 640, 240, 56
"""Size of a plot, in the units of its drawing. The margin holds the labels in the size that a narrow screen gives them."""
TIMELINE = 960
"""Width of a timeline."""
LABEL, LETTER = 16.0, 9.0
"""Height of a label and width of its letters, at most."""
POINTS = 900
"""Largest number of points of a line, about one for each pixel."""
ROWS = 400
"""Largest number of machines in the timeline of one policy."""

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --paid: #1b6ca833; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1020px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
td.why { text-align: left; color: #888; font-size: 13px; }
td.digest { font-family: ui-monospace, monospace; font-size: 12px; }
.wide { overflow-x: auto; }
svg { width: 100%; height: auto; display: block; }
svg.plot { max-width: 760px; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
@media (max-width: 700px) {
  body { margin: 1rem auto; }
  td.why { display: none; }
  td, th { padding: .3rem .35rem; font-size: 13px; }
  th:first-child, td:first-child { position: sticky; left: 0; background: Canvas; }
  h1, p { overflow-wrap: anywhere; }
  h1 { font-size: 1.4rem; }
  td.digest { max-width: 4rem; font-size: 10px; word-break: break-all; }
  svg.plot text { font-size: 16px; }
  svg.timeline text { font-size: 24px; }
}
.legend span { display: inline-block; margin-right: 1.2rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -1px; }
"""


def page(title: str, subtitle: str, reports: Sequence[Report], settings: Sequence[Report] = ()) -> str:
    """`settings` are the pool under other settings, for the frontier."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1><p>{html.escape(subtitle)}</p>",
        _legend(reports),
        "<h2>Figures</h2>",
        _table(reports),
        "<h2>Cost and waiting</h2>",
        _trade([_mark(report, colour) for report, colour in zip(reports, _colours(reports), strict=True)]),
        *_frontier(settings),
        "<h2>Waiting times</h2><p>Share of the jobs whose wait was not longer.</p>",
        _waits(reports),
    ]
    for report, colour in zip(reports, _colours(reports), strict=True):
        name = html.escape(report.policy)
        parts += [
            f"<h2>{name}: slots over time</h2><p>The lines show means over equal parts of the time: paid slots in grey, slots that "
            "jobs held in colour. The bands show the minimum and the maximum of each part.</p>",
            _slots(report, colour),
            f"<h2>{name}: machines</h2>{_timeline_note(report)}",
            _timeline(report, colour),
        ]
    return "\n".join([*parts, "</body></html>", ""])


def _colours(reports: Sequence[Report]) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(reports))]


def _legend(reports: Sequence[Report]) -> str:
    items = (
        f'<span><i style="background:{colour}"></i>{html.escape(report.policy)}</span>'
        for report, colour in zip(reports, _colours(reports), strict=True)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def _table(reports: Sequence[Report]) -> str:
    head = "".join(f"<th>{html.escape(report.policy)}</th>" for report in reports)
    rows = [f"<tr><th></th>{head}<th></th></tr>"]
    values = [asdict(report.figures) for report in reports]
    for key, meaning in MEANINGS.items():
        kind = ' class="digest"' if key == "digest" else ""
        cells = "".join(f"<td{kind}>{html.escape(_shown(value[key]))}</td>" for value in values)
        rows.append(f'<tr><td>{key}</td>{cells}<td class="why">{html.escape(meaning)}</td></tr>')
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return value[:12] if isinstance(value, str) else f"{value:,}"


# -- plots ---------------------------------------------------------------------------------------------------------------


class _Axes:
    """Maps values to pixels, and draws the frame."""

    def __init__(self, x_most: float, y_most: float, x_unit: str, y_unit: str) -> None:
        self._x_most, self._y_most = _round_up(x_most), _round_up(y_most)
        self._units = x_unit, y_unit

    def at(self, x: float, y: float) -> tuple[float, float]:
        wide, high = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
        return MARGIN + wide * x / self._x_most, HEIGHT - MARGIN - high * min(1.0, y / self._y_most)

    def drawn(self, inside: str) -> str:
        lines = [f'<div class="wide"><svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
        for part in range(5):
            x, y = self._x_most * part / 4, self._y_most * part / 4
            left, bottom = self.at(x, 0.0)
            start, level = self.at(0.0, y)
            lines.append(f'<text x="{left:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{_tick(x)}</text>')
            lines.append(f'<text x="{start - 6:.1f}" y="{level + 4:.1f}" text-anchor="end">{_tick(y)}</text>')
            lines.append(
                f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{level:.1f}" y2="{level:.1f}" stroke="var(--line)"/>'
            )
        right, bottom = self.at(self._x_most, 0.0)
        lines.append(
            f'<text x="{right:.1f}" y="{bottom + 40:.1f}" text-anchor="end">{html.escape(self._units[0])}</text>'
        )
        lines.append(f'<text x="4" y="{MARGIN - 18}">{html.escape(self._units[1])}</text>')
        return "".join((*lines, inside, "</svg></div>"))


def _round_up(most: float) -> float:
    """The next number whose quarters are easy to read."""
    if most <= 0.0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(most))
    return next(
        unit * step for step in (1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0) if most <= unit * step * 1.000001
    )


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of the plot of cost and waiting; `excess` in percent, `wait_s` the mean."""

    name: str
    excess: float
    wait_s: float
    colour: str


def _mark(report: Report, colour: str) -> Mark:
    figures = report.figures
    return Mark(name=report.policy, excess=100.0 * figures.excess, wait_s=figures.wait_mean_s, colour=colour)


def _trade(marks: Sequence[Mark], line: Sequence[Mark] = ()) -> str:
    """Excess cost against mean wait. A mark that lies far from the others, such as a static fleet, is drawn at the edge with its
    figures, and the scale is that of the others. `line` joins some of them."""
    most_cost, most_wait = _scale([mark.excess for mark in marks]), _scale([mark.wait_s for mark in marks])
    unit = _unit(most_wait)
    axes = _Axes(1.15 * most_cost, 1.25 * most_wait / unit.seconds, "excess cost, %", f"mean wait, {unit.name}")

    def place(mark: Mark) -> tuple[float, float]:
        return axes.at(min(mark.excess, 1.15 * most_cost), min(mark.wait_s, 1.25 * most_wait) / unit.seconds)

    drawn = []
    if len(line) > 1:
        drawn.append(_line(axes, [(mark.excess, mark.wait_s / unit.seconds) for mark in line], line[0].colour))
    at = {mark.name: place(mark) for mark in marks}
    places = [(x - 5.0, x + 5.0, y + 4.0) for x, y in at.values()]
    for mark in sorted(marks, key=lambda mark: (-at[mark.name][1], mark.name)):
        x, y = at[mark.name]
        beyond = mark.excess > most_cost or mark.wait_s > most_wait
        words = (
            f"{mark.name}: {mark.excess:,.0f} %, {_tick(mark.wait_s / unit.seconds)} {unit.name}"
            if beyond
            else mark.name
        )
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{mark.colour}"/>')
        drawn.append(_label(words, x, y, places))
    return axes.drawn("".join(drawn))


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a time axis."""

    seconds: float
    name: str


def _unit(most_s: float) -> Unit:
    """The unit in which a time has few digits."""
    return Unit(1.0, "s") if most_s < 1200 else Unit(60.0, "min") if most_s < 4 * 3600 else Unit(3600.0, "h")


def _label(words: str, x: float, y: float, places: list[tuple[float, float, float]]) -> str:
    """Beside a mark, and above the `places` (left, right, height) of marks and labels that it would cover."""
    wide = LETTER * len(words)
    to_left = x + 8 + wide > WIDTH
    left, right = (x - 8 - wide, x - 8) if to_left else (x + 8, x + 8 + wide)
    height = y + 4
    for other_left, other_right, other in sorted(places, key=lambda place: -place[2]):
        if left < other_right and other_left < right and abs(height - other) < LABEL:
            height = other - LABEL
    places.append((left, right, height))
    place = f'x="{right if to_left else left:.1f}" y="{height:.1f}" text-anchor="{"end" if to_left else "start"}"'
    return f"<text {place}>{html.escape(words)}</text>"


FAR = 4.0
"""A value that is more than this many times the next smaller one is outside of a plot."""


def _scale(values: Sequence[float]) -> float:
    """The largest of the values that lie together."""
    ordered = sorted(values)
    while len(ordered) > 1 and ordered[-2] > 0.0 and ordered[-1] > FAR * ordered[-2]:
        ordered.pop()
    return ordered[-1]


# -- frontier ------------------------------------------------------------------------------------------------------------


def _frontier(settings: Sequence[Report]) -> list[str]:
    """A table of the settings, and a plot of those on the frontier."""
    if not settings:
        return []
    best = frontier_of(settings)
    rows = ["<tr><th>setting</th><th>cost</th><th>excess</th><th>mean wait, s</th><th>90 % wait, s</th></tr>"]
    for report in settings:
        figures = report.figures
        cells = (figures.cost, figures.excess, figures.wait_mean_s, figures.wait_p90_s)
        name = html.escape(report.policy) + ("" if report in best else ", not on the frontier")
        rows.append(f"<tr><td>{name}</td>{''.join(f'<td>{_shown(cell)}</td>' for cell in cells)}</tr>")
    marks = [_mark(report, COLOURS[0]) for report in best]
    return [
        "<h2>Frontier</h2><p>The pool with other settings. For each setting on the line, no other one both costs less and has "
        "shorter waits.</p>",
        f'<div class="wide"><table>{"".join(rows)}</table></div>',
        _trade(marks, marks),
    ]


# -- waiting times and slots ---------------------------------------------------------------------------------------------


def _waits(reports: Sequence[Report]) -> str:
    longest = max(report.figures.wait_p95_s for report in reports) * 1.5
    unit = _unit(longest)
    axes = _Axes(longest / unit.seconds or 1.0, 100.0, unit.name, "% of the jobs")
    lines = []
    for report, colour in zip(reports, _colours(reports), strict=True):
        count = len(report.waits_s)
        points = [
            (wait / unit.seconds, 100.0 * (rank + 1) / count)
            for rank, wait in enumerate(report.waits_s)
            if wait <= longest
        ]
        lines.append(_line(axes, [(0.0, points[0][1] if points else 0.0), *_thinned(points)], colour))
    return axes.drawn("".join(lines))


def _slots(report: Report, colour: str) -> str:
    last_s = max((at for at, _ in report.paid_slots), default=1.0)
    axes = _Axes(last_s / 86_400, max((n for _, n in report.paid_slots), default=1), "days", "slots")
    drawn: list[str] = []
    for series, shade in ((report.paid_slots, "#888"), (report.busy_slots, colour)):
        parts = _parts(series, last_s)
        upper = [(each.middle_s / 86_400, each.most) for each in parts]
        lower = [(each.middle_s / 86_400, each.least) for each in reversed(parts)]
        band = " ".join(f"{x:.1f},{y:.1f}" for x, y in (axes.at(x, y) for x, y in [*upper, *lower]))
        drawn.append(f'<polygon points="{band}" fill="{shade}" fill-opacity="0.22"/>')
        drawn.append(_line(axes, [(each.middle_s / 86_400, each.mean) for each in parts], shade))
    return axes.drawn("".join(drawn))


def _line(axes: _Axes, points: Sequence[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (axes.at(x, y) for x, y in points))
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


@dataclass(frozen=True, slots=True)
class Part:
    """Mean, minimum and maximum of a step function over one of `PARTS` equal parts of the time."""

    middle_s: float
    mean: float
    least: int
    most: int


PARTS = 240


def _parts(series: Sequence[tuple[float, int]], last_s: float) -> list[Part]:
    step_s = (last_s or 1.0) / PARTS
    found: list[Part] = []
    now, index = 0, 0
    for part in range(PARTS):
        begins_s, ends_s = part * step_s, (part + 1) * step_s
        at_s, area, least, most = begins_s, 0.0, now, now
        while index < len(series) and series[index][0] < ends_s:
            area, at_s = area + now * (series[index][0] - at_s), series[index][0]
            now = series[index][1]
            least, most, index = min(least, now), max(most, now), index + 1
        area += now * (ends_s - at_s)
        found.append(Part((begins_s + ends_s) / 2, area / step_s, least, most))
    return found


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, len(points) // POINTS)
    return [*points[::step], *points[-1:]]


# -- machines ------------------------------------------------------------------------------------------------------------


def _timeline_note(report: Report) -> str:
    shown = min(ROWS, len(report.spans))
    most = "" if shown == len(report.spans) else f" The first {shown} of {len(report.spans)} are drawn."
    return f"<p>One line per machine, thicker for more slots. The boot is pale, and an interrupted machine is red.{most}</p>"


def _timeline(report: Report, colour: str) -> str:
    spans = sorted(report.spans, key=lambda span: (span.launched_s, span.instance))[:ROWS]
    if not spans:
        return "<p>No machine was launched.</p>"
    last_s = max(span.ended_s for span in spans) or 1.0
    row = max(1.5, min(14.0, 700 / len(spans)))
    high = row * len(spans) + 34
    lines = [f'<div class="wide"><svg class="timeline" viewBox="0 0 {TIMELINE} {high:.0f}" role="img">']
    for number, span in enumerate(spans):
        lines.extend(_bars(span, number * row, row, last_s, colour))
    for part in range(5):
        x = (TIMELINE - 1) * part / 4
        anchor = ("start", "middle", "middle", "middle", "end")[part]
        lines.append(
            f'<text x="{x:.0f}" y="{high - 8:.0f}" text-anchor="{anchor}">day {last_s * part / 4 / 86_400:.1f}</text>'
        )
    return "".join((*lines, "</svg></div>"))


def _bars(span: Span, top: float, row: float, last_s: float, colour: str) -> Iterator[str]:
    scale = (TIMELINE - 1) / last_s
    thick = row * (0.35 + 0.55 * min(8, span.slots) / 8)
    joined_s = span.ended_s if span.joined_s is None else span.joined_s
    fill = TAKEN if span.cause in TAKEN_BACK else colour
    told = html.escape(
        f"{span.instance} ({span.offer}, {span.slots} slots): {span.launched_s:.0f} s to {span.ended_s:.0f} s, {span.cause}"
    )
    for start_s, end_s, opacity in ((span.launched_s, joined_s, 0.35), (joined_s, span.ended_s, 0.9)):
        wide = max(0.6, (end_s - start_s) * scale)
        yield (
            f'<rect x="{start_s * scale:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{thick:.1f}" fill="{fill}" '
            f'fill-opacity="{opacity}"><title>{told}</title></rect>'
        )
