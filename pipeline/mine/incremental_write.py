"""Write changed pairs: small changes to a day go to a patch beside its files, larger ones rewrite the day.

A nightly run changes a few pairs of many days. Parquet files are immutable, so rewriting every such day would cost as
much as writing all pairs.
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

CHANGED = f"SELECT {COLUMNS} FROM {{changed}} ANTI JOIN {{went}} USING ({KEY}) UNION ALL SELECT {COLUMNS} FROM {{came}}"
REMOVED = f"FROM {{removed}} UNION ALL SELECT {KEY} FROM {{went}} ANTI JOIN {{changed}} USING ({KEY})"

BY_DAY = """
    SELECT CAST(date AS VARCHAR), count(*) FROM (SELECT date FROM {changed} UNION ALL SELECT date FROM {removed})
    GROUP BY date
"""

REWRITTEN_DAY = f"""
    SELECT {COLUMNS} FROM that_day ANTI JOIN {{removed}} USING ({KEY})
    UNION ALL SELECT {COLUMNS} FROM {{changed}} WHERE date = CAST($day AS DATE)
    ORDER BY {KEY}
"""

PATCH = "SELECT {columns} FROM {rows} WHERE NOT list_contains($anew, CAST(date AS VARCHAR)) ORDER BY date, {key}"


class Patch(NamedTuple):
    """Rows to add to the days' files and keys to remove from them."""

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
        connection: has the relations.
        output: `mined_pairs` and its patch.
        previous: the pairs of the last run.
        recomputed_queries: tenant and query_id.
        pairs: all pairs of these queries.
        share: a day is rewritten if its patch exceeds this share of its files' rows.
    """
    earlier = view(connection, previous, MINED_PAIRS.name)
    before = materialize(connection, PAIRS_BEFORE, earlier=earlier, wanted=recomputed_queries)
    came, went = (materialize(connection, sql, before=before, pairs=pairs) for sql in (ADDED, GONE))
    old = Patch(
        view(connection, previous, MINED_PAIRS.changed_column), view(connection, previous, MINED_PAIRS.removed_column)
    )
    changed = materialize(connection, CHANGED, changed=old.changed, went=went, came=came)
    removed = materialize(connection, REMOVED, removed=old.removed, changed=old.changed, went=went)
    drop(connection, before, came, went)
    _write(connection, output, previous, Patch(changed, removed), share=share)


def _write(
    connection: duckdb.DuckDBPyConnection, output: Output, previous: Tables, patch: Patch, *, share: float
) -> None:
    days = previous.by_day(MINED_PAIRS.name)
    changes = dict(connection.sql(BY_DAY.format(**patch._asdict())).fetchall())
    rewritten = [day for day, rows in changes.items() if rows > _max_changes(days.get(day, []), share)]
    for day in sorted({*days, *rewritten}):
        if day in rewritten:
            previous.with_parts(MINED_PAIRS.name, days.get(day, [])).view(connection, "that_day", MINED_PAIRS.name)
            output.write_answer(
                MINED_PAIRS.name, connection, REWRITTEN_DAY.format(**patch._asdict()), {"day": day}, day
            )
        else:
            for part in days[day]:
                output.reuse_part(MINED_PAIRS.name, part)
        output.progress(sum(part.rows for part in output.parts[MINED_PAIRS.name]), None, day)
    for name, rows in ((MINED_PAIRS.changed_column, patch.changed), (MINED_PAIRS.removed_column, patch.removed)):
        columns = ", ".join(TABLES[name].schema.names)
        output.write_answer(name, connection, PATCH.format(columns=columns, rows=rows, key=KEY), {"anew": rewritten})


def _max_changes(parts: list[Part], share: float) -> float:
    """Maximum number of changes in a day's patch."""
    rows = sum(part.rows for part in parts)
    return share * rows if rows >= SMALL_DAY else 0
