"""How a night's pairs join those that lie in files: few changes of a big day beside its files, else the day anew.

A changed pair lies in any day, and a Parquet file is written whole: where some pairs in a thousand change in all days,
writing these days again would cost as much as writing all pairs.
"""

from typing import NamedTuple

import duckdb

from darklode.pipeline.base.artifacts import Output, Part, Tables
from darklode.pipeline.base.relations import Relation, drop, materialize, view
from darklode.schemas.mined_tables import MINED_PAIRS
from darklode.schemas.tables import TABLES

SMALL_DAY = 512
"""A day of fewer pairs is written anew whenever one changes: that costs no more than to read what lies beside it."""

COLUMNS = ", ".join(MINED_PAIRS.schema.names)
KEY = ", ".join(MINED_PAIRS.dated_key)

BEFORE = "FROM {earlier} SEMI JOIN {wanted} USING (tenant, query_id)"
CAME = f"SELECT {COLUMNS} FROM {{pairs}} EXCEPT ALL SELECT {COLUMNS} FROM {{before}}"
WENT = f"SELECT {KEY} FROM (SELECT {COLUMNS} FROM {{before}} EXCEPT ALL SELECT {COLUMNS} FROM {{pairs}})"

CHANGED = f"SELECT {COLUMNS} FROM {{changed}} ANTI JOIN {{went}} USING ({KEY}) UNION ALL SELECT {COLUMNS} FROM {{came}}"
REMOVED = f"FROM {{removed}} UNION ALL SELECT {KEY} FROM {{went}} ANTI JOIN {{changed}} USING ({KEY})"

BY_DAY = """
    SELECT CAST(date AS VARCHAR), count(*) FROM (SELECT date FROM {changed} UNION ALL SELECT date FROM {removed})
    GROUP BY date
"""

ANEW = f"""
    SELECT {COLUMNS} FROM that_day ANTI JOIN {{removed}} USING ({KEY})
    UNION ALL SELECT {COLUMNS} FROM {{changed}} WHERE date = CAST($day AS DATE)
    ORDER BY {KEY}
"""

BESIDE = "SELECT {columns} FROM {rows} WHERE NOT list_contains($anew, CAST(date AS VARCHAR)) ORDER BY date, {key}"


class Patch(NamedTuple):
    """What the days' files lack and what they hold too much, as in the tables of these names."""

    changed: Relation
    removed: Relation


def write_all(connection: duckdb.DuckDBPyConnection, output: Output, pairs: Relation) -> None:
    """Write pairs, a folder a day."""
    nothing = materialize(connection, f"SELECT {KEY} FROM {{pairs}} LIMIT 0", pairs=pairs)
    _write(connection, output, Tables.empty(MINED_PAIRS.name), Patch(pairs, nothing), share=0)


def write_changes(
    connection: duckdb.DuckDBPyConnection,
    output: Output,
    previous: Tables,
    *,
    query_relation: Relation,
    pairs: Relation,
    share: float,
) -> None:
    """Write what came and went; days in which little changed keep their files.

    Args:
        connection: holds the relations.
        output: takes `mined_pairs` and its patch.
        previous: the pairs that were written before.
        query_relation: the queries that were looked at again: tenant and query_id.
        pairs: all of theirs.
        share: a day is written anew once its patch is more than this share of its files' rows.
    """
    earlier = view(connection, previous, MINED_PAIRS.name)
    before = materialize(connection, BEFORE, earlier=earlier, wanted=query_relation)
    came, went = (materialize(connection, sql, before=before, pairs=pairs) for sql in (CAME, WENT))
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
    anew = [day for day, rows in changes.items() if rows > _max_changes(days.get(day, []), share)]
    for day in sorted({*days, *anew}):
        if day in anew:
            previous.with_parts(MINED_PAIRS.name, days.get(day, [])).view(connection, "that_day", MINED_PAIRS.name)
            output.write_answer(MINED_PAIRS.name, connection, ANEW.format(**patch._asdict()), {"day": day}, day)
        else:
            for part in days[day]:
                output.reuse_part(MINED_PAIRS.name, part)
        output.progress(sum(part.rows for part in output.parts[MINED_PAIRS.name]), None, day)
    for name, rows in ((MINED_PAIRS.changed_column, patch.changed), (MINED_PAIRS.removed_column, patch.removed)):
        columns = ", ".join(TABLES[name].schema.names)
        output.write_answer(name, connection, BESIDE.format(columns=columns, rows=rows, key=KEY), {"anew": anew})


def _max_changes(parts: list[Part], share: float) -> float:
    """How many changes may lie beside a day's files."""
    rows = sum(part.rows for part in parts)
    return share * rows if rows >= SMALL_DAY else 0
