"""Term keys on which borrowing and lending queries are joined, and the bound on lenders per key.

Two queries with the same key are associated (ScalingNote, Algorithm 1): the borrower gets the lender's evidence.

A click key has up to three terms. By the paper's rule a query borrows on its two most important terms (Top2), and lends
on every set of one or two terms above th_click. The guarded rule requires a third term where two are not distinctive,
and a single-term key only matches lenders without another strong term (`GUARDED`).

A relevance key is a set of up to four terms (Top4). If each query's Top4 is above th_rel in the other query, and one of
them has at most four terms above th_rel, both have the same Top4, so they share the key.
`algorithm.keyless_relevance_pairs` finds the others.

Frequent terms make the bound necessary: a million queries of a Zipfian log have 670 million associations. The bound
prefers lenders by date, then by minimum importance, then by hash. A later query never displaces an earlier one, so a
date's result does not depend on whether it is computed that night or with all nights at once.

Importances and thresholds are compared as float32: an importance of 0.3 is not above a threshold of 0.3.
"""

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

import duckdb

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.schemas.mining import AssociateSettings

PAPER = "SELECT q, date, t, place FROM {placed} WHERE place <= 2"
"""The terms on which a query borrows: its Top2."""

GUARDED = """
    WITH shares AS (
        SELECT *, sum(importance::DECIMAL(9, 6)) OVER (PARTITION BY q) AS everything,
            sum(importance::DECIMAL(9, 6)) OVER (PARTITION BY q ORDER BY place) AS so_far,
            lead(importance) OVER (PARTITION BY q ORDER BY place) AS next
        FROM {placed}
    ), cuts AS (
        SELECT q, min(place) AS last FROM shares WHERE next IS NULL AND place <= 3
        OR importance > next AND (place = 3 OR place = 2 AND so_far * 2 >= everything) GROUP BY q
    )
    SELECT q, date, t, place FROM shares JOIN cuts USING (q) WHERE place <= last
"""
"""The guarded rule: two terms if they have half of the query's total importance, else three.

Ties are not broken: a second term of the same importance as the third includes the third, and a query whose third term
is tied with the fourth does not borrow.
"""

# Three term numbers below 2^31 in one integer, ascending; a key of fewer terms repeats the last one.
_KEY = "({0}::HUGEINT * 2147483648 + {1}) * 2147483648 + {2}"

_CLICK_BORROWERS = f"""
    SELECT {_KEY.format("ts[1]", "ts[least(2, len(ts))]", "ts[-1]")} AS key, q, date, 'Infinity'::FLOAT AS floor
    FROM (SELECT q, date, list_sort(list(t)) AS ts FROM {{wanted}} WHERE q >= $first AND q < $last GROUP BY q, date)
"""

# `alone`: lenders that a key with a single term matches; only keys on which some query borrows are made.
_CLICK_LENDERS = f"""
    WITH strong AS (SELECT q, date, t, importance FROM {{placed}} WHERE importance > $th_click::FLOAT),
    alone AS (SELECT q FROM strong GROUP BY q HAVING NOT $guarded OR count(*) = 1),
    pairs AS (
        SELECT q, a.date, a.t AS a, b.t AS b, least(a.importance, b.importance) AS floor
        FROM strong AS a JOIN strong AS b USING (q)
        WHERE a.t <= b.t AND a.t::HUGEINT * 2147483648 + b.t IN (SELECT key // 2147483648 FROM {{borrowers}})
    ), keyed AS (
        SELECT {_KEY.format("a", "b", "b")} AS key, q, date, floor FROM pairs WHERE a < b OR q IN (SELECT q FROM alone)
        UNION ALL
        SELECT {_KEY.format("a", "b", "c.t")}, q, pairs.date, least(floor, importance)
        FROM pairs JOIN strong AS c USING (q) WHERE a < b AND b < c.t
    )
    FROM keyed WHERE key IN (SELECT key FROM {{borrowers}})
"""

# Queries whose whole Top4 is above th_rel.
_TOPS = """
    SELECT list_sort(list(t)) AS terms, q, date, min(importance) AS floor
    FROM {placed} WHERE place <= 4 GROUP BY q, date HAVING floor > $th_rel::FLOAT
"""

