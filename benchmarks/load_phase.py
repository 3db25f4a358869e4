"""Measurements of one phase from the meter in a loaded master: its cycles, and the stalls of its event loop."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks.report import percentile

STALL_S = 0.05
STALL_IN_LOG = re.compile(r"(stood still for (\d+) ms)(.*?)(?=^\d{4}-\d\d-\d\dT|\Z)", re.DOTALL | re.MULTILINE)
FRAME_IN_LOG = re.compile(r'File "[^"]*?(\w+)\.py", line (\d+), in (\w+)')


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Stall:
    """The delay of a tick of the event loop, and its parts: processor time of the process, and time without a processor."""

    late_s: float
    computed_s: float
    """By all threads: another thread blocks the loop while it holds the interpreter's lock."""
    own_s: float
    """By the loop's thread."""
    waited_s: float
    """Time that this thread was runnable without a processor."""

    @property
    def starved(self) -> bool:
        """With a free processor this would not be a stall: the remaining delay is below the limit."""
        return self.late_s - self.waited_s <= STALL_S

    @property
    def computed(self) -> bool:
        """The master computed for the time of a stall while the loop's thread had a processor. In a stall that is neither this nor
        starved, another thread held the interpreter's lock without a processor."""
        return self.computed_s > STALL_S and not self.starved


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Measurements between two times."""

    name: str
    seconds: float
    cycles_ms: tuple[float, ...]
    commits_ms: tuple[float, ...]
    busy_ms: tuple[float, ...]
    """The part of each cycle that blocks the event loop."""
    commands: int
    stalls: tuple[Stall, ...]
    """Late ticks of more than `STALL_S`."""
    collections_ms: tuple[float, ...]
    """Full garbage collections."""
    said: str
    """The phase's own result."""
    exported_stalls: int
    """Stalls in the master's own count."""
    log: str
    """What the master's log says of them."""
    memory_mib: tuple[float, ...]
    cpu: float
    """Mean processor use of the master, as a share of one core."""

    @classmethod
    def of(cls, name: str, lines: list[dict[str, Any]], said: str, exported_stalls: int, log: str) -> Phase:
        cycles = [line["cycle"] for line in lines if "cycle" in line]
        beats = [line for line in lines if "cpu_s" in line]
        seconds = lines[-1]["at"] - lines[0]["at"]
        return cls(
            name=name,
            seconds=seconds,
            cycles_ms=tuple(1e3 * (d + c + p) for _, d, c, p in cycles),
            commits_ms=tuple(1e3 * c for _, _, c, _ in cycles),
            busy_ms=tuple(1e3 * max(d, p) for _, d, _, p in cycles),
            commands=sum(n for n, *_ in cycles),
            stalls=tuple(
                Stall(
                    late_s=line["stall"],
                    computed_s=line["computed_s"],
                    own_s=line["own_s"],
                    waited_s=line["waited_s"],
                )
                for line in lines
                if line.get("stall", 0) > STALL_S
            ),
            collections_ms=tuple(1e3 * line["gc"] for line in lines if "gc" in line),
            said=said,
            exported_stalls=exported_stalls,
            log=log,
            memory_mib=tuple(line["rss"] / 2**20 for line in beats),
            cpu=(beats[-1]["cpu_s"] - beats[0]["cpu_s"]) / (beats[-1]["at"] - beats[0]["at"]),
        )

    def text(self) -> str:
        lines = [
            f"{self.name}: {self.seconds:.0f} s, {len(self.cycles_ms)} cycles, {self.commands / self.seconds:.0f} commands/s, "
            f"{self.cpu:.0%} of a core",
            f"  cycle ms    {_spread(self.cycles_ms)}",
            f"  commit ms   {_spread(self.commits_ms)}",
            f"  blocking ms {_spread(self.busy_ms)}",
            f"  full garbage collections: {len(self.collections_ms)}; ms {_spread(self.collections_ms)}",
            f"  memory MiB  first {self.memory_mib[0]:.0f}  most {max(self.memory_mib):.0f}  last {self.memory_mib[-1]:.0f}",
            f"  stalls of more than {1e3 * STALL_S:.0f} ms: {len(self.stalls)}, {self.exported_stalls} exported; "
            f"{sum(stall.starved for stall in self.stalls)} for lack of a processor, "
            f"{sum(stall.computed for stall in self.stalls)} computed; "
            f"ms late (computed, by the loop's own thread, without a processor): {self._worst()}",
            *(f"    {where}" for where in self._places()),
        ]
        return "\n".join(lines)

    def _worst(self) -> str:
        worst = sorted(self.stalls, reverse=True)[:8]
        return ", ".join(
            f"{1e3 * s.late_s:.0f} ({1e3 * s.computed_s:.0f}, {1e3 * s.own_s:.0f}, {1e3 * s.waited_s:.0f})"
            for s in worst
        )

    def _places(self) -> list[str]:
        """Where the loop was found, by the innermost frames of the master's own, the most frequent first."""
        found: Counter[str] = Counter()
        for _, milliseconds, what in STALL_IN_LOG.findall(self.log):
            frames = [f"{name} ({file}:{line})" for file, line, name in FRAME_IN_LOG.findall(what)]
            found[" < ".join(reversed(frames[-4:])) or what.strip()[:100]] += int(milliseconds)
        return [f"{total} ms: {where}" for where, total in found.most_common(10)]


def _spread(values: tuple[float, ...]) -> str:
    return "  ".join(f"p{p:g} {percentile(values, p):.1f}" for p in (50, 90, 99, 99.9, 100)) if values else "none"
