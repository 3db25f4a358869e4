"""Large blocks of memory go back to the system, also after larger ones were freed, which makes glibc keep them otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKS_OF_THEIR_OWN = """
import ctypes, sys
from resolute_master import main
class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
info = ctypes.CDLL(None).mallinfo2
info.restype = Info
size = 2 * main.LARGE_BLOCK_BYTES
if sys.argv[1] == "told":
    main._give_large_blocks_back()
larger = bytes(20 << 20)
del larger
before = info().hblks
kept = bytes(size)
print(info().hblks - before)
"""


@pytest.mark.needs("glibc")
@pytest.mark.parametrize(("told", "own"), [("told", "1"), ("untold", "0")])
def test_a_large_block_is_one_of_its_own_that_goes_back_when_it_is_free(told: str, own: str) -> None:
    run = [sys.executable, "-c", BLOCKS_OF_THEIR_OWN, told]
    found = subprocess.run(run, check=True, capture_output=True, text=True)
    assert (found.stdout.strip(), found.stderr) == (own, "")
