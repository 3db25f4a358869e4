"""`det preview-search`: what a search will do, without doing it."""

from __future__ import annotations

from resolute_cli.command import Command
from resolute_cli.searching import preview_arguments, preview_search

NOUN = Command(
    name="preview-search",
    help="preview how many trials a search makes, and how far they train",
    run=preview_search,
    arguments=preview_arguments,
    formats=("json", "csv"),
)
