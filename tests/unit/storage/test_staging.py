"""A sweep removes the directories of processes that were killed, at whatever moment, and nothing of a process that lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resolute.storage.staging import Staging

STOPPED_AFTER = {
    "the lock": "tempfile.mkstemp = lambda **named: (real(**named), stop())",
    "the directory": "Path.mkdir = lambda path, **how: (made(path, **how), how.get('parents') or stop())",
    "a file": "(Staging(Path(sys.argv[1])).fresh() / 'part').write_text('x'); stop()",
    "a part of the removal": "shutil.rmtree = lambda *at, **how: stop(); "
    "one = Staging(Path(sys.argv[1])); one.directory(); one.close()",
}

PROGRAM = """
import os, shutil, signal, sys, tempfile
from pathlib import Path
from resolute.storage.staging import Staging
real, made, stop = tempfile.mkstemp, Path.mkdir, lambda: os.kill(os.getpid(), signal.SIGKILL)
{}
Staging(Path(sys.argv[1])).directory()
"""


@pytest.mark.parametrize("moment", STOPPED_AFTER)
def test_what_a_killed_process_leaves_is_removed(moment: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    killed = subprocess.run([sys.executable, "-c", PROGRAM.format(STOPPED_AFTER[moment]), str(base)], check=False)
    assert killed.returncode == -signal.SIGKILL and os.listdir(base)
    Staging(base).sweep()
    assert os.listdir(base) == []


def test_a_directory_in_use_stays_until_it_is_closed(tmp_path: Path) -> None:
    used = Staging(tmp_path)
    file = used.fresh() / "part"
    file.write_text("x")
    Staging(tmp_path).sweep()
    assert file.read_text() == "x"
    used.close()
    used.close()
    assert os.listdir(tmp_path) == []
    Staging(tmp_path / "never-made").sweep()
