"""Durable cluster state behind one port.

Contains tables, transactions and queries. Must not contain a rule: it stores what the engine decided and reads pages for users.

- `base`    the port, in domain verbs; `waiting` lets the master's own reads wait for an unavailable store
- `memory`  for simulation and tests; passes the same conformance suite
- `sql`     SQLAlchemy Core tables and queries; SQLite and PostgreSQL by the same code
"""
