"""`det pool`: what elastic pools may buy, and what would cost less."""

from __future__ import annotations

from resolute_cli.command import Group
from resolute_cli.pool_advice import ADVISE
from resolute_cli.pool_offers import OFFERS, VALIDATE

NOUN = Group(
    name="pool",
    help="show what elastic pools may buy, check their configuration, and say what would cost less",
    commands=(OFFERS, VALIDATE, ADVISE),
)
