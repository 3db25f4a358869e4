"""The store in an SQL database: SQLAlchemy Core, no ORM. SQLite for one machine, PostgreSQL for a separate server.

Contains tables, statements, connections and schema versions. Must not depend on the meaning of a row.

- `tables`       the tables, with the columns of each entity that queries read; the entity itself is its `body`
- `dialect`      the few differences between the databases' SQL
- `database`     connections, transactions, threads, and their errors as texts for users; SQLite
- `schema`       upgrades a database to the version of this code
- `changes`      the engine's commit, and what it loads at startup
- `queries`      pages and look-ups
- `searching`    log lines by a regular expression, for a limited time
- `streams`      metrics, logs and step marks
- `store`        the port, put together

All statements are functions of a `sqlalchemy.Connection`, run inside one transaction by a `Database`. PostgreSQL has its own paths,
on asyncpg, for frequent writes:

- `postgres`          a `Database` that continues after restarts of the server
- `postgres_address`  the address of the server, and its refusals as errors
- `postgres_session`  its connections, and the lock of the one master
- `postgres_commit`   the engine's commit as one statement
- `postgres_streams`  metrics, logs and step marks by COPY
- `postgres_store`    the port, put together
"""

from __future__ import annotations

from resolute_master.store.base import Store
from resolute_master.store.sql.store import SqlStore, sqlite_url

__all__ = ["SqlStore", "open_store", "sqlite_url"]


async def open_store(url: str) -> Store:
    """`sqlite:///<file>` or `postgresql://<user>:<password>@<host>:<port>/<name>`; made or upgraded when need be.

    Raises `InvalidInput` for another kind of URL, and what opening that kind of store raises.
    """
    if not url.startswith(("postgresql:", "postgres:")):
        return await SqlStore.open(url)
    # Imported where it is used: the driver takes its time, and the store in a file does without.
    from resolute_master.store.sql.postgres_address import PostgresAddress
    from resolute_master.store.sql.postgres_store import PostgresStore

    return await PostgresStore.open_at(PostgresAddress.of_url(url))
