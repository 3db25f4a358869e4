"""When which machine is taken away: a pure decision over what the API says, carried out by the local cloud's control."""

from __future__ import annotations

from dataclasses import dataclass, replace

from demo.pictures import Picture
from demo.story import CUTS, Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """How far the story is: the cuts still to come, and the machines that were taken away, in order."""

    coming: tuple[Cut, ...] = CUTS
    done: tuple[tuple[Cut, str], ...] = ()

    @property
    def next_text(self) -> str:
        """What the script does next, for people."""
        return self.coming[0].text if self.coming else "nothing more happens to it; the pool is to return to zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Take this machine away now."""

    instance_id: str
    cut: Cut


def decide(plot: Plot, picture: Picture) -> tuple[Plot, Order | None]:
    """The next cut is due when the trial has done its steps on a machine that was not cut before."""
    if not plot.coming or picture.running_on is None or picture.steps < plot.coming[0].after_steps:
        return plot, None
    cut, machine = plot.coming[0], picture.running_on
    if any(machine == taken for _, taken in plot.done):
        return plot, None  # the last one's machine is still going away
    return replace(plot, coming=plot.coming[1:], done=(*plot.done, (cut, machine))), Order(instance_id=machine, cut=cut)
