"""The one place where secrets of the cluster are made, read and replaced.

The setting `seal` holds the data key, sealed by the sealing key. It is stored before any secret is sealed, so a start that was
killed anywhere is repeated: a sealing key without `seal` has sealed nothing yet, a secret still in plain text is sealed by the next
start, and each step is one write of one setting.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from resolute.config import MasterConfig
from resolute.errors import FailedPrecondition
from resolute_master.seal.cipher import Key, WrongKey
from resolute_master.seal.key_source import HOW_TO_GIVE, described, given_key, key_file, make_key_file
from resolute_master.store.base import Store
from resolute_master.store.waiting import waited_for

log = logging.getLogger(__name__)

SEAL = "seal"
"""The setting with the data key: `by`, the fingerprint of the sealing key; `key`, the data key sealed; `data`, its fingerprint;
`lost`, fingerprints of data keys that an operator has given up."""

SECRET_BYTES = 32
"""256 bits."""


class ClusterSecrets:
    """Secrets by name, sealed in the settings of the store."""

    def __init__(self, store: Store, key: Key, *, lost: frozenset[str] = frozenset()) -> None:
        """Use `open_secrets`. `key` is the data key; `lost` are fingerprints of those before it that were given up."""
        self._store = store
        self._key = key
        self._lost = lost

    async def secret(self, name: str) -> str:
        """The secret of that name: 256 bits as hexadecimal text, made and stored when there is none yet.

        Raises `FailedPrecondition` when the stored one cannot be opened.
        """
        stored = await self._stored(name)
        if stored is not None:
            return stored
        made = secrets.token_hex(SECRET_BYTES)
        await self.put(name, made)
        return made

    async def put(self, name: str, text: str) -> None:
        """Store the secret in place of the one before."""
        sealed = {"sealed": self._key.seal(name, text), "under": self._key.fingerprint}
        await self._store.put_setting(name, sealed)

    async def _stored(self, name: str) -> str | None:
        value = await waited_for(lambda: self._store.setting(name))
        match value:
            case None:
                return None
            case str():  # of a version that did not seal
                await self.put(name, value)
                await self._store.forget_replaced()
                log.warning("the secret '%s' was stored as plain text; it is sealed now", name)
                return value
            case {"under": under} if under in self._lost:
                log.warning("the secret '%s' was sealed by a key that was given up; a new one is made", name)
                return None
            case {"sealed": sealed}:
                try:
                    return self._key.open(name, sealed)
                except WrongKey as error:
                    raise FailedPrecondition(
                        f"the secret '{name}' in the database cannot be opened ({error}): it was changed, or comes from "
                        "another database; restore the table 'settings' from one backup"
                    ) from error
        raise FailedPrecondition(f"the secret '{name}' in the database has a format that is unknown to this version")


async def open_secrets(store: Store, config: MasterConfig) -> ClusterSecrets:
    """The cluster's secrets, by the key that the configuration gives.

    A cluster without sealed secrets gets a key file when no key is given. Raises `InvalidInput` for a key that cannot be read,
    `FailedPrecondition` for one that is missing or does not fit: it is never replaced.
    """
    seal = await waited_for(lambda: store.setting(SEAL))
    sealing = await asyncio.to_thread(given_key, config)
    if seal is None:
        if sealing is None:
            sealing = await asyncio.to_thread(make_key_file, key_file(config))
        seal = sealed_data_key(sealing, Key.new())
        await store.put_setting(SEAL, seal)
    if sealing is None:
        raise FailedPrecondition(missing_key_message(seal, config))
    return ClusterSecrets(store, data_key(seal, sealing, config), lost=frozenset(seal.get("lost", ())))


def sealed_data_key(sealing: Key, data: Key, *, lost: tuple[str, ...] = ()) -> dict[str, Any]:
    """The value of the setting `seal`."""
    return {
        "by": sealing.fingerprint,
        "key": sealing.seal(SEAL, data.text),
        "data": data.fingerprint,
        "lost": list(lost),
    }


def data_key(seal: Mapping[str, Any], sealing: Key, config: MasterConfig) -> Key:
    """Raises `FailedPrecondition` when this key did not seal it."""
    try:
        return Key.from_text(sealing.open(SEAL, seal["key"]))
    except WrongKey:
        raise FailedPrecondition(
            f"the secrets of this cluster are sealed by the key {seal['by']}; {described(config)} has the key "
            f"{sealing.fingerprint}. Give the right one: {HOW_TO_GIVE}. {IF_LOST}"
        ) from None


def missing_key_message(seal: Mapping[str, Any], config: MasterConfig) -> str:
    """The error of a master without the key of a sealed database."""
    return (
        f"the secrets of this cluster are sealed by the key {seal['by']}, which is not in {described(config)}: "
        f"there is no such file. The key is kept apart from the database: {HOW_TO_GIVE}. {IF_LOST}"
    )


IF_LOST = (
    "Only if no copy of that key is left: `python -m resolute_master seal --give-up-lost-key` makes new secrets, which ends "
    "every session and the credentials of tasks and agents"
)
