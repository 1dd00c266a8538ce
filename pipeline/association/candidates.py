"""Who may borrow and who may lend, by key: two queries with the same key are associated (ScalingNote, Algorithm 1).

A click key is a pair of terms, or one term twice: a query borrows by its Top2, and lends by every pair of the terms
that score above th_click in it. A relevance key is a set of up to 4 terms. If each query's Top4 lies in the other's
terms above th_rel, and these are no more than 4 in one of the two, then the two Top4 are the same set: such queries
share the key. `wide` finds the others.

Importances are float32, and thresholds are compared as float32: an importance of 0.3 is not above a threshold of 0.3.
"""

import duckdb

from schemas.mining import AssociateSettings

_PAIR = "least({0}, {1})::BIGINT * 2147483648 + greatest({0}, {1})"

_CLICK_BORROWERS = f"""
    CREATE TABLE click_borrowers AS
    SELECT {_PAIR.format("min(t)", "max(t)")} AS key, q, date, 'Infinity'::FLOAT AS floor
    FROM placed_terms WHERE place <= 2 GROUP BY q, date
"""

_CLICK_LENDERS = """
    CREATE TABLE click_lenders AS
    WITH strong AS (SELECT q, date, t, importance FROM placed_terms WHERE importance > $th_click::FLOAT)
    SELECT a.t::BIGINT * 2147483648 + b.t AS key, q, a.date, least(a.importance, b.importance) AS floor
    FROM strong AS a JOIN strong AS b USING (q)
    WHERE a.t <= b.t AND a.t::BIGINT * 2147483648 + b.t IN (SELECT key FROM click_borrowers)
"""

_TOPS = """
    CREATE TABLE tops AS
    SELECT list_sort(list(t)) AS terms, q, date, min(importance) AS floor
    FROM placed_terms WHERE place <= 4 GROUP BY q, date HAVING floor > $th_rel::FLOAT
"""

_SETS = """
    CREATE TABLE sets AS
    SELECT terms, -row_number() OVER () AS key, count(*) AS queries FROM tops GROUP BY terms
"""

_RELEVANCE = "CREATE TABLE relevance_borrowers AS SELECT key, q, date, floor FROM tops JOIN sets USING (terms)"


def find(connection: duckdb.DuckDBPyConnection, settings: AssociateSettings) -> None:
    """Make `click_borrowers`, `click_lenders` and `relevance_borrowers` (who lend, too) from the numbered tables.

    Their columns are key, q, date and floor: the least importance of the key's terms in the query (of a click's
    borrower: infinity, as it does not count).
    """
    connection.execute(_CLICK_BORROWERS)
    connection.execute(_CLICK_LENDERS, {"th_click": settings.th_click})
    connection.execute(_TOPS, {"th_rel": settings.th_rel})
    connection.execute(_SETS)
    connection.execute(_RELEVANCE)
