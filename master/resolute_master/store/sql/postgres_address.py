"""Where a PostgreSQL server is, how the connection is protected, and its refusals as texts for users."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from resolute.errors import InvalidInput, ResoluteError, Unavailable
from resolute_master.store.base import StoreBroken, unstorable

SSL_MODES = ("disable", "require", "verify-ca", "verify-full")

CONNECT_TIMEOUT_S = 10.0

COMMAND_TIMEOUT_S = 60.0
"""A statement that takes longer counts as lost with its connection: the server hangs, or the network drops packets."""

APPLICATION = "resolute-master"
"""How our sessions are called on the server."""

_SESSION_SETTINGS = {
    "application_name": APPLICATION,
    "jit": "off",
    # A master whose machine has gone must not hold its lock for the two hours that systems wait by default.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """One database of one server, and the user there."""

    host: str
    port: int = 5432
    user: str
    password: str = field(repr=False)
    """Empty takes what libpq's conventions offer: `PGPASSWORD`, `~/.pgpass`."""
    name: str
    ssl_mode: str = "disable"
    """One of `SSL_MODES`: not at all, encrypted, by a known authority, and to the host that was meant."""
    ssl_root_cert: str = ""
    """File of the authority; empty takes those that this machine trusts."""

    def __str__(self) -> str:
        return f"the database '{self.name}' at {self.host}:{self.port}"

    @classmethod
    def of_url(cls, url: str) -> PostgresAddress:
        """`postgresql://user:password@host:port/name?sslmode=verify-full&sslrootcert=FILE`. Raises `InvalidInput`.

        No error repeats the URL: it may hold a password.
        """
        advice = "write postgresql://<user>:<password>@<host>:<port>/<name>, special characters as %XX"
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise InvalidInput(f"db: this is not the URL of a database; {advice}") from None
        unknown = sorted(set(parsed.query) - {"sslmode", "sslrootcert"})
        if unknown:
            raise InvalidInput(f"db: the URL has the parameter '{unknown[0]}'; known are sslmode and sslrootcert")
        mode = str(parsed.query.get("sslmode", "disable"))
        if mode not in SSL_MODES:
            raise InvalidInput(f"db: sslmode '{mode}' is not known; use one of {', '.join(SSL_MODES)}")
        if not (parsed.host and parsed.username and parsed.database):
            raise InvalidInput(f"db: the URL lacks a host, a user or the name of a database; {advice}")
        return cls(
            host=parsed.host,
            port=parsed.port or 5432,
            user=parsed.username,
            password=parsed.password or "",
            name=parsed.database,
            ssl_mode=mode,
            ssl_root_cert=str(parsed.query.get("sslrootcert", "")),
        )

    async def connect(self) -> asyncpg.Connection:
        """A connection for statements that are prepared once and run often."""
        return await asyncpg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password or None,
            database=self.name,
            # One long statement a kind of commit, each worth keeping for ever.
            statement_cache_size=1000,
            max_cacheable_statement_size=0,
            max_cached_statement_lifetime=0,
            **self._connection_settings({"plan_cache_mode": "force_generic_plan"}),
        )

    def url(self) -> URL:
        """For SQLAlchemy; together with `connect_arguments`."""
        return URL.create(
            "postgresql+asyncpg",
            username=self.user,
            password=self.password or None,
            host=self.host,
            port=self.port,
            database=self.name,
        )

    def connect_arguments(self) -> dict[str, Any]:
        return self._connection_settings({})

    def _connection_settings(self, settings: Mapping[str, str]) -> dict[str, Any]:
        return {
            "ssl": self._ssl(),
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": COMMAND_TIMEOUT_S,
            "server_settings": {**_SESSION_SETTINGS, **settings},
        }

    def _ssl(self) -> ssl.SSLContext | bool:
        if self.ssl_mode == "disable":
            return False
        try:
            context = ssl.create_default_context(cafile=self.ssl_root_cert or None)
        except (OSError, ssl.SSLError) as error:
            raise StoreBroken(
                f"db.ssl_root_cert: '{self.ssl_root_cert}' cannot be read as certificates ({error}); "
                "name the PEM file of the server's authority"
            ) from error
        context.check_hostname = self.ssl_mode == "verify-full"
        if self.ssl_mode == "require":
            context.verify_mode = ssl.CERT_NONE
        return context


# ----------------------------------------------------------------------------------------------------- what went wrong

_AWAY_STATES = ("57P01", "57P02", "57P03", "57P05", "53300", "25006", "25P03")
"""Shut down, crashed, not up yet, session ended, too many connections, a standby that cannot write."""

_PASSING_STATES = ("40001", "40P01", "53100", "53200", "55P03", "57014")
"""Serialisation, deadlock, disk full, out of memory, lock not had, cancelled: the same again later may work."""


_OF_THE_VALUES = ("21", "22", "23", "54")
"""Classes of states: cardinality, data, constraints, limits of the server (an index takes no name of 3 kB)."""


def driver_error(error: BaseException) -> BaseException:
    """asyncpg's own error under SQLAlchemy's wrapping."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def state_of(error: BaseException) -> str:
    """The SQLSTATE; empty when the error is not the server's."""
    return str(getattr(driver_error(error), "sqlstate", None) or "")


def is_away(error: BaseException) -> bool:
    """Whether the connection is lost, so that the operation may or may not be stored."""
    cause = driver_error(error)
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return False
    if isinstance(cause, OSError):
        return "rejected SSL upgrade" not in str(cause)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    if isinstance(cause, asyncpg.InterfaceError) and not isinstance(cause, ValueError):
        return "closed" in str(cause)
    state = state_of(error)
    return isinstance(cause, asyncpg.InternalClientError) or state.startswith("08") or state in _AWAY_STATES


def is_passing(error: BaseException) -> bool:
    """Whether the server refused for a reason that may pass; nothing is stored."""
    return state_of(error) in _PASSING_STATES


def in_words(address: PostgresAddress, error: BaseException) -> ResoluteError | None:
    """None when the error is the program's, not the server's. The text never holds a password."""
    cause = driver_error(error)
    state = state_of(error)
    if isinstance(error, ResoluteError):
        return error
    if is_away(error) or is_passing(error):
        return Unavailable(f"{address} does not answer: {cause or type(cause).__name__}; try again in a moment")
    if isinstance(cause, OSError):
        return StoreBroken(
            f"db.ssl_mode: {address} cannot be reached with '{address.ssl_mode}' ({cause}); "
            "set up TLS on the server, or correct db.ssl_mode and db.ssl_root_cert"
        )
    if state.startswith("28"):
        return StoreBroken(
            f"db.password: {address} refuses the user '{address.user}' ({cause}); "
            "correct db.user and db.password, or the server's pg_hba.conf"
        )
    if state == "2201B":
        return InvalidInput(
            f"searchText: PostgreSQL does not understand the regular expression ({cause}); "
            "write it in its syntax, or search for text"
        )
    if state[:2] in _OF_THE_VALUES or isinstance(cause, asyncpg.DataError):
        return unstorable(cause)
    if state == "3D000":
        return StoreBroken(
            f"db.name: there is no database '{address.name}' at {address.host}:{address.port}; "
            f"create it (createdb --owner {address.user} {address.name}), or correct db.name"
        )
    if state == "42501":
        return StoreBroken(
            f"db.user: '{address.user}' lacks a right in {address} ({cause}); make it the owner of the database"
        )
    return None
