"""What a cluster has from its first start on: its id, its keys, its first users."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from resolute.config import MasterConfig
from resolute.ids import IdSource
from resolute.wire.rest.passwords import hash_password as as_sent
from resolute_master.agents.hub import ClusterIdentity
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.user import User
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store
from resolute_master.store.waiting import waited_for

log = logging.getLogger(__name__)

FIRST_USERS = (("admin", True), ("determined", False))
"""Name, and whether it administers."""

PASSWORD_FILE = "initial-password"


async def identity(store: Store, config: MasterConfig, ids: IdSource, version: str) -> ClusterIdentity:
    """The id of the cluster never changes; the id of the master is new at each start."""
    cluster_id = await waited_for(lambda: store.setting("cluster_id"))
    if cluster_id is None:
        cluster_id = ids.uuid()
        await store.put_setting("cluster_id", cluster_id)
    return ClusterIdentity(
        cluster_id=str(cluster_id), cluster_name=config.cluster_name, master_id=ids.uuid(), version=version
    )


async def first_users(
    engine: Engine, config: MasterConfig, state_directory: Path, hash_password: Callable[[str], Awaitable[str]]
) -> None:
    """Create them once, with the configured password, a generated one, or (loopback only, by an explicit flag) none."""
    if engine.state.all(User):
        return
    password = config.security.initial_user_password
    if not password and not config.security.allow_blank_password:
        password = secrets.token_urlsafe(12)
        path = state_directory / PASSWORD_FILE
        _write_private(path, password + "\n")
        log.warning("the first users admin and determined have a generated password; it is in %s", path)
    stored = await hash_password(as_sent(password))
    # At once, so that one commit has both: a first start that is cut short is repeated as a whole.
    await asyncio.gather(
        *(engine.submit(CreateUser(username=name, password_hash=stored, admin=admin)) for name, admin in FIRST_USERS)
    )


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
