"""Limits of what a caller may use at once: requests, connections, bodies. `docs/limits.md` is generated from them."""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------------------ bodies

MAX_UPLOAD_BYTES = 128 * 1024 * 1024
"""Body of a call that carries a context directory: 95 MiB of files are 127 MiB in base64."""

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Body of every other call: metrics of a batch, a thousand lines of a log."""

MAX_PUBLIC_BODY_BYTES = 64 * 1024
"""Body of a call that needs no token: an unauthenticated caller must not fill memory."""

MAX_BODIES_BYTES = 2 * MAX_UPLOAD_BYTES
"""Total of all bodies larger than `LARGE_BODY_BYTES` in memory. Further bodies wait unread, in their sockets."""

MAX_BODIES_BYTES_PER_CALLER = MAX_UPLOAD_BYTES
"""Part of them for one user or task, so that a slow upload does not block other callers."""

LARGE_BODY_BYTES = 1024 * 1024
"""Smaller bodies are not counted: a thousand of them are one upload or two."""

BODY_WAIT_S = 60.0
"""A large body that has waited this long is refused with 503; the caller may retry."""

BODY_FIRST_S = 30.0
"""Time for a body to arrive, plus a second for each `BODY_BYTES_PER_S` received. A slower body is refused."""

PUBLIC_BODY_FIRST_S = 10.0
"""Time for the body of a call without a token to arrive, which is small."""

MAX_UNREAD_PUBLIC_BODIES = 1_000
"""Incomplete bodies of calls without a token: at most 64 MiB. They do not count as public requests. A further one replaces the
oldest of the address that has the most."""

BODY_BYTES_PER_S = 32 * 1024
"""The slowest upload that is accepted: a mobile connection."""

MAX_JSON_VALUES = 1_000_000
"""Values (about: commas and opening brackets) of one body: as objects they take many times the memory of their text."""

MAX_JSON_DEPTH = 100
"""Nesting of lists and objects: recursive code must be able to render what is stored."""

# ---------------------------------------------------------------------------------------------------------- requests

MAX_REQUESTS_PER_USER = 1_000
"""Concurrent requests of one user, followed logs included. Requests of the user's tasks do not count."""

MAX_REQUESTS_PER_CONTAINER = 32
"""Concurrent requests of one task, for each of its containers: its polls, its barrier, its reports."""

MAX_PUBLIC_REQUESTS = 500
"""Concurrent requests without a token, in total, after their bodies are read. An address without any still gets one."""

MAX_PUBLIC_REQUESTS_PER_ADDRESS = 100
"""Part of them for one address; an IPv6 network of 64 bits counts as one address."""

MAX_FIRST_PUBLIC_REQUESTS = 500
"""Requests beyond `MAX_PUBLIC_REQUESTS`, one for each address that has no other."""

FAILED_LOGINS = 5
"""Failed logins of a user from one address before that pair is delayed."""

FAILED_LOGINS_OF_ADDRESS = 100
"""Failed logins from one address, of any user, before the address is delayed, except for users who have logged in from it."""

FAILED_LOGINS_OF_USER = 100
"""Failed logins of one user from all addresses. After them, each address that the user has not logged in from has
`FAILED_LOGINS_ATTACKED` attempts. The first attempt of an address is never refused."""

FAILED_LOGINS_ATTACKED = 1
"""Failed logins before the delay, for a user who is attacked from many addresses."""

FIRST_LOGIN_PAUSE_S = 1.0
"""The first delay after too many failed logins; each further failure doubles it."""

LONGEST_LOGIN_PAUSE_S = 60.0
"""The longest delay after a failed login."""

FORGET_FAILURES_S = 900.0
"""Failures expire this long after the last of them."""

REMEMBERED_LOGINS = 10_000
"""Rows of each table of failed logins: a few MiB. The row whose last failure is oldest is dropped first."""

UNAVAILABLE_RETRY_S = 3.0
"""`Retry-After` of an answer with 503: the database is away, or the master stops."""

