"""Write changed pairs: small changes to a day go to a patch beside its files, larger ones rewrite the day.

A nightly run changes a few pairs of many days. A Parquet file can only be written whole, so rewriting every such day
would cost as much as writing all pairs.
"""

from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import duckdb

from darklode.pipeline.base.artifacts import Output, Part, Tables
from darklode.pipeline.base.artifacts.output import RESULT_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.pipeline.base.relations import Relation, drop, materialize, view
from darklode.pipeline.mine.days import by_date
from darklode.schemas.mined_tables import MINED_PAIRS
from darklode.schemas.tables import TABLES

MIN_PATCHED_DAY_ROWS = 512
"""A day with fewer pairs is rewritten for any change: that is as cheap as reading a patch (not measured)."""

PAIR_COLUMNS = ", ".join(MINED_PAIRS.schema.names)
PAIR_KEY = ", ".join(MINED_PAIRS.dated_key)

# The last run's pairs of the recomputed queries; how the present ones differ: rows added, and keys of rows gone.
EARLIER_PAIRS_SQL = "FROM {all_earlier} SEMI JOIN {recomputed_queries} USING (tenant, query_id)"
ADDED_PAIRS_SQL = f"SELECT {PAIR_COLUMNS} FROM {{pairs}} EXCEPT ALL SELECT {PAIR_COLUMNS} FROM {{earlier_pairs}}"
GONE_KEYS_SQL = f"""
    SELECT {PAIR_KEY}
    FROM (SELECT {PAIR_COLUMNS} FROM {{earlier_pairs}} EXCEPT ALL SELECT {PAIR_COLUMNS} FROM {{pairs}})
"""

# The new patch: the last run's patch without rows that are gone, and the rows added.
PATCH_CHANGED_SQL = f"""
    SELECT {PAIR_COLUMNS} FROM {{changed}} ANTI JOIN {{gone_keys}} USING ({PAIR_KEY})
    UNION ALL SELECT {PAIR_COLUMNS} FROM {{added_rows}}
"""
PATCH_REMOVED_SQL = (
    f"FROM {{removed}} UNION ALL SELECT {PAIR_KEY} FROM {{gone_keys}} ANTI JOIN {{changed}} USING ({PAIR_KEY})"
)

CHANGES_BY_DAY_SQL = """
    SELECT CAST(date AS VARCHAR), count(*) FROM (SELECT date FROM {changed} UNION ALL SELECT date FROM {removed})
    GROUP BY date
"""

REWRITTEN_DAYS_SQL = f"""
    SELECT {PAIR_COLUMNS} FROM {{files}} ANTI JOIN {{removed}} USING ({PAIR_KEY})
    UNION ALL SELECT {PAIR_COLUMNS} FROM {{changed}} WHERE list_contains($days, CAST(date AS VARCHAR))
    ORDER BY date, {PAIR_KEY}
"""

REMAINING_PATCH_SQL = (
    "SELECT {columns} FROM {rows} WHERE NOT list_contains($rewritten, CAST(date AS VARCHAR)) ORDER BY date, {key}"
)


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
    nothing = materialize(connection, f"SELECT {PAIR_KEY} FROM {{pairs}} LIMIT 0", pairs=pairs)
    _write_days(connection, output, Tables.empty(MINED_PAIRS.name), Patch(pairs, nothing), share=0)


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
    all_earlier = view(connection, previous, MINED_PAIRS.name)
    earlier_pairs = materialize(
        connection, EARLIER_PAIRS_SQL, all_earlier=all_earlier, recomputed_queries=recomputed_queries
    )
    added_rows = materialize(connection, ADDED_PAIRS_SQL, earlier_pairs=earlier_pairs, pairs=pairs)
    gone_keys = materialize(connection, GONE_KEYS_SQL, earlier_pairs=earlier_pairs, pairs=pairs)
    previous_patch = Patch(
        changed=view(connection, previous, MINED_PAIRS.changed_column),
        removed=view(connection, previous, MINED_PAIRS.removed_column),
    )
    changed = materialize(
        connection, PATCH_CHANGED_SQL, changed=previous_patch.changed, gone_keys=gone_keys, added_rows=added_rows
    )
    removed = materialize(
        connection,
        PATCH_REMOVED_SQL,
        removed=previous_patch.removed,
        changed=previous_patch.changed,
        gone_keys=gone_keys,
    )
    drop(connection, earlier_pairs, added_rows, gone_keys)
    _write_days(connection, output, previous, Patch(changed, removed), share=share)


def _write_days(
    connection: duckdb.DuckDBPyConnection, output: Output, previous: Tables, patch: Patch, *, share: float
) -> None:
    """Write all days: rewrite those whose patch is too large, reuse the files of the others."""
    parts_by_day = previous.by_day(MINED_PAIRS.name)
    n_changes_by_day = dict(connection.sql(CHANGES_BY_DAY_SQL.format(**patch._asdict())).fetchall())
    rewritten_days = [
        day for day, n_changes in n_changes_by_day.items() if n_changes > _max_changes(parts_by_day.get(day, []), share)
    ]
    old_parts = [part for day in rewritten_days for part in parts_by_day.get(day, [])]
    files = view(connection, previous.with_parts(MINED_PAIRS.name, old_parts), MINED_PAIRS.name)
    rewritten_sql = REWRITTEN_DAYS_SQL.format(**patch._asdict(), files=files)
    reader = connection.sql(rewritten_sql, params={"days": rewritten_days}).to_arrow_reader(TABLE_GROUP_ROWS)
    rows_by_day = groupby(by_date(reader), itemgetter(0))
    rewritten = next(rows_by_day, None)
    for day in sorted({*parts_by_day, *rewritten_days}):
        if day in rewritten_days:
            if rewritten and rewritten[0].isoformat() == day:  # all pairs of a day may be gone
                with output.row_group_writer(MINED_PAIRS.name, RESULT_ROWS, day) as write_rows:
                    for _, rows in rewritten[1]:
                        write_rows(rows.cast(MINED_PAIRS.schema))
                rewritten = next(rows_by_day, None)
        else:
            for part in parts_by_day[day]:
                output.reuse_part(MINED_PAIRS.name, part)
        output.progress(sum(part.rows for part in output.parts[MINED_PAIRS.name]), None, day)
    # The patch keeps the changes of days that were not rewritten.
    for name, rows in ((MINED_PAIRS.changed_column, patch.changed), (MINED_PAIRS.removed_column, patch.removed)):
        columns = ", ".join(TABLES[name].schema.names)
        patch_sql = REMAINING_PATCH_SQL.format(columns=columns, rows=rows, key=PAIR_KEY)
        output.write_answer(name, connection, patch_sql, {"rewritten": rewritten_days})


def _max_changes(parts: list[Part], share: float) -> float:
    """Maximum number of changes of a day that go to the patch; 0 for a small day, which is always rewritten."""
    n_rows = sum(part.rows for part in parts)
    return share * n_rows if n_rows >= MIN_PATCHED_DAY_ROWS else 0
