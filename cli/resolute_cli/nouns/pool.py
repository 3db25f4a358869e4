"""`det pool`: what elastic pools may buy."""

from __future__ import annotations

from resolute_cli.command import Group
from resolute_cli.pool_offers import OFFERS, VALIDATE

NOUN = Group(
    name="pool",
    help="show what elastic pools may buy, and check their configuration",
    commands=(OFFERS, VALIDATE),
)
