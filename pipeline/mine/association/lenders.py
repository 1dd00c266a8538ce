"""Term keys on which borrowing and lending queries are joined, and the bound on lenders per key.

Two queries with the same key are associated (ScalingNote, Algorithm 1): the borrower gets the lender's evidence.

A click key has up to three terms. By the paper's rule a query borrows on its two most important terms (Top2), and lends
on every set of one or two terms above th_click. The guarded rule requires a third term where two are not distinctive,
and a single-term key only matches lenders without another strong term (`GUARDED_BORROWER_TERMS_SQL`).

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

PAPER_BORROWER_TERMS_SQL = "SELECT q, date, t, term_rank FROM {ranked_terms} WHERE term_rank <= 2"
"""The terms on which a query borrows: its Top2."""

GUARDED_BORROWER_TERMS_SQL = """
    WITH shares AS (
        SELECT *, sum(importance::DECIMAL(9, 6)) OVER (PARTITION BY q) AS total_importance,
            sum(importance::DECIMAL(9, 6)) OVER (PARTITION BY q ORDER BY term_rank) AS running_importance,
            lead(importance) OVER (PARTITION BY q ORDER BY term_rank) AS next_importance
        FROM {ranked_terms}
    ), term_counts AS (
        SELECT q, min(term_rank) AS n_terms FROM shares WHERE next_importance IS NULL AND term_rank <= 3
        OR importance > next_importance
            AND (term_rank = 3 OR term_rank = 2 AND running_importance * 2 >= total_importance) GROUP BY q
    )
    SELECT q, date, t, term_rank FROM shares JOIN term_counts USING (q) WHERE term_rank <= n_terms
"""
"""The guarded rule: two terms if they have half of the query's total importance, else three.

Ties are not broken: a second term of the same importance as the third includes the third, and a query whose third term
is tied with the fourth does not borrow.
"""

# Three term numbers below 2^31 in one integer, ascending; a key of fewer terms repeats the last one.
_KEY_SQL = "({0}::HUGEINT * 2147483648 + {1}) * 2147483648 + {2}"

_CLICK_BORROWERS_SQL = f"""
    SELECT {_KEY_SQL.format("ts[1]", "ts[least(2, len(ts))]", "ts[-1]")} AS key, q, date,
        'Infinity'::FLOAT AS min_importance
    FROM (
        SELECT q, date, list_sort(list(t)) AS ts FROM {{required_terms}}
        WHERE q >= $first AND q < $last GROUP BY q, date
    )
