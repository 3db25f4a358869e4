"""`det simulate`: a pool on a trace of jobs under virtual time, or a recorded journal once more."""

from __future__ import annotations

from resolute_cli.command import Command
from resolute_cli.simulate import arguments, simulate

NOUN = Command(
    name="simulate",
    help="simulate a pool",
    run=simulate,
    arguments=arguments,
    formats=(),
)
