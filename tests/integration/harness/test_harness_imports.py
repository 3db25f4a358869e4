"""What `import resolute` brings into a training container, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import resolute
from resolute import core


def test_conveniences_are_the_real_things() -> None:
    assert resolute.init is core.init
    assert resolute.InvalidHP is core.InvalidHP
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = resolute.no_such_name


def test_the_core_and_the_launcher_bring_in_the_standard_library_only() -> None:
    program = (
        "import sys; import resolute.core, resolute.launch.__main__, resolute.testing.scripted_trial\n"
        "names = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'resolute', '__main__'}\n"
        "print(sorted(name for name in names if not name.startswith('_')))"
    )
    # -S: without the site packages of the tests' environment, as in an image that has none.
    ended = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {_HARNESS!r})\n{program}"],
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert ended.stdout.strip() == "[]"


_HARNESS = str(resolute.__path__[0]).removesuffix("/resolute")