_SETS = """
    SELECT terms, -row_number() OVER () AS key, count(*) AS queries FROM {tops} GROUP BY terms
"""

_WITHIN = "FROM {relation} WHERE q >= $first AND q < $last"

_RELEVANCE = "SELECT key, q, date, floor FROM {tops} JOIN {sets} USING (terms)"


class TermKeys(NamedTuple):
    """Borrowing and lending queries by key.

    All but `required` and `sets` have the columns key, q, date and floor: the minimum importance of the key's terms in
    the query (infinity for click borrowers, whose own importance does not count).

    Attributes:
        required: terms on which a query borrows clicks: q, date, t, place.
        click_borrowers: keys of these terms.
        click_lenders: every key on which some query borrows.
        relevance_borrowers: keys of their Top4.
        relevance: lenders, keys of their Top4.
        sets: the Top4 of each key: terms, key, queries.
    """

    required: Relation
    click_borrowers: Relation
    click_lenders: Relation
    relevance_borrowers: Relation
    relevance: Relation
    sets: Relation


ALL_QUERIES = range(1 << 31)
"""All query numbers, which are 32-bit integers."""


def build_term_keys(
    connection: duckdb.DuckDBPyConnection,
    placed: Relation,
    settings: AssociateSettings,
    borrowers: range = ALL_QUERIES,
) -> TermKeys:
    """Make the keys of all queries.

    Args:
        connection: a connection that holds the relation.
        placed: `algorithm.TermNumbers.placed`.
        settings: rule and thresholds.
        borrowers: numbers of the queries that may borrow; all may lend.
    """
    borrower_bounds = {"first": borrowers.start, "last": borrowers.stop}
    is_guarded = settings.rule == "guarded"
    required = materialize(connection, GUARDED if is_guarded else PAPER, placed=placed)
    click_borrowers = materialize(connection, _CLICK_BORROWERS, borrower_bounds, wanted=required)
    lender_rule = {"th_click": settings.th_click, "guarded": is_guarded}
    click_lenders = materialize(connection, _CLICK_LENDERS, lender_rule, placed=placed, borrowers=click_borrowers)
    tops = materialize(connection, _TOPS, {"th_rel": settings.th_rel}, placed=placed)
    sets = materialize(connection, _SETS, tops=tops)
    relevance = materialize(connection, _RELEVANCE, tops=tops, sets=sets)
    drop(connection, tops)
    relevance_borrowers = (
        relevance if borrowers is ALL_QUERIES else materialize(connection, _WITHIN, borrower_bounds, relation=relevance)
    )
    return TermKeys(required, click_borrowers, click_lenders, relevance_borrowers, relevance, sets)


_BORROWING = """
    SELECT q FROM {borrowers} WHERE date >= $since OR key IN (SELECT key FROM {lenders} WHERE date >= $since)
"""


def borrowing_queries(connection: duckdb.DuckDBPyConnection, keys: TermKeys, wide: Relation, since: date) -> Relation:
    """Find the borrowers (q) of possible associations in which at least one query is of `since` or later.

    Args:
        connection: a connection that holds the relations.
        keys: borrowers and lenders by key.
        wide: relevance pairs without a common key.
        since: first date.
    """
    click_sql = _BORROWING.format(borrowers=keys.click_borrowers, lenders=keys.click_lenders)
    relevance_sql = _BORROWING.format(borrowers=keys.relevance_borrowers, lenders=keys.relevance)
    return materialize(connection, f"{click_sql} UNION {relevance_sql} UNION SELECT q FROM {wide}", {"since": since})


# Only the lenders of keys with more than `$max_lenders` are sorted.
_LENDERS = """
    WITH crowded AS (SELECT key FROM {lenders} GROUP BY key HAVING count(*) > $max_lenders),
    drawn AS (
        SELECT key, q, date, floor, md5_number_lower(query_id) AS draw
        FROM {lenders} JOIN {queries} USING (q, date)
        WHERE key IN (SELECT key FROM crowded)
    ), ordered AS (
        SELECT key, q, date, floor,
            row_number() OVER (PARTITION BY key ORDER BY date, floor DESC, draw, q) > $max_lenders AS cut
        FROM drawn
    )
    SELECT * FROM ordered UNION ALL
    SELECT key, q, date, floor, false AS cut FROM {lenders} WHERE key NOT IN (SELECT key FROM crowded)
"""

