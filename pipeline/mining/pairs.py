"""From evidence and associations to pairs: a night looks again only at the queries that its evidence touched."""

from collections.abc import Mapping, Sequence

import duckdb

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.artifacts.tables import pieces
from pipeline.mining.days import Days, digests
from pipeline.mining.multi_hop import multi_hop, needed
from pipeline.mining.one_hop import OneHop
from pipeline.mining.touched import everything, news_of, touched
from schemas.tables import TABLES

PAIRS_STAGE = Stage(
    "mined_pairs", 1, ("click_evidence", "log_queries", "relevance_evidence", "associations"), ("mined_pairs",)
)

ROWS = 1 << 19

COLUMNS = ", ".join(TABLES["mined_pairs"].schema.names)

CHANGED_DAYS = f"""
    WITH before AS (FROM earlier SEMI JOIN wanted USING (tenant, query_id)),
    changed AS (
        (SELECT {COLUMNS} FROM before EXCEPT ALL SELECT {COLUMNS} FROM fresh)
        UNION ALL (SELECT {COLUMNS} FROM fresh EXCEPT ALL SELECT {COLUMNS} FROM before)
    )
    SELECT DISTINCT CAST(date AS VARCHAR) FROM changed
"""

PAIRS_OF_A_DAY = f"""
    SELECT {COLUMNS} FROM earlier ANTI JOIN wanted USING (tenant, query_id) WHERE date = CAST($day AS DATE)
    UNION ALL SELECT {COLUMNS} FROM fresh WHERE date = CAST($day AS DATE)
    ORDER BY tenant, query_id, positive_id
"""


def mined_pairs(
    tables: Tables, output: Output, hop: OneHop, *, most: int, contains: Mapping[str, Sequence[str]]
) -> None:
    """Pair each query with its positives by click and relevance, its own and those lent to it.

    What the stage wrote before is kept for queries that nothing has touched since; the pairs are the same as if all
    were made anew.

    Args:
        tables: what the stage reads.
        output: takes `mined_pairs`, a partition a day.
        hop: makes the queries' own pairs.
        most: lenders of a query and kind; 0: all.
        contains: by day, the digests of earlier versions of its evidence that the present one only adds to.
    """
    days, mark = tables.by_day("click_evidence"), output.unit_key("all", "")
    read = digests(days)
    facts = output.earlier_facts
    earlier = output.earlier("mined_pairs") if facts.get("mark") == mark else None
    news = None if earlier is None else news_of(facts["read"], read, contains)
    known = earlier if earlier is not None and news is not None else Tables.nothing("mined_pairs")
    with tables.connect() as connection:
        known.view(connection, "earlier", "mined_pairs")
        if news is None:
            everything(connection, hop)
        else:
            delta = tables.of("click_evidence", [part for day in news.days for part in days[day]])
            touched(connection, delta, news, hop)
        needed(connection, before=hop.before)
        hop.make(connection)
        multi_hop(connection, most=most, seed=hop.seed)
        _write(connection, output, known.by_day("mined_pairs"))
    output.facts |= {"mark": mark, "read": read}
    rows = sum(part.rows for part in output.parts["mined_pairs"])
    output.count(FunnelStep("mined_pairs", "queries", tables.rows("log_queries"), "pairs", rows))


def _write(connection: duckdb.DuckDBPyConnection, output: Output, known: Days) -> None:
    """Write the days in which a pair came, went or changed; keep the others as they are."""
    changed = {day for (day,) in connection.sql(CHANGED_DAYS).fetchall()}
    for day in sorted({*known, *changed}):
        if day in changed:
            for rows in pieces(connection, PAIRS_OF_A_DAY, {"day": day}, ROWS):
                output.write("mined_pairs", rows.cast(TABLES["mined_pairs"].schema), day)
        else:
            for part in known[day]:
                output.keep("mined_pairs", part)
        output.progress(sum(part.rows for part in output.parts["mined_pairs"]), None, day)
