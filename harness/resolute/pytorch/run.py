"""`python -m resolute.pytorch.run module:Class`: train the trial class that an entrypoint names."""

from __future__ import annotations

import argparse
import importlib
import sys

from resolute.errors import InvalidInput, ResoluteError
from resolute.pytorch.trainer import Trainer, init
from resolute.pytorch.trial import PyTorchTrial


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute.pytorch.run", description=__doc__)
    parser.add_argument("trial", help="module:Class of a PyTorchTrial")
    options = parser.parse_args(arguments)
    try:
        trial_class = load_class(options.trial)
        with init() as context:
            Trainer(trial_class(context), context).fit()
    except ResoluteError as error:
        print(f"ERROR: resolute.pytorch: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def load_class(name: str) -> type[PyTorchTrial]:
    """Import `module:Class`. Raises `InvalidInput` saying what cannot be found."""
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise  # the module is there; something that it imports is not
        raise InvalidInput(f"the module {module_name!r} of the entrypoint {name!r} is not in the model code") from None
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, PyTorchTrial)):
        raise InvalidInput(
            f"{class_name!r} in module {module_name!r} is not a subclass of resolute.pytorch.PyTorchTrial"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
