"""What may be spent in a day and in a month."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from resolute.config.base import ConfigModel, Number

Money = Annotated[Number, Field(gt=0)]


class Budget(ConfigModel):
    """In the currency of the prices; null is no limit. Days and months are those of UTC."""

    per_day: Money | None = None
    """Maximum per day."""
    per_month: Money | None = None
    """Maximum per month."""
