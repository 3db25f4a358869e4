"""When work is moved so that a machine may end, and how long a machine without work is worth its price."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from resolute.config.base import ConfigModel, Number
from resolute.config.durations import PositiveDuration


class ConsolidationPolicy(ConfigModel):
    """Consolidation of a pool: work is preempted and continues elsewhere if that frees a machine, or replaces it by a cheaper
    one."""

    margin: Annotated[Number, Field(ge=1)] = 2.0
    """Minimum ratio of the expected saving of a move to its cost."""
    restart_cost: PositiveDuration = 120.0
    """Time that moved work makes no progress: saving, ending, restoring."""
