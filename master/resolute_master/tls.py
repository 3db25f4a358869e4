"""TLS of the master: the context of its socket, the certificates that callers trust, and their exchange at run time."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.errors import InvalidInput
from resolute_master.certificates import Authority, ends_at, fingerprint, is_self_signed
from resolute_master.trust import Trust

log = logging.getLogger(__name__)

LOOK_S = 60.0
"""Interval between checks of the certificate's files: a renewal (for example by certbot) needs no restart of the master."""

ENDS_SOON_S = 14 * 24 * 3600.0
"""A certificate from a file that expires within this time is reported in the log."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DIRECTORY = "tls"


class Tls:
    """TLS of one master. `context` stays the same object: new connections use a certificate that has been exchanged.

    A certificate is loaded into a context of its own, which each handshake takes: OpenSSL does not protect a context from
    handshakes that use it while another thread loads a certificate into it.
    """

    def __init__(self, config: MasterConfig, clock: Clock) -> None:
        """Blocking; nothing is made before `prepare`."""
        self._clock = clock
        self._tls = config.security.tls
        self._names = names_of(config)
        own = not self._tls.cert
        self._authority = Authority(own_directory(config), cluster_name=config.cluster_name) if own else None
        self.context = _new_context()
        self.context.sni_callback = self._choose  # called for callers that name no server too
        self._served = self.context
        self.trust = Trust()
        self._seen: tuple[float, ...] = ()

    @classmethod
    def of(cls, config: MasterConfig, clock: Clock) -> Tls | None:
        """None where the master serves plain HTTP. Blocking. Raises `InvalidInput` for certificates that cannot be used."""
        if not config.security.tls.on:
            return None
        made = cls(config, clock)
        made.prepare()
        return made

    def prepare(self) -> None:
        """Make what is to be made, and load it. Blocking. Raises `InvalidInput`."""
        if self._authority is not None:
            self._authority.prepare(self._names, self._clock.now())
        self._seen = self._moments()
        self._served = self._loaded()
        self.trust = self._trusted()

    def describe(self) -> None:
        """Log what callers need."""
        log.info("the server's certificate has the sha256 fingerprint %s", fingerprint(self._chain.read_bytes()))
        if self.trust.file:
            shown = fingerprint(self.trust.pem.encode())
            log.info("clients trust this master with DET_MASTER_CERT_FILE=%s (sha256 %s)", self.trust.file, shown)

    async def watch(self, look_s: float = LOOK_S) -> None:
        """Until cancelled: load certificates that have been exchanged, and renew the master's own."""
        while True:
            await asyncio.sleep(look_s)
            await asyncio.to_thread(self._look)

    def _look(self) -> None:
        try:
            if self._authority is not None and self._authority.prepare(self._names, self._clock.now()):
                log.info("the master's certificate has been renewed")
            now = self._moments()
            if now != self._seen:
                served = self._loaded()  # refuses the half of an exchange
                self._seen, self.trust = now, self._trusted()
                self._served = served
                log.info("serving the certificate that is in %s now", self._chain)
        except (InvalidInput, OSError) as error:
            log.warning("the master keeps the previous certificate: %s", error)

    @property
    def _chain(self) -> Path:
        return Path(self._tls.cert) if self._authority is None else self._authority.files.server

    @property
    def _key(self) -> Path | None:
        return Path(self._tls.key) if self._authority is None else None

    def _moments(self) -> tuple[float, ...]:
        """When each file was changed; loading reports inaccessible files."""
        files = [self._chain, *([Path(self._tls.key), Path(self._tls.ca)] if self._authority is None else [])]
        return tuple(os.stat(path).st_mtime_ns if path.is_file() else 0 for path in files)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = self._served

    def _loaded(self) -> ssl.SSLContext:
        """A new context with the certificate and key that the files hold now. Raises `InvalidInput`."""
        context = _new_context()
        try:
            context.load_cert_chain(self._chain, self._key, password=_no_password)
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"security.tls: cannot use cert {self._chain} with key {self._key or self._chain}: {error}; give a PEM file "
                "with the certificate and those that vouch for it, and the file of its key without a passphrase"
            ) from error
        return context

    def _trusted(self) -> Trust:
        if self._authority is not None:
            path = self._authority.files.authority
        elif self._tls.ca:
            path = Path(self._tls.ca)
        else:
            pem = self._chain.read_bytes()
            self._log_expiry(pem)
            if not is_self_signed(pem):
                return Trust()
            path = self._chain
        try:
            pem = path.read_bytes()
            ssl.create_default_context(cafile=str(path))
            fingerprint(pem)
        except (OSError, ValueError, IndexError) as error:
            raise InvalidInput(f"security.tls.ca: {path} holds no certificates in PEM: {error}") from error
        return Trust(file=str(path.resolve()), pem=_certificates_of(pem))

    def _log_expiry(self, pem: bytes) -> None:
        end = ends_at(pem)
        if (end - self._clock.now()).total_seconds() < ENDS_SOON_S:
            log.warning("security.tls.cert: the certificate in %s ends at %s; renew it", self._chain, end.isoformat())


def _new_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    raise ValueError("the key has a passphrase")


def _certificates_of(pem: bytes) -> str:
    """Without a key that the same file may hold: the result is public."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = pem.decode("ascii", errors="replace")
    parts = [part.split(end)[0] for part in text.split(begin)[1:]]
    return "".join(f"{begin}{part}{end}\n" for part in parts)


def own_directory(config: MasterConfig) -> Path:
    """Where a master that makes its own certificates has them."""
    return Path(config.cluster_state_dir) / DIRECTORY


def names_of(config: MasterConfig) -> tuple[str, ...]:
    """Names and addresses by which callers may call this master: the configured ones, and those of its machine."""
    given: list[str] = [*config.security.tls.names]
    if config.host not in ("0.0.0.0", "::"):
        given.append(config.host)
    else:
        given += [socket.gethostname(), *_own_addresses()]
    given += _hosts(pool.provider.master_url for pool in config.resource_pools if pool.provider is not None)
    found: dict[str, None] = {}
    for name in (*given, *LOOPBACK):
        found[_written(name)] = None
    return tuple(name for name in found if name)


def _hosts(urls: Iterable[str]) -> list[str]:
    return [host for url in urls if (host := urlsplit(url).hostname)]


def _written(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name.split("%")[0]))
    except ValueError:
        return name.lower().rstrip(".")


def _own_addresses() -> list[str]:
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    found = [
        each.address for addresses in psutil.net_if_addrs().values() for each in addresses if each.family in families
    ]
    return sorted({_written(address) for address in found if not address.startswith("fe80")})
