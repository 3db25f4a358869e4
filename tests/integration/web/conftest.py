"""A fresh interface for every test, and a person who has logged in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.web import Browser, a_web


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    """Logged in as ada."""
    async with a_web(tmp_path, config={"launch_error": False}) as made:
        await made.log_in("ada")
        yield made