"""

# `single_key_lenders`: lenders that a key with a single term matches; only keys on which some query borrows are made.
_CLICK_LENDERS_SQL = f"""
    WITH strong_terms AS (SELECT q, date, t, importance FROM {{ranked_terms}} WHERE importance > $th_click::FLOAT),
    single_key_lenders AS (SELECT q FROM strong_terms GROUP BY q HAVING NOT $guarded OR count(*) = 1),
    pairs AS (
        SELECT q, a.date, a.t AS a, b.t AS b, least(a.importance, b.importance) AS min_importance
        FROM strong_terms AS a JOIN strong_terms AS b USING (q)
        WHERE a.t <= b.t AND a.t::HUGEINT * 2147483648 + b.t IN (SELECT key // 2147483648 FROM {{borrowers}})
    ), lender_keys AS (
        SELECT {_KEY_SQL.format("a", "b", "b")} AS key, q, date, min_importance FROM pairs
        WHERE a < b OR q IN (SELECT q FROM single_key_lenders)
        UNION ALL
        SELECT {_KEY_SQL.format("a", "b", "c.t")}, q, pairs.date, least(min_importance, importance)
        FROM pairs JOIN strong_terms AS c USING (q) WHERE a < b AND b < c.t
    )
    FROM lender_keys WHERE key IN (SELECT key FROM {{borrowers}})
"""

# Queries whose whole Top4 is above th_rel.
_TOP_TERMS_SQL = """
    SELECT list_sort(list(t)) AS terms, q, date, min(importance) AS min_importance
    FROM {ranked_terms} WHERE term_rank <= 4 GROUP BY q, date HAVING min_importance > $th_rel::FLOAT
"""

_TOP_SETS_SQL = """
    SELECT terms, -row_number() OVER () AS key, count(*) AS queries FROM {tops} GROUP BY terms
"""

_BORROWERS_IN_RANGE_SQL = "FROM {relation} WHERE q >= $first AND q < $last"

_RELEVANCE_LENDERS_SQL = "SELECT key, q, date, min_importance FROM {tops} JOIN {top_sets} USING (terms)"


class TermKeys(NamedTuple):
    """Borrowing and lending queries by key.

    All but `required_terms` and `top_sets` have the columns key, q, date and min_importance: the minimum importance of
    the key's terms in the query (infinity for click borrowers, whose own importance does not count).

    Attributes:
        required_terms: terms on which a query borrows clicks: q, date, t, term_rank.
        click_borrowers: keys of these terms.
        click_lenders: every key on which some query borrows.
        relevance_borrowers: keys of their Top4.
        relevance: lenders, keys of their Top4.
        top_sets: the Top4 of each key: terms, key, queries.
    """

    required_terms: Relation
    click_borrowers: Relation
    click_lenders: Relation
    relevance_borrowers: Relation
    relevance: Relation
    top_sets: Relation


ALL_QUERY_NUMBERS = range(1 << 31)
"""All query numbers, which are 32-bit integers."""


def build_term_keys(
    connection: duckdb.DuckDBPyConnection,
    ranked_terms: Relation,
    settings: AssociateSettings,
    borrowers: range = ALL_QUERY_NUMBERS,
) -> TermKeys:
    """Make the keys of all queries.

    Args:
        connection: a connection that holds the relation.
        ranked_terms: `algorithm.TermNumbers.ranked_terms`.
        settings: rule and thresholds.
        borrowers: numbers of the queries that may borrow; all may lend.
    """
    borrower_bounds = {"first": borrowers.start, "last": borrowers.stop}
    is_guarded = settings.rule == "guarded"
    required_terms = materialize(
        connection, GUARDED_BORROWER_TERMS_SQL if is_guarded else PAPER_BORROWER_TERMS_SQL, ranked_terms=ranked_terms
    )
    click_borrowers = materialize(connection, _CLICK_BORROWERS_SQL, borrower_bounds, required_terms=required_terms)
    lender_rule = {"th_click": settings.th_click, "guarded": is_guarded}
    click_lenders = materialize(
        connection, _CLICK_LENDERS_SQL, lender_rule, ranked_terms=ranked_terms, borrowers=click_borrowers
    )
    tops = materialize(connection, _TOP_TERMS_SQL, {"th_rel": settings.th_rel}, ranked_terms=ranked_terms)
    top_sets = materialize(connection, _TOP_SETS_SQL, tops=tops)
    relevance = materialize(connection, _RELEVANCE_LENDERS_SQL, tops=tops, top_sets=top_sets)
    drop(connection, tops)
    relevance_borrowers = (
        relevance
        if borrowers is ALL_QUERY_NUMBERS
        else materialize(connection, _BORROWERS_IN_RANGE_SQL, borrower_bounds, relation=relevance)
    )
    return TermKeys(required_terms, click_borrowers, click_lenders, relevance_borrowers, relevance, top_sets)


_BORROWING_QUERIES_SQL = """
    SELECT q FROM {borrowers} WHERE date >= $since OR key IN (SELECT key FROM {lenders} WHERE date >= $since)
"""


def borrowing_queries(
    connection: duckdb.DuckDBPyConnection, keys: TermKeys, keyless_pairs: Relation, since: date
) -> Relation:
    """Find the borrowers (q) of possible associations in which at least one query is of `since` or later.

    Args:
        connection: a connection that holds the relations.
        keys: borrowers and lenders by key.
        keyless_pairs: relevance pairs without a common key.
        since: first date.
    """
    click_sql = _BORROWING_QUERIES_SQL.format(borrowers=keys.click_borrowers, lenders=keys.click_lenders)
    relevance_sql = _BORROWING_QUERIES_SQL.format(borrowers=keys.relevance_borrowers, lenders=keys.relevance)
    return materialize(
        connection, f"{click_sql} UNION {relevance_sql} UNION SELECT q FROM {keyless_pairs}", {"since": since}
    )


# Only the lenders of keys with more than `$max_lenders` are sorted.
_BOUNDED_LENDERS_SQL = """
    WITH keys_over_bound AS (SELECT key FROM {lenders} GROUP BY key HAVING count(*) > $max_lenders),
    hashed_lenders AS (
        SELECT key, q, date, min_importance, md5_number_lower(query_id) AS hash
        FROM {lenders} JOIN {queries} USING (q, date)
        WHERE key IN (SELECT key FROM keys_over_bound)
    ), ranked_lenders AS (
        SELECT key, q, date, min_importance,
            row_number() OVER (PARTITION BY key ORDER BY date, min_importance DESC, hash, q) > $max_lenders
                AS is_excluded
        FROM hashed_lenders
    )
    SELECT * FROM ranked_lenders
    UNION ALL SELECT key, q, date, min_importance, false AS is_excluded FROM {lenders}
    WHERE key NOT IN (SELECT key FROM keys_over_bound)
"""

# Excluded pairs by date, without making them: up to each date, borrowers × excluded lenders of a key, minus the queries
# that would lend to themselves; a date's pairs are the growth since the date before.
_EXCLUDED_PAIRS_BY_DATE_SQL = """
    WITH excluded_lenders AS (SELECT key, q, date FROM {lenders} WHERE is_excluded),
    events AS (
        SELECT key, date, 1 AS is_borrower, 0 AS is_lender, 0 AS is_self FROM {borrowers}
        WHERE key IN (SELECT key FROM excluded_lenders)
        UNION ALL SELECT key, date, 0, 1, 0 FROM excluded_lenders
        UNION ALL SELECT key, date, 0, 0, 1 FROM excluded_lenders SEMI JOIN {borrowers} USING (key, q)
    ), changes AS (
        SELECT key, date, sum(is_borrower) AS n_borrowers, sum(is_lender) AS n_lenders, sum(is_self) AS n_selves
        FROM events GROUP BY key, date
    ), totals AS (
        SELECT key, date,
            sum(n_borrowers) OVER so_far * sum(n_lenders) OVER so_far - sum(n_selves) OVER so_far AS pairs
        FROM changes WINDOW so_far AS (PARTITION BY key ORDER BY date)
    ), new_pairs AS (
        SELECT date, pairs - lag(pairs, 1, 0) OVER (PARTITION BY key ORDER BY date) AS pairs FROM totals
    )
    SELECT date, sum(pairs)::BIGINT AS pairs FROM new_pairs GROUP BY date
"""

_PAIRS_WITH_KEY_SQL = """
    SELECT b.q, l.q AS lender, b.date, l.date AS lender_date, least(b.min_importance, l.min_importance) AS score,
        '{kind}' AS kind
    FROM {borrowers} AS b JOIN {lenders} AS l USING (key)
    WHERE NOT l.is_excluded AND b.q <> l.q AND {date_condition}
"""

# An association is dated by the later of its two queries.
_PAIRS_SINCE_SQL = """
    SELECT greatest(date, lender_date) AS date, q, lender, kind, score FROM ({pairs})
    WHERE greatest(date, lender_date) >= $since
"""


class BoundedLending(NamedTuple):
    """Borrowers of one kind of association, and its lenders.

    Attributes:
        kind: click or relevance.
        borrowers: borrowing queries: key, q, date, min_importance.
        lenders: lending queries: the same columns, and `is_excluded`, whether the bound excludes the lender.
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
        BoundedLending(
            kind, borrowers, materialize(connection, _BOUNDED_LENDERS_SQL, bound, lenders=lenders, queries=queries)
        )
        for kind, borrowers, lenders in kinds
    ]


