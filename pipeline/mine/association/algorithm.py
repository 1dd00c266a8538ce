"""Algorithm 1 of ScalingNote over a whole log, without comparing all pairs of queries.

Queries and terms are numbered, queries are joined by shared keys (`lenders`), and the pairs become rows of
`associations`. Associated queries with different Top4 share no key; `wide_pairs` finds those.
"""

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.relations import Relation, drop, materialize
from darklode.pipeline.mine.association.lenders import (
    EVERYBODY,
    TermKeys,
    borrowing_queries,
    bounded_parties,
    cut_by_date,
    keys_of,
    pairs_since,
)
from darklode.schemas.mined_tables import ASSOCIATIONS
from darklode.schemas.mining import AssociateSettings

_QUERIES = """
    SELECT (row_number() OVER (ORDER BY tenant, query_id) - 1)::INTEGER AS q, tenant, query_id, date FROM log_queries
"""

_TERMS = """
    SELECT (row_number() OVER (ORDER BY tenant, term) - 1)::INTEGER AS t, tenant, term
    FROM (SELECT DISTINCT tenant, term FROM query_terms)
"""

_PLACED = """
    SELECT q, date, t, importance, row_number() OVER (PARTITION BY q ORDER BY importance DESC, t)::INTEGER AS place
    FROM query_terms JOIN {queries} USING (tenant, query_id) JOIN {terms} USING (tenant, term)
"""


class TermNumbers(NamedTuple):
    """Queries and terms as integers, which joins use.

    Attributes:
        queries: q, tenant, query_id, date; q from 0 in order of tenant and query_id.
        terms: t, tenant, term, numbered likewise; the same term of another tenant is another term.
        placed: q, date, t, importance, place; place 1 is a query's most important term, ties in the order of UTF-8
            bytes.
    """

    queries: Relation
    terms: Relation
    placed: Relation


def number(connection: duckdb.DuckDBPyConnection) -> TermNumbers:
    """Number the queries and terms of the tables `log_queries` and `query_terms`."""
    queries, terms = materialize(connection, _QUERIES), materialize(connection, _TERMS)
    return TermNumbers(queries, terms, materialize(connection, _PLACED, queries=queries, terms=terms))


_TOPS = """
    WITH clicks AS (
        SELECT q, list(t ORDER BY place) AS clicks FROM {wanted} WHERE q IN (FROM {borrowing}) GROUP BY q
    ), tops AS (
        SELECT q, list(t ORDER BY place) AS terms FROM {placed} WHERE place <= 4 AND q IN (FROM {borrowing}) GROUP BY q
    )
    SELECT tenant, query_id, terms, clicks FROM {queries} LEFT JOIN clicks USING (q) LEFT JOIN tops USING (q) ORDER BY q
"""


class TermNames:
    """Names of the numbers, in memory: about 60 bytes per query, plus the top terms of borrowing queries.

    Args:
        connection: has the relations.
        numbers: of all queries and terms.
        wanted: `TermKeys.required`.
        borrowing: q: the queries whose terms are needed.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, numbers: TermNumbers, query_relation: Relation, borrowing: Relation
    ) -> None:
        tops = _TOPS.format(**numbers._asdict(), wanted=query_relation, borrowing=borrowing)
        queries = connection.sql(tops).to_arrow_table()
        self._tenants = queries["tenant"].combine_chunks().dictionary_encode()
        self._ids = queries["query_id"].cast(pa.large_string()).combine_chunks()
        self._tops, self._clicks = (queries[name].combine_chunks() for name in ("terms", "clicks"))
        terms = connection.sql(f"SELECT term FROM {numbers.terms} ORDER BY t").to_arrow_table()
        self._terms = terms["term"].cast(pa.large_string()).combine_chunks()

    def rows(self, pairs: pa.Table) -> pa.Table:
        """Rows of `associations` for number pairs (date, q, lender, kind, score)."""
        columns = {
            "tenant": self._tenants.take(pairs["q"]).cast(pa.string()),
            "query_id": self._ids.take(pairs["q"]).cast(pa.string()),
            "associated_query_id": self._ids.take(pairs["lender"]).cast(pa.string()),
            "kind": pairs["kind"],
            "terms": self._match_terms(pairs),
            "score": pairs["score"],
            "date": pairs["date"],
        }
        return ASSOCIATIONS.rows(columns)

    def _match_terms(self, pairs: pa.Table) -> pa.Array:
        """The borrower's terms that its kind of association matched, most important first."""
        borrowers = pairs["q"].combine_chunks()
        click = pc.equal(pairs["kind"].combine_chunks(), "click")
        numbers = pc.if_else(click, self._clicks.take(borrowers), self._tops.take(borrowers))
        terms = self._terms.take(numbers.flatten()).cast(pa.string())
        return pa.ListArray.from_arrays(pc.subtract(numbers.offsets, numbers.offsets[0]), terms)


