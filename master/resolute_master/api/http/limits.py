"""What a caller may make this master do at once: requests, connections, bodies. `docs/limits.md` is made from it."""

from __future__ import annotations

# ------------------------------------------------------------------------------------------------------------ bodies

MAX_UPLOAD_BYTES = 128 * 1024 * 1024
"""Body of a call that carries a context directory: 95 MiB of files are 127 MiB in base64."""

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Body of every other call: metrics of a batch, a thousand lines of a log."""

MAX_PUBLIC_BODY_BYTES = 64 * 1024
"""Body of a call that needs no token: who is not known may not fill memory."""

MAX_BODIES_BYTES = 2 * MAX_UPLOAD_BYTES
"""Bodies larger than `LARGE_BODY_BYTES` that are held at once, all together. More wait unread, in their sockets."""

MAX_BODIES_BYTES_PER_CALLER = MAX_UPLOAD_BYTES
"""Of them, those of one person or task: what one sends slowly never keeps the others from sending."""

LARGE_BODY_BYTES = 1024 * 1024
"""Smaller bodies are not counted: a thousand of them are one upload or two."""

BODY_WAIT_S = 60.0
"""A large body that has waited for so long is refused with 503: its caller may try again."""

BODY_FIRST_S = 30.0
"""A body has so long, and a second more for each `BODY_BYTES_PER_S` that have come: who sends slower holds a place for nothing."""

PUBLIC_BODY_FIRST_S = 10.0
"""The same of a call without a token, whose body is small."""

MAX_UNREAD_PUBLIC_BODIES = 1_000
"""Bodies of calls without a token that have not come to their end: at most 64 MiB. They hold no place among the public requests.
One more takes the place of the oldest of the address that has the most."""

BODY_BYTES_PER_S = 32 * 1024
"""The slowest upload that is waited for: a mobile connection."""

MAX_JSON_VALUES = 1_000_000
"""Values (about: commas and opening brackets) of one body: as objects they take many times the room of their text."""

MAX_JSON_DEPTH = 100
"""Lists and objects within each other: what is stored must also be shown again, by code that calls itself."""

# ---------------------------------------------------------------------------------------------------------- requests

MAX_REQUESTS_PER_USER = 1_000
"""Requests of one person at once, followed logs included. What that person's tasks report is not in it."""

MAX_REQUESTS_PER_CONTAINER = 32
"""Requests of one task at once, for each of its containers: its polls, its barrier, its reports."""

MAX_PUBLIC_REQUESTS = 500
"""Requests without a token at once, all together, their bodies read. An address that has none among them still gets one."""

MAX_PUBLIC_REQUESTS_PER_ADDRESS = 100
"""Of them, so many from one address; an IPv6 network of 64 bits counts as one address."""

MAX_FIRST_PUBLIC_REQUESTS = 500
"""Further ones, beyond `MAX_PUBLIC_REQUESTS`, one for each address that has no other."""

FAILED_LOGINS = 5
"""Failed logins of a user from one address before that pair has to pause."""

FAILED_LOGINS_OF_ADDRESS = 100
"""Failed logins from one address, whatever the names, before all of them have to pause, save users who have been in from there."""

FAILED_LOGINS_OF_USER = 100
"""Failed logins of one user from all addresses after which each address that the user has not logged in from has
`FAILED_LOGINS_ATTACKED` tries. None is ever refused its first."""

FAILED_LOGINS_ATTACKED = 1
"""Failed logins before the pause, for a user who is attacked from many addresses."""

FIRST_LOGIN_PAUSE_S = 1.0
"""The first pause after too many failed logins; each further failure doubles it."""

LONGEST_LOGIN_PAUSE_S = 60.0
"""The longest pause between two failed logins."""

FORGET_FAILURES_S = 900.0
"""Failures are forgotten so long after the last of them."""

REMEMBERED_LOGINS = 10_000
"""Rows of each table of failed logins: a few MiB. What has not failed for longest is forgotten first."""