def count_over_bound(connection: duckdb.DuckDBPyConnection, lending: Iterable[BoundedLending]) -> dict[date, int]:
    """Number of associations excluded by the bound, by date."""
    counts_sql = " UNION ALL ".join(
        f"FROM ({_EXCLUDED_PAIRS_BY_DATE_SQL.format(**kind._asdict())})" for kind in lending
    )
    date_counts = connection.sql(f"SELECT date, sum(pairs)::BIGINT FROM ({counts_sql}) GROUP BY date").fetchall()
    return {day: n_pairs for day, n_pairs in date_counts if n_pairs}


def pairs_since_sql(lending: Iterable[BoundedLending], keyless_pairs: Relation) -> str:
    """SQL of the associations dated `$since` or later: date, q, lender, kind, score.

    Queries of `$since` or later borrow from all queries; earlier ones from those only.

    Args:
        lending: borrowers and lenders of each kind.
        keyless_pairs: relevance pairs without a common key: q, lender, date, lender_date, score.
    """
    # Borrowers of `$since` or later with any lender, and earlier borrowers with lenders of `$since` or later.
    date_conditions = ("b.date >= $since", "b.date < $since AND l.date >= $since")
    keyed_pairs = [
        _PAIRS_WITH_KEY_SQL.format(**kind._asdict(), date_condition=condition)
        for kind in lending
        for condition in date_conditions
    ]
    all_pairs_sql = " UNION ALL ".join([*keyed_pairs, f"SELECT *, 'relevance' AS kind FROM {keyless_pairs}"])
    return f"{_PAIRS_SINCE_SQL.format(pairs=all_pairs_sql)} ORDER BY date, q, kind, lender"
