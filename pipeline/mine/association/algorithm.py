"""Algorithm 1 of ScalingNote over a whole log, without comparing all pairs of queries.

Two queries are *associated* if they share important terms; the *borrower* then gets the evidence of the *lender*.
Queries and terms are numbered, queries are joined on shared term keys (`lenders`), and the pairs become rows of
`associations`. Associated queries whose four top terms differ share no key; `keyless_relevance_pairs` finds those.
"""

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.mine.association.lenders import (
    ALL_QUERY_NUMBERS,
    TermKeys,
    borrowing_queries,
    bound_lenders,
    build_term_keys,
    count_over_bound,
    pairs_since_sql,
)
from darklode.pipeline.mine.days import PIECE_ROWS, by_date
from darklode.schemas.mined_tables import ASSOCIATIONS
from darklode.schemas.mining import AssociateSettings

_NUMBERED_QUERIES_SQL = """
    SELECT (row_number() OVER (ORDER BY tenant, query_id) - 1)::INTEGER AS q, tenant, query_id, date FROM log_queries
"""

_NUMBERED_TERMS_SQL = """
    SELECT (row_number() OVER (ORDER BY tenant, term) - 1)::INTEGER AS t, tenant, term
    FROM (SELECT DISTINCT tenant, term FROM query_terms)
"""

_RANKED_TERMS_SQL = """
    SELECT q, date, t, importance, row_number() OVER (PARTITION BY q ORDER BY importance DESC, t)::INTEGER AS term_rank
    FROM query_terms JOIN {queries} USING (tenant, query_id) JOIN {terms} USING (tenant, term)
"""


class TermNumbers(NamedTuple):
    """Integer ids of queries and terms, which joins use.

    Attributes:
        queries: numbered queries: q, tenant, query_id, date; q counts from 0 in order of tenant and query_id.
        terms: numbered terms: t, tenant, term; t counts from 0 in order of tenant and term. The same term of another
            tenant has another number.
        ranked_terms: terms of each query: q, date, t, importance, term_rank (1: the most important term); ties
            are in UTF-8 byte order.
    """

    queries: Relation
    terms: Relation
    ranked_terms: Relation


def number_terms(connection: duckdb.DuckDBPyConnection) -> TermNumbers:
    """Number the queries and terms of the tables `log_queries` and `query_terms`."""
    queries, terms = materialize(connection, _NUMBERED_QUERIES_SQL), materialize(connection, _NUMBERED_TERMS_SQL)
    return TermNumbers(queries, terms, materialize(connection, _RANKED_TERMS_SQL, queries=queries, terms=terms))


# Four: the number of terms of a top set, Top4 in ScalingNote.
_TERM_LISTS_SQL = """
    WITH clicks AS (
        SELECT q, list(t ORDER BY term_rank) AS clicks FROM {required_terms} WHERE q IN (FROM {borrowing}) GROUP BY q
    ), tops AS (
        SELECT q, list(t ORDER BY term_rank) AS terms
        FROM {ranked_terms} WHERE term_rank <= 4 AND q IN (FROM {borrowing}) GROUP BY q
    )
    SELECT tenant, query_id, terms, clicks FROM {queries} LEFT JOIN clicks USING (q) LEFT JOIN tops USING (q) ORDER BY q
"""


class TermNames:
    """Translates numbers of queries and terms into their names.

    The names are in memory: about 60 bytes per query, plus the top terms of borrowing queries.

    Args:
        connection: a connection that holds the relations.
        numbers: the numbers of all queries and terms.
        required_terms: `TermKeys.required`.
        borrowing: the borrowing queries (q), whose terms are needed.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, numbers: TermNumbers, required_terms: Relation, borrowing: Relation
    ) -> None:
        tops_sql = _TERM_LISTS_SQL.format(**numbers._asdict(), required_terms=required_terms, borrowing=borrowing)
        queries = connection.sql(tops_sql).to_arrow_table()
        self._tenants = queries["tenant"].combine_chunks().dictionary_encode()
        # Large strings have 64-bit offsets: an array may have more than 2 GiB.
        self._query_ids = queries["query_id"].cast(pa.large_string()).combine_chunks()
        self._relevance_terms = queries["terms"].combine_chunks()
        self._click_terms = queries["clicks"].combine_chunks()
        terms = connection.sql(f"SELECT term FROM {numbers.terms} ORDER BY t").to_arrow_table()
        self._terms = terms["term"].cast(pa.large_string()).combine_chunks()

    def rows(self, pairs: pa.Table) -> pa.Table:
        """Rows of `associations` for pairs of query numbers (date, q, lender, kind, score), in the same order."""
        columns = {
            "tenant": self._tenants.take(pairs["q"]).cast(pa.string()),
            "query_id": self._query_ids.take(pairs["q"]).cast(pa.string()),
            "associated_query_id": self._query_ids.take(pairs["lender"]).cast(pa.string()),
            "kind": pairs["kind"],
            "terms": self._match_terms(pairs),
            "score": pairs["score"],
            "date": pairs["date"],
        }
        return ASSOCIATIONS.rows(columns)

    def _match_terms(self, pairs: pa.Table) -> pa.Array:
        """The borrower's terms that made the association, most important first."""
        borrowers = pairs["q"].combine_chunks()
        is_click = pc.equal(pairs["kind"].combine_chunks(), "click")
        term_numbers = pc.if_else(is_click, self._click_terms.take(borrowers), self._relevance_terms.take(borrowers))
        terms = self._terms.take(term_numbers.flatten()).cast(pa.string())
        # `flatten` starts at the first list's values, so the offsets must start at 0, too.
        return pa.ListArray.from_arrays(pc.subtract(term_numbers.offsets, term_numbers.offsets[0]), terms)


