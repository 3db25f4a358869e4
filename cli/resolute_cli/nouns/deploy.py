"""`det deploy`: permanent clusters. Nothing here calls the master that -m names."""

from __future__ import annotations

from resolute_cli.command import Group
from resolute_cli.nouns.deploy_local import LOCAL
from resolute_deploy.command import GROUPS

NOUN = Group(
    name="deploy",
    help="start and stop clusters",
    commands=(*GROUPS, LOCAL),
)
