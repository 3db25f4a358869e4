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

LARGE_BODY_BYTES = 1024 * 1024
"""Smaller bodies are not counted: a thousand of them are one upload or two."""

BODY_WAIT_S = 60.0
"""A large body that has waited for so long is refused with 503: its caller may try again."""

BODY_FIRST_S = 30.0
"""A body has so long, and a second more for each `BODY_BYTES_PER_S`: who sends slower holds a place for nothing."""

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
"""Requests without a token at once, from everybody: a login waits for the hashes of those before it."""

RETRY_AFTER_S = 1.0
"""Who met a limit that passes by itself is told to come again after so long."""

# -------------------------------------------------------------------------------------------------------- connections

MAX_CONNECTIONS = 30_000
"""Open connections; fewer where the process may open fewer files. Further ones get a 503."""

SPARE_FILES = 256
"""Files that the master needs besides connections: its database, its logs, its own calls."""

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

MAX_NAME_LENGTH = 256
"""Name of an experiment; it is in every list."""

MAX_DESCRIPTION_LENGTH = 4_096
"""Its description."""

MAX_NOTES_LENGTH = 65_536
"""Its notes, which are a document."""


MAX_LABEL_LENGTH = 256
"""One label of an experiment."""

MAX_TRIALS = 100_000
"""Trials of one search: what is to be tried is kept until the search has ended."""

MAX_TRIALS_AT_ONCE = 2_000
"""Trials that one search begins together: they are made in one cycle of the engine."""
