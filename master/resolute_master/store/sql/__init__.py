"""The store in an SQL database: SQLAlchemy Core, no ORM. SQLite today; PostgreSQL by the same tables and queries.

Knows tables, statements, connections and schema versions. Must not know what a row means to a rule.

- `tables`       the tables, and which columns of each entity queries look at; the entity itself is its `body`
- `dialect`      the few things that databases spell differently
- `database`     connections, transactions, threads, and what their errors mean to a person
- `schema`       brings a database to the version of this code
- `changes`      the engine's commit, and what it loads at boot
- `queries`      pages and look-ups
- `streams`      metrics, logs and step marks
- `store`        the port, put together

All statements are functions of a `sqlalchemy.Connection`, run inside one transaction by a `Database`.
"""

from __future__ import annotations

from resolute_master.store.sql.store import SqlStore, sqlite_url

__all__ = ["SqlStore", "sqlite_url"]
