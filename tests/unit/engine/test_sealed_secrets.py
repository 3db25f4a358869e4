"""The cluster's secrets are sealed in the database by a key from elsewhere; a key that is missing or wrong is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resolute.config import MasterConfig, load_master_config
from resolute.errors import FailedPrecondition, InvalidInput, ResoluteError
from resolute_master.main import main
from resolute_master.seal import open_secrets
from resolute_master.seal.cipher import Key, WrongKey
from resolute_master.seal.cluster_secrets import SEAL
from resolute_master.seal.key_source import make_key_file
from resolute_master.store.memory import MemoryStore
from resolute_master.store.sql import SqlStore, sqlite_url

PLAIN = "a1" * 32


def config_in(directory: Path, environ: dict[str, str] | None = None, **seal: Any) -> MasterConfig:
    directory.mkdir(exist_ok=True)
    file = directory / "master.yaml"
    file.write_text(json.dumps({"cluster_state_dir": str(directory), "security": {"seal": seal}}))
    return load_master_config(file, environ or {}, {})


async def test_a_secret_is_made_once_and_is_not_in_the_database_as_it_is(tmp_path: Path) -> None:
    store = MemoryStore()
    made = await (await open_secrets(store, config_in(tmp_path))).secret("token_key")
    assert len(bytes.fromhex(made)) == 32
    assert made not in json.dumps([await store.setting("token_key"), await store.setting(SEAL)])
    assert await (await open_secrets(store, config_in(tmp_path))).secret("token_key") == made
    assert (tmp_path / "seal.key").stat().st_mode & 0o777 == 0o600


async def test_a_secret_can_be_replaced(tmp_path: Path) -> None:
    store = MemoryStore()
    kept = await open_secrets(store, config_in(tmp_path))
    await kept.put("join_token", "a new one")
    assert await kept.secret("join_token") == "a new one"
    assert await (await open_secrets(store, config_in(tmp_path))).secret("join_token") == "a new one"


async def test_a_plain_key_of_an_older_version_is_sealed_with_its_value_and_leaves_no_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "resolute.db"
    config = config_in(tmp_path)
    store = await SqlStore.open(sqlite_url(database))
    await store.put_setting("token_key", PLAIN)
    assert files_with(PLAIN, tmp_path) != []
    with caplog.at_level(logging.WARNING):
        assert await (await open_secrets(store, config)).secret("token_key") == PLAIN
    assert "'token_key' was stored as plain text; it is sealed now" in caplog.text
    assert files_with(PLAIN, tmp_path) == []
    await store.close()
    store = await SqlStore.open(sqlite_url(database))
    assert await (await open_secrets(store, config)).secret("token_key") == PLAIN
    await store.close()


def files_with(text: str, directory: Path) -> list[str]:
    """Files of the database that contain the text."""
    files = sorted(directory.glob("resolute.db*"))
    assert len(files) >= 3
    return [file.name for file in files if text.encode() in file.read_bytes()]


class Killed(BaseException):
    pass


class StoreThatDies(MemoryStore):
    """The process ends before or after a write of a setting."""

    left = -1

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    async def put_setting(self, name: str, value: Any) -> None:
        self._step()
        await super().put_setting(name, value)
        self._step()


@pytest.mark.parametrize("moment", range(1, 8))
async def test_an_upgrade_that_is_killed_at_any_moment_is_repeated(tmp_path: Path, moment: int) -> None:
    store = StoreThatDies()
    await store.put_setting("token_key", PLAIN)
    await store.put_setting("join_key", PLAIN[::-1])
    store.left = moment
    with pytest.raises(Killed) if moment < 7 else _nothing():
        kept = await open_secrets(store, config_in(tmp_path))
        await kept.secret("token_key")
        await kept.secret("join_key")
    store.left = -1
    kept = await open_secrets(store, config_in(tmp_path))
    assert [await kept.secret(name) for name in ("token_key", "join_key")] == [PLAIN, PLAIN[::-1]]
    assert PLAIN not in json.dumps([await store.setting(name) for name in ("token_key", "join_key", SEAL)])


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


async def test_a_key_that_was_made_before_the_kill_is_used_and_not_made_anew(tmp_path: Path) -> None:
    key = make_key_file(tmp_path / "seal.key")
    kept = await open_secrets(MemoryStore(), config_in(tmp_path))
    await kept.secret("token_key")
    assert (tmp_path / "seal.key").read_text().strip() == key.text


# ------------------------------------------------------------------------------------------ missing, wrong, elsewhere


async def test_a_missing_key_is_refused_and_nothing_is_made_in_its_place(tmp_path: Path) -> None:
    store = MemoryStore()
    sealed_by = Key.from_text(await made_key(store, tmp_path / "one"))
    with pytest.raises(FailedPrecondition) as refused:
        await open_secrets(store, config_in(tmp_path / "two"))
    for words in (
        sealed_by.fingerprint,
        str(tmp_path / "two" / "seal.key"),
        "there is no such file",
        "security.seal.key_file, security.seal.key_command or DET_SECURITY_SEAL_KEY",
        "--give-up-lost-key",
    ):
        assert words in str(refused.value)
    assert not (tmp_path / "two" / "seal.key").exists()


async def test_a_wrong_key_is_refused_by_both_fingerprints(tmp_path: Path) -> None:
    store = MemoryStore()
    right = Key.from_text(await made_key(store, tmp_path / "one"))
    wrong = Key.new()
    with pytest.raises(FailedPrecondition, match=f"sealed by the key {right.fingerprint}; .* {wrong.fingerprint}"):
        await open_secrets(store, config_in(tmp_path / "two", {"DET_SECURITY_SEAL_KEY": wrong.text}))


async def made_key(store: MemoryStore, directory: Path) -> str:
    await (await open_secrets(store, config_in(directory))).secret("token_key")
    return (directory / "seal.key").read_text()


def in_environment(directory: Path, key: str) -> MasterConfig:
    return config_in(directory, {"DET_SECURITY_SEAL_KEY": key.strip()})


def in_file(directory: Path, key: str) -> MasterConfig:
    directory.mkdir()
    (directory / "given.key").write_text(key)
    return config_in(directory, key_file=str(directory / "given.key"))


def by_command(directory: Path, key: str) -> MasterConfig:
    return config_in(directory, key_command=["sh", "-c", f"echo {key.strip()}"])


@pytest.mark.parametrize("given", [in_environment, in_file, by_command])
async def test_a_master_on_another_machine_starts_with_the_key_that_it_is_given(
    tmp_path: Path, given: Callable[[Path, str], MasterConfig]
) -> None:
    store = MemoryStore()
    key = await made_key(store, tmp_path / "one")
    before = await (await open_secrets(store, config_in(tmp_path / "one"))).secret("token_key")
    after = await (await open_secrets(store, given(tmp_path / "two", key))).secret("token_key")
    assert after == before
    assert not (tmp_path / "two" / "seal.key").exists()


@pytest.mark.parametrize(
    ("seal", "words"),
    [
        ({"key": "secret words"}, "security.seal.key (DET_SECURITY_SEAL_KEY) is not 64 hexadecimal digits"),
        ({"key_command": ["echo", "secret words"]}, "security.seal.key_command: the output of echo is not 64"),
        (
            {"key_command": ["sh", "-c", "echo denied >&2; exit 3"]},
            "security.seal.key_command: sh ended with 3: denied",
        ),
        ({"key_command": ["/no/such/program"]}, "key_command: /no/such/program failed: No such file or directory"),
        ({"key_file": "/"}, "security.seal.key_file: / cannot be read: Is a directory"),
        ({"key_file": "/proc/nothing/key"}, "the key /proc/nothing/key cannot be made"),
    ],
)
async def test_a_key_that_cannot_be_used_is_refused_by_its_place_and_not_shown(
    tmp_path: Path, seal: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await open_secrets(MemoryStore(), config_in(tmp_path, **seal))
    assert words in str(refused.value)
    assert "secret words" not in str(refused.value)


def test_places_of_the_key_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ResoluteError, match=r"security\.seal.* key and key_file exclude each other; keep one of them"):
        config_in(tmp_path, key="a", key_file="b")


async def test_a_sealed_text_opens_under_its_own_name_only(tmp_path: Path) -> None:
    store = MemoryStore()
    kept = await open_secrets(store, config_in(tmp_path))
    await kept.secret("join_key")
    await store.put_setting("token_key", await store.setting("join_key"))
    with pytest.raises(FailedPrecondition, match="the secret 'token_key' in the database cannot be opened"):
        await kept.secret("token_key")
    with pytest.raises(WrongKey):
        Key.new().open("a", Key.new().seal("a", "text"))


# -------------------------------------------------------------------------------------------------------- the command


def flags(directory: Path) -> list[str]:
    return ["--cluster-state-dir", str(directory)]


async def sealed_cluster(directory: Path) -> str:
    store = await SqlStore.open(sqlite_url(directory / "resolute.db"))
    try:
        return await (await open_secrets(store, config_in(directory))).secret("token_key")
    finally:
        await store.close()


async def opened(directory: Path, **seal: Any) -> str:
    store = await SqlStore.open(sqlite_url(directory / "resolute.db"))
    try:
        return await (await open_secrets(store, config_in(directory, **seal))).secret("token_key")
    finally:
        await store.close()


async def in_thread(*words: str) -> int:
    import asyncio

    return await asyncio.to_thread(main, ["seal", *words])


async def test_the_sealing_key_is_replaced_and_the_old_one_opens_nothing_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = await sealed_cluster(tmp_path)
    assert await in_thread(*flags(tmp_path), "--new-key-file", str(tmp_path / "new.key")) == 0
    assert f"in {tmp_path / 'new.key'} now" in capsys.readouterr().out
    assert await opened(tmp_path, key_file=str(tmp_path / "new.key")) == secret
    with pytest.raises(FailedPrecondition, match="Give the right one"):
        await opened(tmp_path)


async def test_a_lost_key_is_given_up_by_command_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = await sealed_cluster(tmp_path)
    assert await in_thread(*flags(tmp_path), "--give-up-lost-key") == 1
    assert "there are none to discard" in capsys.readouterr().err
    (tmp_path / "seal.key").unlink()
    assert await in_thread(*flags(tmp_path)) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert await in_thread(*flags(tmp_path), "--give-up-lost-key") == 0
    new = await opened(tmp_path)
    assert new != secret
    assert await opened(tmp_path) == new


async def test_the_command_refuses_what_it_does_not_know_and_a_running_master(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await sealed_cluster(tmp_path)
    assert await in_thread("--new-key-fil", "x") == 2
    store = await SqlStore.open(sqlite_url(tmp_path / "resolute.db"))
    assert await in_thread(*flags(tmp_path), "--new-key-file", str(tmp_path / "new.key")) == 1
    assert "is in use by another master" in capsys.readouterr().err
    await store.close()
