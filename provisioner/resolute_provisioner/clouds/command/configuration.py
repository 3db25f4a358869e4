"""Machines of the operator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from resolute.config.base import ConfigModel, Count, NonEmptyText, Text, broken_at, broken_rule
from resolute.config.durations import PositiveDuration
from resolute.config.providers.common import CloudProvider, Problems, prices_of_no_type


def _program(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words[0].startswith("/"):
        raise broken_rule("must begin with the absolute path of a program on the master's machine")
    return words


def _name(text: str) -> str:
    if text.startswith("-") or "/" in text or not text.isprintable() or " " in text:
        raise broken_rule("must be a name without spaces and slashes that does not begin with '-', such as node-1")
    return text


Program = Annotated[tuple[NonEmptyText, ...], Field(min_length=1), AfterValidator(_program)]
MachineName = Annotated[NonEmptyText, AfterValidator(_name)]


class CommandMachines(ConfigModel):
    """Machines of one type in one place."""

    names: Annotated[tuple[MachineName, ...], Field(min_length=1)]
    """Their names, as passed to the programs."""
    instance_type: MachineName
    """A name of your own for their type."""
    zone: Annotated[Text, AfterValidator(lambda text: _name(text) if text else text)] = ""
    """A name of your own for their place, such as a rack; what is launched together is kept in one."""
    slots: Count
    """Slots of each."""
    slot_type: Literal["auto", "cuda", "rocm", "cpu"] = "auto"
    """What gives them their slots; with `auto` the agent decides."""


class CommandProvider(CloudProvider):
    """Machines of the operator's own, turned on and off by the operator's own programs."""

    type: Literal["command"] = "command"
    """Tag of the provider."""
    launch_command: Program
    """Program and arguments that turn a machine on and run the boot script (its input) on it; the machine's name comes last."""
    end_command: Program
    """Program and arguments that turn a machine off; the machine's name comes last."""
    list_command: Program
    """Program and arguments that print the names of the machines that are on, one a line."""
    command_timeout: PositiveDuration = 120.0
    """How long each of them may take."""
    machines: Annotated[tuple[CommandMachines, ...], Field(min_length=1)]
    """The machines."""

    @model_validator(mode="before")
    @classmethod
    def _all_of_them(cls, value: Any) -> Any:
        """Without a `max_instances` of its own the pool may use every machine."""
        if not isinstance(value, Mapping) or value.get("max_instances") is not None:
            return value
        groups = value.get("machines")
        names = [each.get("names") for each in groups if isinstance(each, Mapping)] if isinstance(groups, list) else []
        count = sum(len(each) for each in names if isinstance(each, list))
        return {**value, "max_instances": count} if count else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found: Problems = []
        names: set[str] = set()
        seen: set[tuple[str, str]] = set()
        for place, group in enumerate(self.machines):
            for index, name in enumerate(group.names):
                if name in names:
                    found.append((("machines", place, "names", index), "occurs twice; remove one", name))
                names.add(name)
            kind = (group.instance_type, group.zone)
            if kind in seen:
                text = "is the type of an earlier entry in the same zone; put the names there"
                found.append((("machines", place, "instance_type"), text, group.instance_type))
            seen.add(kind)
        if self.max_instances > len(names):
            text = f"must not be greater than the number of machines, which is {len(names)}"
            found.append((("max_instances",), text, self.max_instances))
        found += prices_of_no_type(self.prices, (group.instance_type for group in self.machines))
        for name, price in self.prices.items():
            if price.spot is not None:
                text = "is for a spot market, and these machines have none; use on_demand"
                found.append((("prices", name, "spot"), text, price.spot))
        if found:
            raise broken_at(*found)
        return self


CONFIGURATION = CommandProvider
