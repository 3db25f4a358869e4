"""The certificates of a master that makes its own: a private authority, and a certificate of the server that it signs.

In `<cluster_state_dir>/tls`:

    authority.pem   key and certificate of the authority, for this master alone
    ca.pem          certificate of the authority: what agents, tasks and clients trust
    server.pem      key, certificate and authority of the server

Each file is replaced as a whole, so a master that is killed at any moment finds either the old one or the new one.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from resolute import private_files
from resolute.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

log = logging.getLogger(__name__)

AUTHORITY_DAYS = 3650
"""Agents and clients are given its certificate once."""

SERVER_DAYS = 365
RENEWED_BEFORE_DAYS = 60
"""Time before its expiry at which the server's certificate is replaced."""

BACKDATED = timedelta(hours=1)
"""Clocks of other machines may be late."""

MAX_NAME_LENGTH = 64
"""Most characters of a common name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCertificates:
    """Where a master that makes its own has them."""

    server: Path
    """Key and chain, in one file."""
    authority: Path
    """What callers trust."""


class Authority:
    """The private authority of one cluster, in a directory of its own."""

    def __init__(self, directory: Path, *, cluster_name: str) -> None:
        self._directory = directory
        self._cluster_name = cluster_name or "Resolute cluster"
        self.files = OwnCertificates(server=directory / "server.pem", authority=directory / "ca.pem")

    def prepare(self, names: Sequence[str], now: datetime) -> bool:
        """Make whatever is missing, ends soon or does not have exactly these names. Answers whether the server's certificate is a
        new one. Blocking. Raises `InvalidInput` for files that cannot be read or written."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._directory.chmod(0o700)
            key, certificate = self._authority(now)
            if self._server_is_good(certificate, names, now):
                return False
            self._make_server(key, certificate, names, now)
        except OSError as error:
            raise InvalidInput(
                f"security.tls.enabled: cannot use {self._directory}: {error.strerror or error}; make it a directory that the "
                "master may write to, or set security.tls.cert and security.tls.key"
            ) from error
        return True

    def _authority(self, now: datetime) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        path = self._directory / "authority.pem"
        if not path.exists():
            self._make_authority(path, now)
        pem = _private(path)
        key, certificate = _read(path, pem)
        if certificate.not_valid_after_utc <= now:
            raise InvalidInput(
                f"security.tls.enabled: the authority in {path} has ended at {certificate.not_valid_after_utc.isoformat()}; "
                f"remove the directory {self._directory}, start the master, and give the new ca.pem to static agents and clients"
            )
        text = _pem(certificate)
        if not self.files.authority.exists() or self.files.authority.read_bytes() != text:
            _write(self.files.authority, text, mode=0o644)
        return key, certificate

    def _make_authority(self, path: Path, now: datetime) -> None:
        from cryptography import x509

        key = _new_key()
        name = _name(f"{self._cluster_name} authority")
        certificate = (
            _builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, _hash())
        )
        _write(path, _key_pem(key) + _pem(certificate), mode=0o600)
        log.info("made an authority for TLS in %s; sha256 fingerprint %s", path, fingerprint(_pem(certificate)))

    def _server_is_good(self, authority: x509.Certificate, names: Sequence[str], now: datetime) -> bool:
        from cryptography.exceptions import InvalidSignature

        if not self.files.server.exists():
            return False
        try:
            _, certificate = _read(self.files.server, _private(self.files.server))
            certificate.verify_directly_issued_by(authority)
        except (InvalidInput, InvalidSignature, ValueError, TypeError):
            return False  # the master made it, and may replace it
        return certificate.not_valid_after_utc - now > timedelta(days=RENEWED_BEFORE_DAYS) and _names_of(
            certificate
        ) == set(names)

    def _make_server(
        self, authority_key: EllipticCurvePrivateKey, authority: x509.Certificate, names: Sequence[str], now: datetime
    ) -> None:
        from cryptography import x509
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = _new_key()
        certificate = (
            _builder(_name(names[0] if names else "resolute"), authority.subject, key.public_key(), now, SERVER_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
            .sign(authority_key, _hash())
        )
        _write(self.files.server, _key_pem(key) + _pem(certificate) + _pem(authority), mode=0o600)
        log.info("made a certificate for %s, good for %d days", ", ".join(names), SERVER_DAYS)


def is_self_signed(pem: bytes) -> bool:
    """Whether the first certificate of a file vouches for itself, so that callers may trust it as it is."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificates(pem)[0]
    return certificate.issuer == certificate.subject


def fingerprint(pem: bytes) -> str:
    """SHA-256 of the first certificate of a file, as `openssl x509 -fingerprint -sha256` writes it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    return x509.load_pem_x509_certificates(pem)[0].fingerprint(hashes.SHA256()).hex(":").upper()


def ends_at(pem: bytes) -> datetime:
    """When the first certificate of a file is over."""
    from cryptography import x509

    return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc


# -------------------------------------------------------------------------------------------------------------- parts


def _read(path: Path, pem: bytes) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
        certificate = x509.load_pem_x509_certificates(pem)[0]
    except (ValueError, TypeError, IndexError) as error:
        raise InvalidInput(
            f"security.tls.enabled: {path} is no key with its certificate ({error}); put it back from a backup, or "
            "remove it to have a new one made"
        ) from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise InvalidInput(f"security.tls.enabled: {path} has not been made by this master; remove it")
    return key, certificate


def _private(path: Path) -> bytes:
    """The file, readable by its owner alone from now on."""
    for sentence in private_files.mend(files=[path]):
        log.warning("%s", sentence)
    return path.read_bytes()


def _write(path: Path, data: bytes, *, mode: int) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    fresh.replace(path)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _hash() -> hashes.SHA256:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _name(common: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:MAX_NAME_LENGTH])])


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> set[str]:
    from cryptography import x509

    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {
        *found.get_values_for_type(x509.DNSName),
        *(str(each) for each in found.get_values_for_type(x509.IPAddress)),
    }


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
