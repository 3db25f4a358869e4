"""The type of the fixtures `new_db` and `every_new_db`: where a live cluster keeps its state, a new place each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NewDb = Callable[[], Mapping[str, Any]]
