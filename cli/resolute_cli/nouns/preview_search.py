"""`det preview-search`: what the search of an experiment would do, without running it."""

from __future__ import annotations

import argparse

import yaml

from resolute_cli.command import Command
from resolute_cli.invocation import Invocation
from resolute_cli.render import as_mapping
from resolute_cli.submission import configuration_text


def preview(cli: Invocation, args: argparse.Namespace) -> None:
    config = yaml.safe_load(configuration_text(args.config_file, []))
    summary = cli.api().cluster.preview_search(config)
    if summary is None:
        cli.render.note("The master says nothing of this search")
        return
    if cli.render.format is None:
        cli.render.value(dict(summary.config))
    rows = [(trials.count, _length(as_mapping(trials.unit))) for trials in summary.trials]
    cli.render.table(("Trials", "Training Time"), rows, summary)


def _length(unit: dict[str, object]) -> str:
    if unit.get("value") is None:
        return "as long as the training code wants"
    return f"{unit['value']} {unit.get('name') or 'units'}"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config_file", help="the configuration of an experiment (YAML)")


NOUN = Command(
    name="preview-search",
    help="show what a search would do",
    run=preview,
    arguments=_arguments,
    formats=("json", "csv"),
)
