"""What survives a look is looked at no more, and dead cycles among it are found all the same, later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.garbage_cases import CASES

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("case", CASES)
def test_it_holds_in_a_process_of_its_own(case: str) -> None:
    command = [sys.executable, "-m", "support.garbage_cases", case]
    ran = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
