"""Train/validation split of a growing log: near-duplicate queries are in the same split.

A query joins the cluster of the earliest query that it is a near-duplicate of; without one it starts a cluster, whose
split is drawn at random. A later query therefore never moves an earlier one. A query with near-duplicates in both
splits would leak, so it is in neither and makes no triplet.
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
from darklode.pipeline.mine.tiers import LOTS
from darklode.schemas.tables import TABLES

MINED_SPLITS = Stage("mined_splits", 3, ("log_queries",), ("query_clusters", "query_keys"))

NUMBERED = """
    SELECT row_number() OVER (ORDER BY date, tenant, query_id) - 1 AS n, tenant, query_id, normal_form AS text, date
    FROM log_queries
"""
OF_NEW = "SELECT * FROM {numbered} WHERE n >= $new"

# Keys of earlier queries are in files by day; only those that a new query shares are needed.
SHARED = """
    SELECT d.first + place AS n, key FROM (FROM {kept} SEMI JOIN {new} USING (key))
    JOIN (SELECT date, min(n) AS first FROM {numbered} GROUP BY date) d USING (date)
    UNION ALL FROM {new}
"""

NEAREST = """
    SELECT n, min(first) AS near FROM {new} JOIN (SELECT key, min(n) AS first FROM {keys} GROUP BY key) USING (key)
    GROUP BY n ORDER BY n
"""

KNOWN_CLUSTERS = """
    SELECT q.n, c.n AS root FROM known k JOIN {numbered} q USING (tenant, query_id)
    JOIN {numbered} c ON c.tenant = k.tenant AND c.query_id = k.cluster_id
"""

QUERY_SPLITS = """
    SELECT q.*, CASE WHEN r.near < q.n THEN r.near END AS near, c.query_id AS cluster_id,
           CASE WHEN q.date >= CAST($test_from AS DATE) THEN 'test'
                WHEN md5_number_lower(concat_ws(chr(0), $seed, 'split', c.tenant, c.query_id)) / $lots < $validation
                THEN 'validation' ELSE 'train' END AS side
    FROM {numbered} q JOIN roots r USING (n) JOIN {numbered} c ON c.n = r.root
    WHERE q.n >= $new OR q.n IN (SELECT n FROM {keys})
"""

IN_BOTH_SPLITS = """
    WITH firsts AS (
        SELECT key, min(n) FILTER (side = 'train') AS train, min(n) FILTER (side = 'validation') AS validation
        FROM {keys} JOIN {sided} USING (n) GROUP BY key
    )
    SELECT DISTINCT n FROM {new} JOIN {sided} USING (n) JOIN firsts USING (key)
    WHERE (side = 'train' AND validation < n) OR (side = 'validation' AND train < n)
"""

OF_A_DAY = """
    SELECT s.tenant, s.query_id, s.date, p.query_id AS near_query_id, s.cluster_id,
           CASE WHEN t.n IS NULL THEN s.side END AS split
    FROM {sided} s LEFT JOIN {numbered} p ON p.n = s.near LEFT JOIN {torn} t ON t.n = s.n
    WHERE s.date = CAST($day AS DATE) ORDER BY s.tenant, s.query_id
"""

KEYS_OF_A_DAY = """
    SELECT DISTINCT CAST($day AS DATE) AS date, CAST(n - $first AS INTEGER) AS place, key
    FROM {new} WHERE n >= $first AND n < $end ORDER BY place, key
"""

BOUNDS = "SELECT min(n) AS first, max(n) + 1 AS end FROM {numbered} WHERE date = CAST($day AS DATE)"


@dataclass(frozen=True)
class SplitRule:
    """How clusters are assigned to splits.

    Attributes:
        validation_share: share of the clusters assigned to validation (ScalingNote, 4.1, has train:validation 9:1).
        test_from: first day of the test period; queries first searched on that day or later are test data. None: no
            test period.
        seed: seed of the random assignment; another seed moves queries between train and validation.
    """

    validation_share: float
    test_from: date | None
    seed: int

    @property
    def parameters(self) -> dict[str, object]:
        """SQL parameters of `QUERY_SPLITS`."""
        return {
            "validation": self.validation_share,
            "test_from": self.test_from or date.max,
            "seed": self.seed,
            "lots": LOTS,
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
            known = pa.concat_tables(known_clusters).select(["tenant", "query_id", "cluster_id"])
            connection.register("known", known)
            known_keys = view(connection, output.current_tables("query_keys"), "query_keys")
            rule = SplitRule(validation_share, test_from, seed)
            relations = _assign_splits(connection, known_keys, missing_days[0], rule)
            for day in missing_days:
                bounds = connection.sql(BOUNDS.format(**relations), params={"day": day}).to_arrow_table().to_pylist()[0]
                with output.unit(day, chain[day]):
                    output.write_answer("query_clusters", connection, OF_A_DAY.format(**relations), {"day": day})
                    output.write_answer(
                        "query_keys", connection, KEYS_OF_A_DAY.format(**relations), {"day": day, **bounds}
                    )
    rows = sum(part.rows for part in output.parts["query_clusters"])
    output.count(FunnelStep("mined_splits", "queries", tables.rows("log_queries"), "queries", rows))


def _assign_splits(
    connection: duckdb.DuckDBPyConnection, known_keys: Relation, first: str, rule: SplitRule
) -> dict[str, Relation]:
    """Assign new queries to clusters and splits.

    Args:
        connection: a connection with the table log_queries, and `known`: the clusters of the queries before `first`.
        known_keys: rows of `query_keys` of the queries before `first`.
        first: first day of new queries.
        rule: how clusters are assigned to splits.

    Returns:
        Relations by name: `numbered`, `sided` (splits of the new queries, and of those that share a key with one),
            `torn` (near-duplicates in both splits) and `new` (keys of new queries).
    """
    numbered = materialize(connection, NUMBERED)
    count_known_sql = f"SELECT count(*) FROM {numbered} WHERE date < CAST($first AS DATE)"
    # Queries are numbered by date, so the number of known queries is the number of the first new one.
    first_new = {"new": connection.sql(count_known_sql, params={"first": first}).fetchall()[0][0]}
    new_keys = near_keys(connection, materialize(connection, OF_NEW, first_new, numbered=numbered))
    keys = materialize(connection, SHARED, kept=known_keys, new=new_keys, numbered=numbered)
    nearest_rows = connection.sql(NEAREST.format(new=new_keys, keys=keys)).to_arrow_table()
    known_clusters = connection.sql(KNOWN_CLUSTERS.format(numbered=numbered)).to_arrow_table()
    n_queries = connection.sql(f"SELECT count(*) FROM {numbered}").fetchall()[0][0]
    links = [(known_clusters["n"], known_clusters["root"]), (nearest_rows["n"], nearest_rows["near"])]
    parents = build_parents(n_queries, links)
    connection.register("roots", pa.table({"n": np.arange(n_queries), "near": parents, "root": find_roots(parents)}))
    sided = materialize(connection, QUERY_SPLITS, rule.parameters | first_new, numbered=numbered, keys=keys)
    torn = materialize(connection, IN_BOTH_SPLITS, keys=keys, new=new_keys, sided=sided)
    return {"numbered": numbered, "sided": sided, "torn": torn, "new": new_keys}


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