RETRY_AFTER_S = 1.0
"""`Retry-After` of a limit that passes by itself."""

# -------------------------------------------------------------------------------------------------------- connections

MAX_CONNECTIONS = 30_000
"""Open connections; fewer where the process may open fewer files. A further one replaces the oldest unauthenticated connection of
the address with the most of them. When all are authenticated, it gets a 503."""

SPARE_FILES = 256
"""Files that the master needs besides connections: its database, its logs, its own calls."""

HANDSHAKE_S = 10.0
"""A TLS handshake that takes longer is aborted."""

TLS_SHUTDOWN_S = 5.0
"""Time for the peer to acknowledge the end of a TLS connection."""

HEAD_S = 30.0
"""A connection that has not sent the head of its first request after this time is closed."""

IDLE_S = 75.0
"""An idle connection is kept this long for its next request."""

UNREAD_S = 60.0
"""A connection that reads nothing of a waiting answer or stream for this long is closed."""

SWEEP_S = 5.0
"""Interval between checks of the connections."""

MAX_REQUEST_LINE_BYTES = 16 * 1024
"""Method, path and query: lists filter by hundreds of ids."""

MAX_HEADER_BYTES = 16 * 1024
"""One header field, the token in it included."""

# -------------------------------------------------------------------------------------------------------------- lists

MAX_PAGE_ROWS = 5_000
"""Rows of one page, also of a call for all rows: `pagination.endIndex` gives the start of the next one."""

MAX_LOG_TAIL = 20_000
"""Lines of a log that is read backwards: they are sent when the last one is known. Reading forwards has no limit."""

# -------------------------------------------------------------------------------------------------------------- texts

MAX_LOG_LINES_PER_POST = 20_000
"""Lines of one POST; shippers of the contract send a thousand, or what was written at once."""

MAX_LINE_LENGTH = 64 * 1024
"""Characters of one posted line; the rest of a longer one becomes the next line."""

MAX_GROUP_LENGTH = 256
"""Name of a group of metrics."""

MAX_METRIC_NAMES = 10_000
"""Metrics of one report: more than one for each layer of a large model."""

MAX_METRIC_NAME_LENGTH = 1_024
"""Name of a metric."""

MAX_TRIALS_PER_STREAM = 500
"""Trials whose metrics are read with one call."""

MAX_FILES = 20_000
"""Files and directories of one context."""

MAX_PATH_BYTES = 1_024
"""Path of one of them, as bytes: what every file system and every archive takes."""

MAX_SEARCH_LENGTH = 1_000
"""Text or expression of a log search: each line is compared with it."""

# -------------------------------------------------------------------------------------------------------- experiments

MAX_CONFIG_BYTES = 256 * 1024
"""Text of a configuration: parsing YAML delays all other callers."""

MAX_WORD_BYTES = 120 * 1024
"""One environment variable, or the command of an experiment: Linux limits a single argument to 128 KiB."""

MAX_NAME_LENGTH = 256
"""Name of an experiment; it is in every list."""

MAX_DESCRIPTION_LENGTH = 4_096
"""Its description."""

MAX_NOTES_LENGTH = 65_536
"""Its notes, which are a document."""

MAX_LABEL_LENGTH = 256
"""One label of an experiment."""

MAX_TRIALS = 100_000
"""Trials of one search: their state is in memory until the search has ended."""

MAX_TRIALS_AT_ONCE = 2_000
"""Trials that one search creates together: they are created in one cycle of the engine."""

# ------------------------------------------------------------------------------------------------------------ charts

MAX_DATAPOINTS = 10_000
"""Points of one series: more than a screen has columns."""

MAX_METRICS_OF_SERIES = 100
"""Names of metrics of one call for series: more than a chart has lines."""

MAX_SAMPLED_TRIALS = 500
"""Trials of a sample."""

MAX_STREAM_PERIOD_S = 3_600
"""Interval between two polls of a stream of metrics."""
