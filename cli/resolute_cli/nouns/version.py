"""`det version`"""

from __future__ import annotations

import argparse

from resolute.errors import ResoluteError
from resolute_cli.command import Command
from resolute_cli.invocation import Invocation


def show(cli: Invocation, args: argparse.Namespace) -> None:
    """A master that does not answer is no failure here."""
    from resolute.client.cluster import Cluster
    from resolute_cli.main import client_version

    master: dict[str, str] = {"cluster_id": "", "master_id": "", "version": ""}
    try:
        info = Cluster(cli.anonymous()).info()
        master = {
            "cluster_id": info.cluster_id,
            "master_id": info.master_id,
            "version": info.version,
            "resolute_version": info.resolute_version,
        }
    except ResoluteError as error:
        cli.render.warning(str(error))
    cli.render.value({"client": {"version": client_version()}, "master": master, "master_address": cli.master})


NOUN = Command(name="version", help="show the versions", run=show, formats=("json", "yaml"))
