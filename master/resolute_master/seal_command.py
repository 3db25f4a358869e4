"""The key that seals the cluster's secrets, while the master is stopped.

    python -m resolute_master seal --config-file master.yaml
    python -m resolute_master seal --config-file master.yaml --new-key-file FILE
    python -m resolute_master seal --config-file master.yaml --give-up-lost-key

The first form says which key seals the secrets and whether the configured one fits. --new-key-file seals them by the key in FILE,
which is made when it does not exist; name FILE in security.seal.key_file, or store its text where the configuration looks, before
the next start. --give-up-lost-key is for a key of which no copy is left: the secrets that it sealed are gone, and the next start
makes new ones. Other flags are those of the master, which also finds its configuration in the same way.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resolute import printable
from resolute.config import DEFAULT_MASTER_CONFIG_PATH, MasterConfig, load_master_config
from resolute.config.layers import chosen_file
from resolute.errors import FailedPrecondition, InvalidInput, ResoluteError
from resolute_master.flags import parse_flags
from resolute_master.seal.cipher import Key, WrongKey
from resolute_master.seal.cluster_secrets import SEAL, data_key, missing_key_message, sealed_data_key
from resolute_master.seal.key_source import described, given_key, key_file, make_key_file, read_key
from resolute_master.store.base import Store

USAGE_ERROR = 2
FAILED = 1
GIVE_UP = "--give-up-lost-key"


def run(arguments: Sequence[str], *, usual_file: Path = DEFAULT_MASTER_CONFIG_PATH) -> int:
    """0 when it is done, 1 when it cannot be done, 2 for wrong arguments."""
    try:
        given, flags = parse_flags([word for word in arguments if word != GIVE_UP])
        new_file = flags.pop("new-key-file", None)
        if new_file is not None and GIVE_UP in arguments:
            raise InvalidInput(f"--new-key-file and {GIVE_UP} exclude each other")
        config = load_master_config(chosen_file(given, os.environ, usual_file), os.environ, flags)
    except ResoluteError as error:
        print(f"resolute_master seal: {printable.lines(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    try:
        print(asyncio.run(_run(config, None if new_file is None else Path(new_file), GIVE_UP in arguments)))
    except ResoluteError as error:
        print(f"resolute_master seal: {printable.lines(str(error))}", file=sys.stderr)
        return FAILED
    return 0


async def _run(config: MasterConfig, new_file: Path | None, give_up: bool) -> str:
    # Imported where it is used: the master imports this module for its help.
    from resolute_master.app import open_store

    store = await open_store(config)  # which also makes sure that no master runs
    try:
        seal = await store.setting(SEAL)
        if seal is None:
            raise FailedPrecondition(
                "the database holds no sealed secrets yet; the first start of the master seals them"
            )
        if give_up:
            return await _give_up(store, seal, config)
        sealing = given_key(config)
        if sealing is None:
            raise FailedPrecondition(missing_key_message(seal, config))
        data = data_key(seal, sealing, config)
        if new_file is None:
            return f"the secrets are sealed by the key {seal['by']}, which is in {described(config)}"
        new = read_key(new_file) or make_key_file(new_file)
        await store.put_setting(SEAL, sealed_data_key(new, data, lost=tuple(seal.get("lost", ()))))
        await store.forget_replaced()
        return (
            f"the secrets are sealed by the key {new.fingerprint} in {new_file} now; the key {sealing.fingerprint} in "
            f"{described(config)} opens older backups only. Give the new key to the master before its next start"
        )
    finally:
        await store.close()


async def _give_up(store: Store, seal: dict[str, Any], config: MasterConfig) -> str:
    sealing = given_key(config)
    if sealing is not None:
        try:
            sealing.open(SEAL, seal["key"])
        except WrongKey:
            pass
        else:
            raise FailedPrecondition(f"the key in {described(config)} opens the secrets; there are none to discard")
    new = sealing or make_key_file(key_file(config))
    lost = (*seal.get("lost", ()), seal["data"])
    await store.put_setting(SEAL, sealed_data_key(new, Key.new(), lost=lost))
    return f"the secrets sealed by the key {seal['by']} are given up; the next start makes new ones"
