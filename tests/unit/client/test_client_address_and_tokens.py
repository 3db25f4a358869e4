"""Addresses of masters and the file of stored logins."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from resolute.client.address import address_from, canonical_address
from resolute.client.token_cache import TokenCache, configuration_directory
from resolute.errors import InvalidInput
from resolute.wire.rest.passwords import hash_password

MASTER = "http://m:8080"


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("localhost", "http://localhost:8080"),
        ("localhost:9000/", "http://localhost:9000"),
        ("http://host", "http://host:80"),
        ("https://host", "https://host:443"),
        ("https://host:8443/det/", "https://host:8443/det"),
        ("HTTP://Host", "http://host:80"),
        ("[::1]:9", "http://[::1]:9"),
        (" host ", "http://host:8080"),
    ],
)
def test_addresses_have_one_spelling(given: str, canonical: str) -> None:
    assert canonical_address(given) == canonical
    assert canonical_address(canonical) == canonical


@pytest.mark.parametrize(
    "wrong", ["", "http://", "ftp://host", "host:port", "http://u:p@host", "host/?a=1", "host#x", "host:99999"]
)
def test_wrong_addresses_are_refused_by_name(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="master address"):
        canonical_address(wrong)


def test_the_address_is_the_first_that_is_given() -> None:
    environ = {"DET_MASTER": "a", "DET_MASTER_ADDR": "b"}
    assert address_from(environ, "c") == "http://c:8080"
    assert address_from(environ) == "http://a:8080"
    assert address_from({"DET_MASTER_ADDR": "b"}) == "http://b:8080"
    assert address_from({}) == "http://localhost:8080"


def test_passwords_are_transformed_as_the_contract_says() -> None:
    assert hash_password("") == ""
    assert len(hash_password("x")) == 128
    assert hash_password("x") != hash_password("y")
    # Worked out with sha512sum over the salt and the word.
    assert hash_password("password").startswith("112ded61f568879685bb")


def test_logins_are_kept_by_master_and_user(tmp_path: Path) -> None:
    cache = TokenCache(tmp_path / "config")
    cache.store(MASTER, "ada", "t1")
    cache.store(MASTER, "bob", "t2", active=False)
    cache.store("http://other:80", "eve", "t3")
    assert cache.active_user(MASTER) == "ada"
    assert (cache.token(MASTER, "ada"), cache.token(MASTER, "bob"), cache.token(MASTER, "eve")) == ("t1", "t2", None)
    assert cache.users(MASTER) == ("ada", "bob")
    cache.forget(MASTER, "ada")
    assert (cache.active_user(MASTER), cache.token(MASTER, "ada"), cache.token(MASTER, "bob")) == (None, None, "t2")


def test_the_file_is_private_and_of_the_shared_format(tmp_path: Path) -> None:
    TokenCache(tmp_path / "config").store(MASTER, "ada", "t1")
    path = tmp_path / "config" / "auth.json"
    expected = {"version": 2, "masters": {MASTER: {"active_user": "ada", "tokens": {"ada": "t1"}}}}
    assert json.loads(path.read_text()) == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["{", "[]", '{"version": 7}', '{"version": 2, "masters": []}'])
def test_a_damaged_file_is_removed_and_said_so(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(damage)
    with pytest.raises(InvalidInput, match="log in again"):
        TokenCache(tmp_path).active_user(MASTER)
    assert TokenCache(tmp_path).active_user(MASTER) is None


def test_older_versions_are_read(tmp_path: Path) -> None:
    old = {"version": 1, "masters": {MASTER: {"active_user": "ada", "tokens": {"ada": "t"}}}}
    (tmp_path / "auth.json").write_text(json.dumps(old))
    assert TokenCache(tmp_path).token(MASTER, "ada") == "t"
    (tmp_path / "auth.json").write_text('{"version": 0}')
    assert TokenCache(tmp_path).users(MASTER) == ()


def test_the_directory_follows_the_variables() -> None:
    assert configuration_directory({"DET_DEBUG_CONFIG_PATH": "/x", "HOME": "/h"}) == Path("/x")
    assert configuration_directory({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}) == Path("/c/determined")
    assert configuration_directory({"HOME": "/h"}) == Path("/h/.config/determined")