# If the top four terms of two such queries differ, each query ranks some term of its own above one of the other's, and
# the other query ranks the two in reverse. Only queries that take part in such a reversed order are candidates.
_REORDERED_TERMS_SQL = """
    WITH strong_terms AS MATERIALIZED (
        SELECT q, t, term_rank, importance FROM {ranked_terms} WHERE importance > $th_rel::FLOAT
        AND q IN (SELECT q FROM {ranked_terms} WHERE term_rank = 5 AND importance > $th_rel::FLOAT)
    ), term_orders AS MATERIALIZED (
        SELECT q, x.t AS above, y.t AS below FROM strong_terms AS x JOIN strong_terms AS y USING (q)
        WHERE x.term_rank <= 4 AND y.term_rank > 4
    ), reversed_queries AS (
        SELECT x.q FROM term_orders AS x SEMI JOIN term_orders AS y ON x.above = y.below AND x.below = y.above
    )
    SELECT q, t, importance FROM strong_terms WHERE q IN (SELECT q FROM reversed_queries)
"""

# Candidates with all their terms above th_rel, and the key of their top set.
_CANDIDATES_SQL = """
    SELECT q, date, key, strong_terms
    FROM (SELECT q, list(t) AS strong_terms FROM {terms} GROUP BY q) JOIN {borrowers} USING (q)
"""

# The two rarest terms of each top set, on which `_COVERED_SETS_SQL` joins.
_RAREST_TERMS_SQL = """
    WITH frequencies AS (SELECT t, count(*) AS n FROM {terms} GROUP BY t),
    set_terms AS (SELECT key, unnest(terms) AS t FROM {top_sets} WHERE key IN (SELECT key FROM {candidates})),
    sorted_terms AS (SELECT key, list(t ORDER BY n, t) AS t FROM set_terms JOIN frequencies USING (t) GROUP BY key)
    SELECT key, least(t[1], t[2]) AS a, greatest(t[1], t[2]) AS b FROM sorted_terms
"""

# A row: all terms of another query's top set `key` are above th_rel in q, whose own top set is `own_key`.
_COVERED_SETS_SQL = """
    SELECT rarest_terms.key, candidates.q, candidates.date, candidates.key AS own_key
    FROM {terms} AS x JOIN {terms} AS y USING (q)
    JOIN {rarest_terms} AS rarest_terms ON x.t = rarest_terms.a AND y.t = rarest_terms.b
    JOIN {candidates} AS candidates ON candidates.q = x.q JOIN {top_sets} AS sets ON sets.key = rarest_terms.key
    WHERE candidates.key <> rarest_terms.key AND list_has_all(candidates.strong_terms, sets.terms)
"""

# Queries whose top set is covered by a query that they cover; `min_importance` is that of the covered terms.
_MUTUAL_COVERS_SQL = """
    WITH mutual_covers AS (
        SELECT x.key, x.q, x.date, x.own_key FROM {covered_sets} AS x
        SEMI JOIN {covered_sets} AS y ON x.key = y.own_key AND x.own_key = y.key
    ), set_terms AS (SELECT m.*, unnest(terms) AS t FROM mutual_covers AS m JOIN {top_sets} USING (key))
    SELECT key, q, date, own_key, min(importance) AS min_importance
    FROM set_terms JOIN {terms} USING (q, t) GROUP BY key, q, date, own_key
"""

