"""The type of the fixtures `new_db` and `every_new_db`: a new database for a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NewDb = Callable[[], Mapping[str, Any]]
