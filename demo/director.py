"""Decides which machine is interrupted, and when: a pure function of the state in the API. The local cloud executes the
decision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from demo.pictures import Picture
from demo.scenario import CUTS, Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Progress of the script: the remaining cuts, and the interrupted machines in order."""

    coming: tuple[Cut, ...] = CUTS
    done: tuple[tuple[Cut, str], ...] = ()

    @property
    def next_text(self) -> str:
        """The next action of the script, for users."""
        return self.coming[0].text if self.coming else "nothing more happens to it; the pool is to return to zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order to interrupt this machine now."""

    instance_id: str
    cut: Cut


def decide(plot: Plot, picture: Picture) -> tuple[Plot, Order | None]:
    """The next cut is due when the trial has done the steps on a machine without an earlier cut."""
    if not plot.coming or picture.running_on is None or picture.steps < plot.coming[0].after_steps:
        return plot, None
    cut, machine = plot.coming[0], picture.running_on
    if any(machine == taken for _, taken in plot.done):
        return plot, None  # The machine of the last cut is still ending.
    return replace(plot, coming=plot.coming[1:], done=(*plot.done, (cut, machine))), Order(instance_id=machine, cut=cut)
