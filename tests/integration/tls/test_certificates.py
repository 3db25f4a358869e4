"""Certificates that a master makes itself: what is made, kept, renewed and refused."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from resolute.errors import InvalidInput
from resolute_master.certificates import (
    AUTHORITY_DAYS,
    RENEWED_BEFORE_DAYS,
    SERVER_DAYS,
    Authority,
    ends_at,
    fingerprint,
    is_self_signed,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("master.example.org", "10.0.0.7", "::1")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls", cluster_name="lab")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_private_and_what_is_handed_out_holds_none(authority: Authority, tmp_path: Path) -> None:
    assert authority.prepare(NAMES, NOW)
    files = authority.files
    assert mode(tmp_path / "tls") == 0o700
    assert {path.name: mode(path) for path in (tmp_path / "tls").iterdir()} == {
        "authority.pem": 0o600,
        "server.pem": 0o600,
        "ca.pem": 0o644,
    }
    assert b"PRIVATE" not in files.authority.read_bytes()
    leaf = x509.load_pem_x509_certificates(files.server.read_bytes())[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAMES[0]]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == list(NAMES[1:])
    assert is_self_signed(files.authority.read_bytes()) and not is_self_signed(files.server.read_bytes())
    assert ends_at(files.server.read_bytes()) == NOW + timedelta(days=SERVER_DAYS)


def test_a_certificate_is_kept_until_it_ends_soon_and_the_authority_stays(authority: Authority) -> None:
    authority.prepare(NAMES, NOW)
    first, trusted = authority.files.server.read_bytes(), authority.files.authority.read_bytes()
    soon = NOW + timedelta(days=SERVER_DAYS - RENEWED_BEFORE_DAYS)
    assert not authority.prepare(NAMES, soon - timedelta(days=1))
    assert authority.files.server.read_bytes() == first
    assert authority.prepare(NAMES, soon)
    assert fingerprint(authority.files.server.read_bytes()) != fingerprint(first)
    assert authority.prepare((*NAMES, "another.example.org"), soon)
    assert authority.files.authority.read_bytes() == trusted


def test_what_a_killed_master_left_is_made_good(authority: Authority, tmp_path: Path) -> None:
    authority.prepare(NAMES, NOW)
    trusted = authority.files.authority.read_bytes()
    (tmp_path / "tls" / ".server.pem.new").write_text("half")
    authority.files.server.write_text("half")
    authority.files.authority.unlink()
    (tmp_path / "tls" / "authority.pem").chmod(0o644)
    assert authority.prepare(NAMES, NOW)
    assert authority.files.authority.read_bytes() == trusted
    assert mode(tmp_path / "tls" / "authority.pem") == 0o600


def test_an_authority_is_never_replaced_silently(authority: Authority, tmp_path: Path) -> None:
    authority.prepare(NAMES, NOW)
    with pytest.raises(InvalidInput, match="has ended at"):
        authority.prepare(NAMES, NOW + timedelta(days=AUTHORITY_DAYS + 1))
    (tmp_path / "tls" / "authority.pem").write_text("nothing of the sort")
    with pytest.raises(InvalidInput, match="put it back from a backup"):
        authority.prepare(NAMES, NOW)


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("a file")
    with pytest.raises(InvalidInput, match=r"security\.tls\.enabled: cannot use"):
        Authority(tmp_path / "tls", cluster_name="").prepare(NAMES, NOW)
