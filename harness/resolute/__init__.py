"""What users import, and the shared kernel of every Resolute process.

Contains what connects user code to a master, or runs it without one: `resolute.core`, `resolute.pytorch`, `resolute.client`.
The kernel (`clock`, `ids`, `errors`, `wire`) defines the contract that master, agent, provisioner and CLI share.
Must not depend on schedulers, clouds or SQL, and needs the standard library only wherever a training container
imports it.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # images bring their own interpreter
    raise ImportError(
        "resolute needs Python 3.11 or newer; this is " + sys.version.split()[0] + " of " + sys.executable
    )

__version__ = "0.1.0"

DISTRIBUTION = "resolute-ml"
"""Name of the installed distribution. The name of the import package belongs to an unrelated project on the public index."""

_LAZY = {
    "init": "resolute.core",
    "get_cluster_info": "resolute.core",
    "InvalidHP": "resolute.core",
}
"""Objects that are imported on first use: the kernel must load without the other packages."""


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
