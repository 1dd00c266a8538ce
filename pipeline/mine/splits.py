"""Train/validation split of a growing log: near-duplicate queries are in the same split.

A query joins the cluster of the earliest query that it is a near-duplicate of; without one it starts a cluster. The
split of a cluster is that of the session that searched its first query (`session_split`), or, if sessions are not
assigned or unknown, drawn at random. A later query therefore never moves an earlier one. A query with near-duplicates
in both splits would leak, so it is in neither and makes no triplet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.relations import Relation, materialize, view
from darklode.pipeline.mine.days import chain_fingerprints, digests
from darklode.pipeline.mine.tiers import N_HASH_VALUES
from darklode.schemas.tables import TABLES

MINED_SPLITS = Stage("mined_splits", 4, ("log_queries",), ("query_clusters", "query_keys"))

# `n`: number of a query, from 0, in order of its first day.
NUMBERED_QUERIES_SQL = """
    SELECT row_number() OVER (ORDER BY date, tenant, query_id) - 1 AS n, tenant, query_id, normal_form AS text, date,
           session_split
    FROM log_queries
"""
NEW_QUERIES_SQL = "SELECT * FROM {numbered_queries} WHERE n >= $first_new"

# Keys of earlier queries are in files by day; only those that a new query shares are needed.
SHARED_KEYS_SQL = """
    SELECT days.first_n + place AS n, key FROM (FROM {known_keys} SEMI JOIN {new_keys} USING (key))
    JOIN (SELECT date, min(n) AS first_n FROM {numbered_queries} GROUP BY date) days USING (date)
    UNION ALL FROM {new_keys}
"""

NEAREST_QUERY_SQL = """
    SELECT n, min(first_n) AS nearest
    FROM {new_keys} JOIN (SELECT key, min(n) AS first_n FROM {keys} GROUP BY key) USING (key) GROUP BY n ORDER BY n
"""

KNOWN_CLUSTERS_SQL = """
    SELECT q.n, c.n AS root FROM known_clusters k JOIN {numbered_queries} q USING (tenant, query_id)
    JOIN {numbered_queries} c ON c.tenant = k.tenant AND c.query_id = k.cluster_id
"""

QUERY_SPLITS_SQL = """
    SELECT q.*, CASE WHEN r.nearest < q.n THEN r.nearest END AS nearest, c.query_id AS cluster_id,
           CASE WHEN q.date >= CAST($test_from AS DATE) THEN 'test'
                WHEN c.session_split IS NOT NULL THEN c.session_split
                WHEN md5_number_lower(concat_ws(chr(0), $seed, 'split', c.tenant, c.query_id)) / $n_hashes < $validation
                THEN 'validation' ELSE 'train' END AS drawn_split
    FROM {numbered_queries} q JOIN cluster_roots r USING (n) JOIN {numbered_queries} c ON c.n = r.root
    WHERE q.n >= $first_new OR q.n IN (SELECT n FROM {keys})
"""

QUERIES_IN_BOTH_SPLITS_SQL = """
    WITH first_queries AS (
        SELECT key, min(n) FILTER (drawn_split = 'train') AS train,
               min(n) FILTER (drawn_split = 'validation') AS validation
        FROM {keys} JOIN {query_splits} USING (n) GROUP BY key
    )
    SELECT DISTINCT n FROM {new_keys} JOIN {query_splits} USING (n) JOIN first_queries USING (key)
    WHERE (drawn_split = 'train' AND validation < n) OR (drawn_split = 'validation' AND train < n)
"""

CLUSTERS_OF_A_DAY_SQL = """
    SELECT s.tenant, s.query_id, s.date, p.query_id AS near_query_id, s.cluster_id,
           CASE WHEN b.n IS NULL THEN s.drawn_split END AS split
    FROM {query_splits} s LEFT JOIN {numbered_queries} p ON p.n = s.nearest
    LEFT JOIN {queries_in_both_splits} b ON b.n = s.n
    WHERE s.date = CAST($day AS DATE) ORDER BY s.tenant, s.query_id
"""

KEYS_OF_A_DAY_SQL = """
    SELECT DISTINCT CAST($day AS DATE) AS date, CAST(n - $first AS INTEGER) AS place, key
    FROM {new_keys} WHERE n >= $first AND n < $end ORDER BY place, key