_KEYLESS_PAIRS_SQL = """
    SELECT x.q, y.q AS lender, x.date, y.date AS lender_date, least(x.min_importance, y.min_importance) AS score
    FROM {mutual_covers} AS x JOIN {mutual_covers} AS y ON x.key = y.own_key AND x.own_key = y.key
    WHERE x.q >= $first AND x.q < $last
"""


def keyless_relevance_pairs(
    connection: duckdb.DuckDBPyConnection,
    ranked_terms: Relation,
    keys: TermKeys,
    settings: AssociateSettings,
    borrowers: range,
) -> Relation:
    """Find relevance associations between queries whose four top terms differ.

    Both queries need more than four terms above th_rel; all other associated queries share a key. Such pairs are
    rare: they need importances that rank the same terms differently in two queries, so term weights that are the same
    in all queries produce none. They are found through the two rarest terms of a top set, without comparing all pairs.

    Args:
        connection: a connection that holds the relations.
        ranked_terms: `TermNumbers.ranked_terms`.
        keys: relevance keys of all queries.
        settings: th_rel.
        borrowers: numbers of the queries that may borrow.

    Returns:
        q, lender, date, lender_date, score; both directions, for the borrowing queries.
    """
    terms = materialize(connection, _REORDERED_TERMS_SQL, {"th_rel": settings.th_rel}, ranked_terms=ranked_terms)
    candidates = materialize(connection, _CANDIDATES_SQL, terms=terms, borrowers=keys.relevance)
    rarest_terms = materialize(
        connection, _RAREST_TERMS_SQL, terms=terms, top_sets=keys.top_sets, candidates=candidates
    )
    covered_sets = materialize(
        connection,
        _COVERED_SETS_SQL,
        terms=terms,
        rarest_terms=rarest_terms,
        candidates=candidates,
        top_sets=keys.top_sets,
    )
    mutual_covers = materialize(
        connection, _MUTUAL_COVERS_SQL, covered_sets=covered_sets, top_sets=keys.top_sets, terms=terms
    )
    pairs = materialize(
        connection, _KEYLESS_PAIRS_SQL, {"first": borrowers.start, "last": borrowers.stop}, mutual_covers=mutual_covers
    )
    drop(connection, terms, candidates, rarest_terms, covered_sets, mutual_covers)
    return pairs


class Associations:
    """The associations of the queries in a connection's `log_queries` and `query_terms`.

    Cost grows with queries and associations, not with pairs of queries, and spills to disk at the connection's memory
    limit; only query ids and top terms are kept in memory (`TermNames`).

    Args:
        connection: a connection with these tables.
        settings: rule, thresholds and maximum number of lenders per key.
        since: only associations with a query first searched on that day or later are made.
        share: (i, n): only borrowers in the i-th (from 0) of n equal shares of the queries, ordered by tenant and
            query_id, are included. All queries may lend.

    Attributes:
        over_bound: number of associations dropped by `max_lenders`, by date; incomplete before `since`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        settings: AssociateSettings,
        since: date = date.min,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self._connection = connection
        self._since = since
        numbers = number_terms(connection)
        borrowers = _share_of_queries(connection, numbers, *share)
        keys = build_term_keys(connection, numbers.ranked_terms, settings, borrowers)
        keyless_pairs = keyless_relevance_pairs(connection, numbers.ranked_terms, keys, settings, borrowers)
        lending = bound_lenders(connection, keys, numbers.queries, settings.max_lenders)
        borrowing = borrowing_queries(connection, keys, keyless_pairs, since)
        self._names = TermNames(connection, numbers, keys.required_terms, borrowing)
        self.over_bound: dict[date, int] = count_over_bound(connection, lending)
        self._pairs_sql = pairs_since_sql(lending, keyless_pairs)
        drop(connection, keys.required_terms, keys.click_lenders, keys.top_sets, numbers.ranked_terms)

    def rows(self) -> Iterator[tuple[date, pa.Table]]:
        """The associations, ordered by date, tenant, query, kind and lender.

        Yields:
            A date and at most `PIECE_ROWS` rows of `associations` of that date; dates ascend.
        """
        reader = self._connection.sql(self._pairs_sql, params={"since": self._since}).to_arrow_reader(PIECE_ROWS)
        for day, pairs in by_date(reader):
            yield day, self._names.rows(pairs)


def _share_of_queries(connection: duckdb.DuckDBPyConnection, numbers: TermNumbers, share: int, n_shares: int) -> range:
    """Query numbers of one of `n_shares` contiguous shares."""
    if n_shares == 1:
        return ALL_QUERY_NUMBERS
    (n_queries,) = connection.sql(f"SELECT count(*) FROM {numbers.queries}").fetchall()[0]
    return range(n_queries * share // n_shares, n_queries * (share + 1) // n_shares)
