"""Which queries a night has to look at again: those its evidence touched, and those that borrow from a changed one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from pipeline.artifacts import Tables
from pipeline.mining.one_hop import OneHop

EVERYTHING = "CREATE TEMP TABLE wanted AS SELECT tenant, query_id FROM log_queries WHERE date < CAST($before AS DATE)"

SEEN = """
    CREATE TEMP TABLE needed AS
    SELECT DISTINCT tenant, query_id FROM delta WHERE date < CAST($before AS DATE)
"""

# A lender changed when what it lends did, or when the day from which on it lends did: a late day can make a query
# older. Its relevance negative goes when somebody clicks on it.
CHANGED = """
    CREATE TEMP TABLE changed AS
    WITH before AS (
        SELECT tenant, query_id, positive_id, negative_id, date
        FROM earlier SEMI JOIN needed USING (tenant, query_id) WHERE source = 'click_one_hop'
    ), differ AS (
        (SELECT tenant, query_id, positive_id, negative_id, date FROM click_one_hop EXCEPT FROM before)
        UNION ALL
        (FROM before EXCEPT SELECT tenant, query_id, positive_id, negative_id, date FROM click_one_hop)
    )
    SELECT DISTINCT tenant, query_id FROM (
        SELECT tenant, query_id FROM differ
        UNION ALL
        SELECT tenant, query_id FROM log_queries WHERE list_contains($days, CAST(date AS VARCHAR))
        UNION ALL
        SELECT r.tenant, r.query_id FROM relevance_evidence r JOIN delta d
          ON d.tenant = r.tenant AND d.query_id = r.query_id AND d.doc_id = r.negative_id AND d.clicks > 0
    )
"""

TOUCHED = """
    CREATE TEMP TABLE wanted AS
    SELECT tenant, query_id FROM (
        SELECT tenant, query_id FROM needed
        UNION
        SELECT DISTINCT a.tenant, a.query_id FROM associations a SEMI JOIN changed c
          ON c.tenant = a.tenant AND c.query_id = a.associated_query_id
    ) SEMI JOIN (FROM log_queries WHERE date < CAST($before AS DATE)) USING (tenant, query_id)
"""


@dataclass(frozen=True)
class News:
    """What came since the pairs were last made: days that are new, or to whose evidence something was added."""

    days: tuple[str, ...]


def news_of(before: Mapping[str, str], now: Mapping[str, str], contains: Mapping[str, Sequence[str]]) -> News | None:
    """Compare the days' digests; None where evidence went away, so that everything has to be made anew.

    Args:
        before: digest of each day's evidence when the pairs were last made.
        now: the same now.
        contains: by day, the digests of earlier versions that the present one only adds to.
    """
    lost = [day for day, digest in before.items() if now.get(day) != digest and digest not in contains.get(day, ())]
    return None if lost else News(tuple(day for day, digest in now.items() if before.get(day) != digest))


def everything(connection: duckdb.DuckDBPyConnection, hop: OneHop) -> None:
    """Make the table `wanted` of all queries."""
    connection.execute(EVERYTHING, {"before": hop.before})


def touched(connection: duckdb.DuckDBPyConnection, delta: Tables, news: News, hop: OneHop) -> None:
    """Make the table `wanted` of the queries whose pairs may have changed: too many do no harm, too few would.

    Args:
        connection: as for `hop`, and with the view `earlier`: the pairs as they were made last.
        delta: `click_evidence` of the days in `news`.
        news: what came since then.
        hop: makes the touched queries' own pairs, to see which of them lend something else now.
    """
    delta.view(connection, "delta", "click_evidence")
    connection.execute(SEEN, {"before": hop.before})
    hop.make(connection)
    connection.execute(CHANGED, {"days": list(news.days)})
    connection.execute(TOUCHED, {"before": hop.before})