"""

QUERY_NUMBERS_OF_A_DAY_SQL = (
    "SELECT min(n) AS first, max(n) + 1 AS end FROM {numbered_queries} WHERE date = CAST($day AS DATE)"
)


@dataclass(frozen=True)
class SplitRule:
    """How clusters are assigned to splits.

    Attributes:
        validation_share: share of the clusters without a `session_split` that are assigned to validation (ScalingNote,
            4.1, has train:validation 9:1).
        test_from: first day of the test period; queries first searched on that day or later are test data. None: no
            test period.
        seed: seed of the random assignment; another seed moves queries between train and validation.
    """

    validation_share: float
    test_from: date | None
    seed: int

    @property
    def parameters(self) -> dict[str, object]:
        """SQL parameters of `QUERY_SPLITS_SQL`."""
        return {
            "validation": self.validation_share,
            "test_from": self.test_from or date.max,
            "seed": self.seed,
            "n_hashes": N_HASH_VALUES,
        }


def mined_splits(tables: Tables, output: Output, *, validation_share: float, test_from: date | None, seed: int) -> None:
    """Write each query's cluster, split and near-duplicate keys, one unit per day.

    A day depends on all queries up to it: a new day leaves earlier days unchanged, a late day recomputes itself and all
    later ones.

    Args:
        tables: tables that contain `log_queries`.
        output: receives `query_clusters` and `query_keys`.
        validation_share, test_from, seed: see `SplitRule`.
    """
    chain = chain_fingerprints(digests(tables.by_day("log_queries")))
    known_clusters = [TABLES["query_clusters"].empty()]
    done_days = [day for day, fingerprint in chain.items() if output.is_done(day, fingerprint)]
    for day in done_days:
        with output.unit(day, chain[day]) as unit:
            known_clusters.append(output.read_unit(unit, "query_clusters"))
    missing_days = [day for day in chain if day not in done_days]
    if missing_days:
        with tables.connect() as connection:
            clusters = pa.concat_tables(known_clusters).select(["tenant", "query_id", "cluster_id"])
            connection.register("known_clusters", clusters)
            known_keys = view(connection, output.current_tables("query_keys"), "query_keys")
            rule = SplitRule(validation_share, test_from, seed)
            relations = _assign_splits(connection, known_keys, missing_days[0], rule)
            for day in missing_days:
                numbers_sql = QUERY_NUMBERS_OF_A_DAY_SQL.format(**relations)
                bounds = connection.sql(numbers_sql, params={"day": day}).to_arrow_table().to_pylist()[0]
                with output.unit(day, chain[day]):
                    output.write_answer(
                        "query_clusters", connection, CLUSTERS_OF_A_DAY_SQL.format(**relations), {"day": day}
                    )
                    output.write_answer(
                        "query_keys", connection, KEYS_OF_A_DAY_SQL.format(**relations), {"day": day, **bounds}
                    )
    rows = sum(part.rows for part in output.parts["query_clusters"])
    output.count(FunnelStep("mined_splits", "queries", tables.rows("log_queries"), "queries", rows))


def _assign_splits(
    connection: duckdb.DuckDBPyConnection, known_keys: Relation, first: str, rule: SplitRule
) -> dict[str, Relation]:
    """Assign new queries to clusters and splits.

    Args:
        connection: a connection with the table log_queries, and `known_clusters`: the clusters of the queries before
            `first`.
        known_keys: rows of `query_keys` of the queries before `first`.
        first: first day of new queries.
        rule: how clusters are assigned to splits.

    Returns:
        Relations by placeholder name: `numbered_queries`, `query_splits` (splits of the new queries, and of those that
            share a key with one), `queries_in_both_splits` (new queries with near-duplicates in both) and `new_keys`.
    """
    numbered_queries = materialize(connection, NUMBERED_QUERIES_SQL)
    count_known_sql = f"SELECT count(*) FROM {numbered_queries} WHERE date < CAST($first AS DATE)"
    # Queries are numbered by date, so the number of known queries is the number of the first new one.
    new_bound = {"first_new": connection.sql(count_known_sql, params={"first": first}).fetchall()[0][0]}
    new_keys = near_keys(
        connection, materialize(connection, NEW_QUERIES_SQL, new_bound, numbered_queries=numbered_queries)
    )
    keys = materialize(
        connection, SHARED_KEYS_SQL, known_keys=known_keys, new_keys=new_keys, numbered_queries=numbered_queries
    )
    nearest_rows = connection.sql(NEAREST_QUERY_SQL.format(new_keys=new_keys, keys=keys)).to_arrow_table()
    known_clusters = connection.sql(KNOWN_CLUSTERS_SQL.format(numbered_queries=numbered_queries)).to_arrow_table()
    n_queries = connection.sql(f"SELECT count(*) FROM {numbered_queries}").fetchall()[0][0]
    links = [(known_clusters["n"], known_clusters["root"]), (nearest_rows["n"], nearest_rows["nearest"])]
    parents = build_parents(n_queries, links)
    connection.register(
        "cluster_roots", pa.table({"n": np.arange(n_queries), "nearest": parents, "root": find_roots(parents)})
    )
    query_splits = materialize(
        connection, QUERY_SPLITS_SQL, rule.parameters | new_bound, numbered_queries=numbered_queries, keys=keys
    )
    queries_in_both_splits = materialize(
        connection, QUERIES_IN_BOTH_SPLITS_SQL, keys=keys, new_keys=new_keys, query_splits=query_splits
    )
    return {
        "numbered_queries": numbered_queries,
        "query_splits": query_splits,
        "queries_in_both_splits": queries_in_both_splits,
        "new_keys": new_keys,
    }


def build_parents(size: int, links: Sequence[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> NDArray[np.int64]:
    """The number of the earlier query that each query joins, its own if there is none; shape (size,).

    Args:
        size: number of queries.
        links: pairs of arrays of equal length: query numbers, and the earlier queries that these join. A later pair
            overrides an earlier one.
    """
    parents = np.arange(size)
    for rows, joined in links:
        parents[rows.to_numpy()] = joined.to_numpy()
    return parents


def find_roots(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first query of each query's cluster, shape (n_queries,).

    Each pass replaces every parent by its parent (pointer doubling). It ends because a parent never comes after its
    child.
    """
    while not np.array_equal(grandparents := parents[parents], parents):
        parents = grandparents
    return parents
