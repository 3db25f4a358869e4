"""A fresh API for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.api import World, an_api


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with an_api(tmp_path) as made:
        yield made
