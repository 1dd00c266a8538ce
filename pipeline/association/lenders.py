"""The bound on lenders: of the queries that lend by one key, those searched first.

Queries of frequent terms would make associations without end: a million queries of a zipfian log have 670 million. The
order is by date first, and within a day by the least importance, then at random. A later query can displace none, so
what is kept of a date is the same whether it is computed that night or with all nights at once.
"""

from datetime import date

import duckdb

KINDS = ("click", "relevance")

_LENDERS = """
    CREATE TABLE {kind}_kept AS
    WITH crowded AS (SELECT key FROM {lenders} GROUP BY key HAVING count(*) > $most),
    drawn AS (
        SELECT key, q, date, floor, md5_number_lower(query_id) AS draw
        FROM {lenders} JOIN numbered_queries USING (q, date)
        WHERE key IN (SELECT key FROM crowded)
    ), ordered AS (
        SELECT key, q, date, floor,
            row_number() OVER (PARTITION BY key ORDER BY date, floor DESC, draw, q) > $most AS cut
        FROM drawn
    )
    SELECT * FROM ordered UNION ALL
    SELECT key, q, date, floor, false AS cut FROM {lenders} WHERE key NOT IN (SELECT key FROM crowded)
"""

_CUT = """
    WITH crowded AS (SELECT key, q, date FROM {kind}_kept WHERE cut),
    events AS (
        SELECT key, date, 1 AS borrows, 0 AS lends, 0 AS same FROM {kind}_borrowers
        WHERE key IN (SELECT key FROM crowded)
        UNION ALL SELECT key, date, 0, 1, 0 FROM crowded
        UNION ALL SELECT key, date, 0, 0, 1 FROM crowded SEMI JOIN {kind}_borrowers USING (key, q)
    ), daily AS (SELECT key, date, sum(borrows) AS b, sum(lends) AS l, sum(same) AS s FROM events GROUP BY key, date),
    running AS (
        SELECT key, date, sum(b) OVER so_far * sum(l) OVER so_far - sum(s) OVER so_far AS pairs
        FROM daily WINDOW so_far AS (PARTITION BY key ORDER BY date)
    ), added AS (
        SELECT date, pairs - lag(pairs, 1, 0) OVER (PARTITION BY key ORDER BY date) AS pairs FROM running
    )
    SELECT date, sum(pairs)::BIGINT AS pairs FROM added GROUP BY date
"""

_PAIRS = """
    SELECT b.q, l.q AS lender, b.date, l.date AS lender_date, least(b.floor, l.floor) AS score, '{kind}' AS kind
    FROM {kind}_borrowers AS b JOIN {kind}_kept AS l USING (key)
    WHERE NOT l.cut AND b.q <> l.q AND {which}
"""

_NEW = """
    SELECT greatest(date, lender_date) AS date, q, lender, kind, score FROM ({pairs})
    WHERE greatest(date, lender_date) >= $since
"""


def keep(connection: duckdb.DuckDBPyConnection, most: int) -> None:
    """Make `click_kept` and `relevance_kept` (key, q, date, floor, cut) of those who may lend; `most` 0 keeps all."""
    for kind, lenders in (("click", "click_lenders"), ("relevance", "relevance_borrowers")):
        connection.execute(_LENDERS.format(kind=kind, lenders=lenders), {"most": most or 1 << 62})


def cut_by_date(connection: duckdb.DuckDBPyConnection) -> dict[date, int]:
    """How many associations the bound costs, by the date that they would have."""
    counted = " UNION ALL ".join(f"FROM ({_CUT.format(kind=kind)})" for kind in KINDS)
    found = connection.sql(f"SELECT date, sum(pairs)::BIGINT FROM ({counted}) GROUP BY date").fetchall()
    return {day: pairs for day, pairs in found if pairs}


def pairs_since() -> str:
    """SQL of the associations with a date of `$since` or later: date, q, lender, kind and score, in that order.

    One of the two queries is that new: new ones borrow of all, old ones of new ones.
    """
    which = ("b.date >= $since", "b.date < $since AND l.date >= $since")
    made = [_PAIRS.format(kind=kind, which=each) for kind in KINDS for each in which]
    everything = " UNION ALL ".join([*made, "SELECT *, 'relevance' AS kind FROM wide_pairs"])
    return f"{_NEW.format(pairs=everything)} ORDER BY date, q, kind, lender"