# Excluded pairs by date, without making them: up to each date, borrowers × excluded lenders of a key, minus the queries
# that would lend to themselves; a date's pairs are the growth since the date before.
_CUT = """
    WITH crowded AS (SELECT key, q, date FROM {lenders} WHERE cut),
    events AS (
        SELECT key, date, 1 AS borrows, 0 AS lends, 0 AS same FROM {borrowers}
        WHERE key IN (SELECT key FROM crowded)
        UNION ALL SELECT key, date, 0, 1, 0 FROM crowded
        UNION ALL SELECT key, date, 0, 0, 1 FROM crowded SEMI JOIN {borrowers} USING (key, q)
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
    FROM {borrowers} AS b JOIN {lenders} AS l USING (key)
    WHERE NOT l.cut AND b.q <> l.q AND {which}
"""

# An association is dated by the later of its two queries.
_NEW = """
    SELECT greatest(date, lender_date) AS date, q, lender, kind, score FROM ({pairs})
    WHERE greatest(date, lender_date) >= $since
"""


class BoundedLending(NamedTuple):
    """Borrowers of one kind of association, and its lenders.

    Attributes:
        kind: click or relevance.
        borrowers: borrowing queries: key, q, date, floor.
        lenders: lending queries: the same columns, and `cut`, whether the bound excludes the lender.
    """

    kind: str
    borrowers: Relation
    lenders: Relation


def bound_lenders(
    connection: duckdb.DuckDBPyConnection, keys: TermKeys, queries: Relation, max_lenders: int
) -> list[BoundedLending]:
    """Limit the lenders of each key.

    Args:
        connection: a connection that holds the relations.
        keys: borrowers and lenders by key.
        queries: `algorithm.TermNumbers.queries`.
        max_lenders: maximum number of lenders per key; 0: no limit.
    """
    bound = {"max_lenders": max_lenders or 1 << 62}
    kinds = (
        ("click", keys.click_borrowers, keys.click_lenders),
        ("relevance", keys.relevance_borrowers, keys.relevance),
    )
    return [
        BoundedLending(kind, borrowers, materialize(connection, _LENDERS, bound, lenders=lenders, queries=queries))
        for kind, borrowers, lenders in kinds
    ]


def count_over_bound(connection: duckdb.DuckDBPyConnection, lending: Iterable[BoundedLending]) -> dict[date, int]:
    """Number of associations excluded by the bound, by date."""
    counts_sql = " UNION ALL ".join(f"FROM ({_CUT.format(**kind._asdict())})" for kind in lending)
    date_counts = connection.sql(f"SELECT date, sum(pairs)::BIGINT FROM ({counts_sql}) GROUP BY date").fetchall()
    return {day: n_pairs for day, n_pairs in date_counts if n_pairs}


def pairs_since_sql(lending: Iterable[BoundedLending], wide: Relation) -> str:
    """SQL of the associations dated `$since` or later: date, q, lender, kind, score.

    Queries of `$since` or later borrow from all queries; earlier ones from those only.

    Args:
        lending: borrowers and lenders of each kind.
        wide: relevance pairs without a common key: q, lender, date, lender_date, score.
    """
    # Borrowers of `$since` or later with any lender, and earlier borrowers with lenders of `$since` or later.
    date_conditions = ("b.date >= $since", "b.date < $since AND l.date >= $since")
    keyed_pairs = [
        _PAIRS.format(**kind._asdict(), which=condition) for kind in lending for condition in date_conditions
    ]
    all_pairs_sql = " UNION ALL ".join([*keyed_pairs, f"SELECT *, 'relevance' AS kind FROM {wide}"])
    return f"{_NEW.format(pairs=all_pairs_sql)} ORDER BY date, q, kind, lender"