# Two such Top4 differ in a term each, and each query has the other's term below its own: an order that is turned round.
_STRONG = """
    WITH strong AS MATERIALIZED (
        SELECT q, t, place, importance FROM {placed} WHERE importance > $th_rel::FLOAT
        AND q IN (SELECT q FROM {placed} WHERE place = 5 AND importance > $th_rel::FLOAT)
    ), orders AS MATERIALIZED (
        SELECT q, x.t AS above, y.t AS below FROM strong AS x JOIN strong AS y USING (q)
        WHERE x.place <= 4 AND y.place > 4
    ), turned AS (SELECT x.q FROM orders AS x SEMI JOIN orders AS y ON x.above = y.below AND x.below = y.above)
    SELECT q, t, importance FROM strong WHERE q IN (SELECT q FROM turned)
"""

_WIDE = """
    SELECT q, date, key, strong
    FROM (SELECT q, list(t) AS strong FROM {terms} GROUP BY q) JOIN {borrowers} USING (q)
"""

_RAREST = """
    WITH frequencies AS (SELECT t, count(*) AS n FROM {terms} GROUP BY t),
    members AS (SELECT key, unnest(terms) AS t FROM {sets} WHERE key IN (SELECT key FROM {wide})),
    pairs AS (SELECT key, list(t ORDER BY n, t) AS t FROM members JOIN frequencies USING (t) GROUP BY key)
    SELECT key, least(t[1], t[2]) AS a, greatest(t[1], t[2]) AS b FROM pairs
"""

# A row: all terms of the foreign set `key` are above th_rel in q, whose own set is `own`.
_COVERS = """
    SELECT rarest.key, wide.q, wide.date, wide.key AS own
    FROM {terms} AS x JOIN {terms} AS y USING (q) JOIN {rarest} AS rarest ON x.t = rarest.a AND y.t = rarest.b
    JOIN {wide} AS wide ON wide.q = x.q JOIN {sets} AS sets ON sets.key = rarest.key
    WHERE wide.key <> rarest.key AND list_has_all(wide.strong, sets.terms)
"""

_MUTUAL = """
    WITH both_ways AS (
        SELECT x.key, x.q, x.date, x.own FROM {covers} AS x
        SEMI JOIN {covers} AS y ON x.key = y.own AND x.own = y.key
    ), members AS (SELECT b.*, unnest(terms) AS t FROM both_ways AS b JOIN {sets} USING (key))
    SELECT key, q, date, own, min(importance) AS floor
    FROM members JOIN {terms} USING (q, t) GROUP BY key, q, date, own
"""

_PAIRS = """
    SELECT x.q, y.q AS lender, x.date, y.date AS lender_date, least(x.floor, y.floor) AS score
    FROM {mutual} AS x JOIN {mutual} AS y ON x.key = y.own AND x.own = y.key
    WHERE x.q >= $first AND x.q < $last
"""


