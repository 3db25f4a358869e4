"""Displayed states: an ACTIVE experiment or trial has the state of its most advanced allocation."""

from __future__ import annotations

from collections.abc import Iterable

from resolute.wire.rest.enums import LogLevel, WireExperimentState, WireTaskState, WireTrialState
from resolute.wire.states import AllocationState, ExperimentState
from resolute_master.domain.allocation import Allocation

_SHOWN = {
    AllocationState.PENDING: "QUEUED",
    AllocationState.ASSIGNED: "QUEUED",
    AllocationState.PULLING: "PULLING",
    AllocationState.STARTING: "STARTING",
    AllocationState.RUNNING: "RUNNING",
    AllocationState.WAITING: "RUNNING",
    AllocationState.TERMINATING: "RUNNING",
}
_ORDER = ("QUEUED", "PULLING", "STARTING", "RUNNING")


def _shown(state: ExperimentState, allocations: Iterable[Allocation]) -> str:
    if state is not ExperimentState.ACTIVE:
        return state.name
    names = [_SHOWN[a.state] for a in allocations if not a.ended]
    return max(names, key=_ORDER.index, default="QUEUED")


def _name(state: ExperimentState, allocations: Iterable[Allocation], unmanaged: bool) -> str:
    """Unmanaged work needs no allocation: it runs while it is active."""
    return "RUNNING" if unmanaged and state is ExperimentState.ACTIVE else _shown(state, allocations)


def experiment_state(
    state: ExperimentState, allocations: Iterable[Allocation], *, unmanaged: bool = False
) -> WireExperimentState:
    return WireExperimentState[_name(state, allocations, unmanaged)]


def trial_state(
    state: ExperimentState, allocations: Iterable[Allocation], *, unmanaged: bool = False
) -> WireTrialState:
    return WireTrialState[_name(state, allocations, unmanaged)]


def task_state(state: AllocationState) -> WireTaskState:
    """PENDING and ASSIGNED are both QUEUED."""
    if state in (AllocationState.PENDING, AllocationState.ASSIGNED):
        return WireTaskState.QUEUED
    return WireTaskState[state.name]


def stored_states(shown: Iterable[WireExperimentState]) -> tuple[ExperimentState, ...]:
    """The stored states for a filter on shown ones; the store does not distinguish the parts of ACTIVE."""
    names = {"ACTIVE" if state.name in _ORDER else state.name for state in shown} - {"UNSPECIFIED"}
    return tuple(sorted((ExperimentState[name] for name in names), key=lambda state: state.name))


def level_of(name: str) -> LogLevel:
    """The level of a stored line; a line without one is UNSPECIFIED."""
    return LogLevel.__members__.get(name.removeprefix("LOG_LEVEL_").upper(), LogLevel.UNSPECIFIED)
