"""Access to a master from Python: sessions, typed calls, and objects for scripts.

    from resolute.client import Resolute

    master = Resolute("http://localhost:8080", user="determined", password="...")
    master.create_experiment("const.yaml", ".").wait()

Contains HTTP, tokens and the wire shapes. Must not depend on the display of anything, nor on the master's internals.

- `address`         canonical form of a master's address
- `session`         requests, retries, errors, streams
- `token_cache`, `authentication`   the caller's identity
- `context`         packing of a directory for upload
- `archive`         safe unpacking of downloads
- `users`, `experiments`, `trials`, `checkpoints`, `agents`, `queue`, `cluster`   typed calls, one module a resource
- `api`             all of them for one login, each imported on first use
- `sdk`             `Resolute`, `Experiment`, `Trial`, `Checkpoint`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from resolute.client.sdk import Checkpoint, Experiment, Resolute, Trial

__all__ = ["Checkpoint", "Experiment", "Resolute", "Trial"]


def __getattr__(name: str) -> Any:
    """Loads the objects on first use: the command line needs parts of this package without an HTTP client."""
    if name in __all__:
        from resolute.client import sdk

        return getattr(sdk, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