def wide_pairs(
    connection: duckdb.DuckDBPyConnection, placed: Relation, keys: TermKeys, settings: AssociateSettings, borrow: range
) -> Relation:
    """Relevance associations of queries with different Top4, which requires more than 4 terms above th_rel in both.

    They need importances that rank the same terms differently in two queries, so term weights that are the same in all
    queries produce none. They are rare and found by the two rarest terms of a Top4 instead of by comparing all pairs.

    Returns:
        q, lender, date, lender_date, score; both directions, for the borrowing queries.
    """
    terms = materialize(connection, _STRONG, {"th_rel": settings.th_rel}, placed=placed)
    wide = materialize(connection, _WIDE, terms=terms, borrowers=keys.relevance)
    rarest = materialize(connection, _RAREST, terms=terms, sets=keys.sets, wide=wide)
    covers = materialize(connection, _COVERS, terms=terms, rarest=rarest, wide=wide, sets=keys.sets)
    mutual = materialize(connection, _MUTUAL, covers=covers, sets=keys.sets, terms=terms)
    pairs = materialize(connection, _PAIRS, {"first": borrow.start, "last": borrow.stop}, mutual=mutual)
    drop(connection, terms, wide, rarest, covers, mutual)
    return pairs


PART_ROWS = 200_000


class Associations:
    """The associations of the queries in a connection's `log_queries` and `query_terms`.

    Cost grows with queries and associations, not with pairs of queries, and spills to disk at the connection's memory
    limit; only query ids and top terms are kept in memory (`TermNames`).

    Args:
        connection: with the tables.
        settings: rule, thresholds and bound.
        since: only associations with a query first searched on that day or later.
        share: only the borrowers of one of n equal shares, in order of tenant and query_id: (index, n).

    Attributes:
        cut: associations dropped by `max_lenders`, by date; incomplete for dates before `since`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        settings: AssociateSettings,
        since: date = date.min,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self._connection, self._since = connection, since
        numbers = number(connection)
        borrow = _borrow(connection, numbers, *share)
        keys = keys_of(connection, numbers.placed, settings, borrow)
        wide = wide_pairs(connection, numbers.placed, keys, settings, borrow)
        parties = bounded_parties(connection, keys, numbers.queries, settings.max_lenders)
        self._names = TermNames(connection, numbers, keys.required, borrowing_queries(connection, keys, wide, since))
        self.cut: dict[date, int] = cut_by_date(connection, parties)
        self._query = pairs_since(parties, wide)
        drop(connection, keys.required, keys.click_lenders, keys.sets, numbers.placed)

    def rows(self) -> Iterator[tuple[date, pa.Table]]:
        """The associations by date, tenant, query, kind and lender.

        Yields:
            A date and at most `PART_ROWS` rows of `associations` of that date; dates ascend.
        """
        reader = self._connection.sql(self._query, params={"since": self._since}).to_arrow_reader(PART_ROWS)
        for day, pairs in by_date(reader):
            yield day, self._names.rows(pairs)


def _borrow(connection: duckdb.DuckDBPyConnection, numbers: TermNumbers, shard_number: int, places: int) -> range:
    if places == 1:
        return EVERYBODY
    (count,) = connection.sql(f"SELECT count(*) FROM {numbers.queries}").fetchall()[0]
    return range(count * shard_number // places, count * (shard_number + 1) // places)


def by_date(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[date, pa.Table]]:
    """Split rows ordered by `date` into pieces of one date and at most `PART_ROWS` rows.

    DuckDB's batches depend on its number of threads; pieces split here are the same on every machine.
    """
    waiting: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        waiting = pa.concat_tables([waiting, rows]) if waiting else rows
        while waiting.num_rows:
            day = waiting["date"][0]
            same = pc.equal(waiting["date"], day)
            length = pc.sum(same).as_py()
            if length == waiting.num_rows and length < PART_ROWS:
                break
            size = min(length, PART_ROWS)
            yield day.as_py(), waiting.slice(0, size)
            waiting = waiting.slice(size)
    if waiting:
        yield waiting["date"][0].as_py(), waiting
