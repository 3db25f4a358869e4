"""The chunks of metric reports beside COPY: the last chunk of each series is remembered, so that a batch need not read it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import asyncpg

from resolute_master.domain.metrics import MetricReport
from resolute_master.store import metric_chunks, metric_rows
from resolute_master.store.metric_chunks import Chunk
from resolute_master.store.sql import tables
from resolute_master.store.sql.chunk_rows import Key, chunk_values
from resolute_master.store.sql.postgres_rows import array_type, as_arrays, columns_of

REMEMBERED_SERIES = 10_000
"""Some kilobytes each, more for reports with many names; for more series, their last chunks are read again."""

Changed = Mapping[Key, Sequence[Chunk]]


class LastChunks:
    """Cache of the last chunk of each trial and group, in order of use."""

    def __init__(self) -> None:
        self._last: OrderedDict[Key, Chunk | None] = OrderedDict()
        """None for a series of which there is none."""

    def forget(self, reports: Sequence[MetricReport]) -> None:
        """Their trials were changed another way: of each all groups, for a newer run takes rows out of all of them."""
        trials = {report.trial_id for report in reports}
        for key in [key for key in self._last if key[0] in trials]:
            del self._last[key]

    async def after(self, connection: asyncpg.Connection, reports: Sequence[MetricReport]) -> Changed | None:
        """The chunks that change when these reports are stored; None when some do not follow what is there."""
        series = {
            key: of_key
            for key, of_key in metric_chunks.by_group(reports).items()
            if key[1] not in metric_rows.SYSTEM_GROUPS
        }
        known = {key: self._last[key] for key in series if key in self._last}
        known |= await _read(connection, [key for key in series if key not in known])
        if not all(metric_chunks.in_order(known[key], of_key) for key, of_key in series.items()):
            return None
        return {key: metric_chunks.extended(known[key], of_key) for key, of_key in series.items()}

    def remember(self, changed: Changed) -> None:
        """They are stored."""
        for key, chunks in changed.items():
            self._last[key] = chunks[-1]
            self._last.move_to_end(key)
        while len(self._last) > REMEMBERED_SERIES:
            self._last.popitem(last=False)


async def put_chunks(connection: asyncpg.Connection, changed: Changed) -> None:
    """Within the transaction of the rows that they are of."""
    rows = [chunk_values(key, chunk) for key, chunks in changed.items() for chunk in chunks]
    if rows:
        await connection.execute(_UPSERT, *as_arrays(tables.metric_chunks, rows))


async def _read(connection: asyncpg.Connection, keys: Sequence[Key]) -> dict[Key, Chunk | None]:
    found: dict[Key, Chunk | None] = dict.fromkeys(keys)
    if not keys:
        return found
    for row in await connection.fetch(_LAST, [trial for trial, _ in keys], [group for _, group in keys]):
        found[row["trial_id"], row["metric_group"]] = Chunk(
            first_step=row["first_step"],
            last_step=row["last_step"],
            reports=row["reports"],
            preceding=row["preceding"],
            names=metric_chunks.from_text(row["body"]),
        )
    return found


_COLUMNS = columns_of(tables.metric_chunks)
_KEY = [column.name for column in tables.metric_chunks.primary_key]
_UPSERT = (
    f"INSERT INTO metric_chunks ({', '.join(column.name for column in _COLUMNS)}) "
    f"SELECT * FROM unnest({', '.join(f'${number}::{array_type(column)}' for number, column in enumerate(_COLUMNS, 1))}) "
    f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET "
    + ", ".join(f"{column.name} = excluded.{column.name}" for column in _COLUMNS if column.name not in _KEY)
)
_LAST = (
    "SELECT c.* FROM unnest($1::bigint[], $2::text[]) AS asked(trial, name), LATERAL (SELECT * FROM metric_chunks m "
    "WHERE m.trial_id = asked.trial AND m.metric_group = asked.name ORDER BY m.first_step DESC LIMIT 1) c"
)
