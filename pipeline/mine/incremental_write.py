"""Write changed pairs: small changes to a day go to a patch beside its files, larger ones rewrite the day.

A nightly run changes a few pairs of many days. A Parquet file can only be written whole, so rewriting every such day
would cost as much as writing all pairs.
"""

from typing import NamedTuple

import duckdb

from darklode.pipeline.base.artifacts import Output, Part, Tables
from darklode.pipeline.base.relations import Relation, drop, materialize, view
from darklode.schemas.mined_tables import MINED_PAIRS
from darklode.schemas.tables import TABLES

SMALL_DAY = 512
"""A day with fewer pairs is rewritten for any change: that is as cheap as reading a patch."""

COLUMNS = ", ".join(MINED_PAIRS.schema.names)
KEY = ", ".join(MINED_PAIRS.dated_key)

PAIRS_BEFORE = "FROM {earlier} SEMI JOIN {wanted} USING (tenant, query_id)"
ADDED = f"SELECT {COLUMNS} FROM {{pairs}} EXCEPT ALL SELECT {COLUMNS} FROM {{before}}"
GONE = f"SELECT {KEY} FROM (SELECT {COLUMNS} FROM {{before}} EXCEPT ALL SELECT {COLUMNS} FROM {{pairs}})"

CHANGED = f"""
    SELECT {COLUMNS} FROM {{changed}} ANTI JOIN {{gone}} USING ({KEY}) UNION ALL SELECT {COLUMNS} FROM {{added}}
"""
REMOVED = f"FROM {{removed}} UNION ALL SELECT {KEY} FROM {{gone}} ANTI JOIN {{changed}} USING ({KEY})"

BY_DAY = """
    SELECT CAST(date AS VARCHAR), count(*) FROM (SELECT date FROM {changed} UNION ALL SELECT date FROM {removed})
    GROUP BY date
"""

REWRITTEN_DAY = f"""
    SELECT {COLUMNS} FROM that_day ANTI JOIN {{removed}} USING ({KEY})
    UNION ALL SELECT {COLUMNS} FROM {{changed}} WHERE date = CAST($day AS DATE)
    ORDER BY {KEY}
"""

PATCH = "SELECT {columns} FROM {rows} WHERE NOT list_contains($rewritten, CAST(date AS VARCHAR)) ORDER BY date, {key}"


class Patch(NamedTuple):
    """The difference between the days' files and the pairs.

    Attributes:
        changed: rows to add, in the columns of `mined_pairs`.
        removed: keys of rows of the files that no longer count.
    """

    changed: Relation
    removed: Relation


def write_all(connection: duckdb.DuckDBPyConnection, output: Output, pairs: Relation) -> None:
    """Write all pairs, one folder per day."""
    nothing = materialize(connection, f"SELECT {KEY} FROM {{pairs}} LIMIT 0", pairs=pairs)
    _write(connection, output, Tables.empty(MINED_PAIRS.name), Patch(pairs, nothing), share=0)


def write_changes(
    connection: duckdb.DuckDBPyConnection,
    output: Output,
    previous: Tables,
    *,
    recomputed_queries: Relation,
    pairs: Relation,
    share: float,
) -> None:
    """Write added and removed pairs; days with few changes keep their files and get a patch.

    Args:
        connection: a connection that holds the relations.
        output: receives `mined_pairs` and its patch.
        previous: the files and the patch of the last run.
        recomputed_queries: the queries whose pairs were made again: tenant and query_id.
        pairs: all present pairs of these queries; earlier pairs that are missing here are removed.
        share: a day is rewritten if its patch exceeds this share of its files' rows.
    """
    earlier = view(connection, previous, MINED_PAIRS.name)
    before = materialize(connection, PAIRS_BEFORE, earlier=earlier, wanted=recomputed_queries)
    added_rows = materialize(connection, ADDED, before=before, pairs=pairs)
    gone_keys = materialize(connection, GONE, before=before, pairs=pairs)
    previous_patch = Patch(
        changed=view(connection, previous, MINED_PAIRS.changed_column),
        removed=view(connection, previous, MINED_PAIRS.removed_column),
    )
    changed = materialize(connection, CHANGED, changed=previous_patch.changed, gone=gone_keys, added=added_rows)
    removed = materialize(
        connection, REMOVED, removed=previous_patch.removed, changed=previous_patch.changed, gone=gone_keys
    )
    drop(connection, before, added_rows, gone_keys)
    _write(connection, output, previous, Patch(changed, removed), share=share)


def _write(
    connection: duckdb.DuckDBPyConnection, output: Output, previous: Tables, patch: Patch, *, share: float
) -> None:
    """Write all days: rewrite those whose patch is too large, reuse the files of the others."""
    parts_by_day = previous.by_day(MINED_PAIRS.name)
    n_changes_by_day = dict(connection.sql(BY_DAY.format(**patch._asdict())).fetchall())
    rewritten_days = [
        day for day, n_changes in n_changes_by_day.items() if n_changes > _max_changes(parts_by_day.get(day, []), share)
    ]
    for day in sorted({*parts_by_day, *rewritten_days}):
        if day in rewritten_days:
            files_of_day = previous.with_parts(MINED_PAIRS.name, parts_by_day.get(day, []))
            files_of_day.view(connection, "that_day", MINED_PAIRS.name)
            output.write_answer(
                MINED_PAIRS.name, connection, REWRITTEN_DAY.format(**patch._asdict()), {"day": day}, day
            )
        else:
            for part in parts_by_day[day]:
                output.reuse_part(MINED_PAIRS.name, part)
        output.progress(sum(part.rows for part in output.parts[MINED_PAIRS.name]), None, day)
    # The patch keeps the changes of days that were not rewritten.
    for name, rows in ((MINED_PAIRS.changed_column, patch.changed), (MINED_PAIRS.removed_column, patch.removed)):
        columns = ", ".join(TABLES[name].schema.names)
        patch_sql = PATCH.format(columns=columns, rows=rows, key=KEY)
        output.write_answer(name, connection, patch_sql, {"rewritten": rewritten_days})


def _max_changes(parts: list[Part], share: float) -> float:
    """Maximum number of changes of a day that go to the patch; 0 for a small day, which is always rewritten."""
    n_rows = sum(part.rows for part in parts)
    return share * n_rows if n_rows >= SMALL_DAY else 0