RETRY_AFTER_S = 1.0
"""Who met a limit that passes by itself is told to come again after so long."""

# -------------------------------------------------------------------------------------------------------- connections

MAX_CONNECTIONS = 30_000
"""Open connections; fewer where the process may open fewer files. A further one takes the place of the oldest on which no caller
is known, of the address with the most of them; when all callers are known, it gets a 503."""

SPARE_FILES = 256
"""Files that the master needs besides connections: its database, its logs, its own calls."""

HANDSHAKE_S = 10.0
"""A TLS handshake that has not come to its end after so long is given up."""

TLS_SHUTDOWN_S = 5.0
"""A caller has so long to say that it has heard the end of a TLS connection."""

HEAD_S = 30.0
"""A connection that has not sent the head of its first request after so long is closed."""

IDLE_S = 75.0
"""A connection without a request is kept so long, for the next one."""

UNREAD_S = 60.0
"""A caller who takes nothing of an answer or stream for so long, while more of it waits, is cut off."""

SWEEP_S = 5.0
"""Connections are looked at so often."""

MAX_REQUEST_LINE_BYTES = 16 * 1024
"""Method, path and query: lists filter by hundreds of ids."""

MAX_HEADER_BYTES = 16 * 1024
"""One header field, the token in it included."""

# -------------------------------------------------------------------------------------------------------------- lists

MAX_PAGE_ROWS = 5_000
"""Rows of one page, also of a call that asks for all: `pagination.endIndex` says where the next one begins."""

MAX_LOG_TAIL = 20_000
"""Lines of a log that are read backwards: they are sent when the last one is known. Forwards there is no limit."""

# -------------------------------------------------------------------------------------------------------------- texts

MAX_LOG_LINES_PER_POST = 20_000
"""Lines of one POST; shippers of the contract send a thousand, or what was written at once."""

MAX_LINE_LENGTH = 64 * 1024
"""Characters of one posted line; a longer one goes on as the next."""

MAX_GROUP_LENGTH = 256
"""Name of a group of metrics."""

MAX_METRIC_NAMES = 10_000
"""Metrics of one report: one for each layer of a large model and to spare."""

MAX_METRIC_NAME_LENGTH = 1_024
"""Name of a metric."""

MAX_TRIALS_PER_STREAM = 500
"""Trials whose metrics are read with one call."""

MAX_FILES = 20_000
"""Files and directories of one context."""

MAX_PATH_BYTES = 1_024
"""Path of one of them, as bytes: what every file system and every archive takes."""

MAX_SEARCH_LENGTH = 1_000
"""Text or expression that a log is searched for: each line is compared with it."""

# -------------------------------------------------------------------------------------------------------- experiments

MAX_CONFIG_BYTES = 256 * 1024
"""Text of a configuration: nobody else is served well while YAML of such a size is read."""

MAX_WORD_BYTES = 120 * 1024
"""One environment variable, or the command of an experiment: Linux executes no program that is given 128 KiB in one piece."""

MAX_NAME_LENGTH = 256
"""Name of an experiment; it is in every list."""

MAX_DESCRIPTION_LENGTH = 4_096
"""Its description."""

MAX_NOTES_LENGTH = 65_536
"""Its notes, which are a document."""


MAX_LABEL_LENGTH = 256
"""One label of an experiment."""

MAX_TRIALS = 100_000
"""Trials of one search: what it keeps of each is in memory until it has ended."""

MAX_TRIALS_AT_ONCE = 2_000
"""Trials that one search begins together: they are made in one cycle of the engine."""

# ------------------------------------------------------------------------------------------------------------ charts

MAX_DATAPOINTS = 10_000
"""Points of one series: more than a screen has columns."""

MAX_METRICS_OF_SERIES = 100
"""Names of metrics of one call for series: more than a chart has lines."""

MAX_SAMPLED_TRIALS = 500
"""Trials of a sample."""

MAX_STREAM_PERIOD_S = 3_600
"""The pause between two looks of a stream of metrics."""
