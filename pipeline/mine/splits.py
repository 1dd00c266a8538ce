"""On which side each query of the log stands: near-duplicates on one, whatever night they come.

A query joins the earliest query that it is near to, and goes where the chain of these began; one that is near to
nobody earlier begins a chain of its own, whose side is drawn. So a later query never moves an earlier one. A query that
is near to earlier ones of both sides would carry words across: it stands on neither, and makes no triplet.
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
from darklode.schemas.tables import TABLES

MINED_SPLITS = Stage("mined_splits", 3, ("log_queries",), ("query_clusters", "query_keys"))

_LOTS = 2**64

NUMBERED = """
    SELECT row_number() OVER (ORDER BY date, tenant, query_id) - 1 AS n, tenant, query_id, normal_form AS text, date
    FROM log_queries
"""
OF_NEW = "SELECT * FROM {numbered} WHERE n >= $new"

# Keys of earlier queries lie in files by day: of these, what a new one has as well.
SHARED = """
    SELECT d.first + place AS n, key FROM (FROM {kept} SEMI JOIN {new} USING (key))
    JOIN (SELECT date, min(n) AS first FROM {numbered} GROUP BY date) d USING (date)
    UNION ALL FROM {new}
"""

NEAREST = """
    SELECT n, min(first) AS near FROM {new} JOIN (SELECT key, min(n) AS first FROM {keys} GROUP BY key) USING (key)
    GROUP BY n ORDER BY n
"""

STANDING = """
    SELECT q.n, c.n AS root FROM known k JOIN {numbered} q USING (tenant, query_id)
    JOIN {numbered} c ON c.tenant = k.tenant AND c.query_id = k.cluster_id
"""

SIDED = """
    SELECT q.*, CASE WHEN r.near < q.n THEN r.near END AS near, c.query_id AS cluster_id,
           CASE WHEN q.date >= CAST($test_from AS DATE) THEN 'test'
                WHEN md5_number_lower(concat_ws(chr(0), $seed, 'split', c.tenant, c.query_id)) / $lots < $validation
                THEN 'validation' ELSE 'train' END AS side
    FROM {numbered} q JOIN roots r USING (n) JOIN {numbered} c ON c.n = r.root
    WHERE q.n >= $new OR q.n IN (SELECT n FROM {keys})
"""

TORN = """
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
class SplitSides:
    """How sides are drawn.

    Attributes:
        validation_share: share of the chains that are for validation (ScalingNote, 4.1: 9:1).
        test_from: queries first searched on that day or later are test data; None: none are.
        seed: of the draw.
    """

    validation_share: float
    test_from: date | None
    seed: int

    @property
    def given(self) -> dict[str, object]:
        """The parameters of `SIDED`."""
        return {
            "validation": self.validation_share,
            "test_from": self.test_from or date.max,
            "seed": self.seed,
            "lots": _LOTS,
        }


def mined_splits(tables: Tables, output: Output, *, validation_share: float, test_from: date | None, seed: int) -> None:
    """Write the cluster, the side and the keys of each query, each day's queries in a unit of its own.

    A day's sides hang on the queries up to it: a new day leaves the earlier ones as they are, a late one redoes its own
    and all after it.

    Args:
        tables: holds `log_queries`.
        output: takes `query_clusters` and `query_keys`.
        validation_share: see `SplitSides`.
        test_from: see `SplitSides`.
        seed: see `SplitSides`.
    """
    chain = chain_fingerprints(digests(tables.by_day("log_queries")))
    previous, standing = (
        [TABLES["query_clusters"].empty()],
        [day for day, basis in chain.items() if output.is_done(day, basis)],
    )
    for day in standing:
        with output.unit(day, chain[day]) as unit:
            previous.append(output.read_unit(unit, "query_clusters"))
    missing = [day for day in chain if day not in standing]
    if missing:
        with tables.connect() as connection:
            connection.register("known", pa.concat_tables(previous).select(["tenant", "query_id", "cluster_id"]))
            known_keys = view(connection, output.current_tables("query_keys"), "query_keys")
            sided = _assign_sides(connection, known_keys, missing[0], SplitSides(validation_share, test_from, seed))
            for day in missing:
                bounds = connection.sql(BOUNDS.format(**sided), params={"day": day}).to_arrow_table().to_pylist()[0]
                with output.unit(day, chain[day]):
                    output.write_answer("query_clusters", connection, OF_A_DAY.format(**sided), {"day": day})
                    output.write_answer("query_keys", connection, KEYS_OF_A_DAY.format(**sided), {"day": day, **bounds})
    rows = sum(part.rows for part in output.parts["query_clusters"])
    output.count(FunnelStep("mined_splits", "queries", tables.rows("log_queries"), "queries", rows))


def _assign_sides(
    connection: duckdb.DuckDBPyConnection, known_keys: Relation, first: str, sides: SplitSides
) -> dict[str, Relation]:
    """The queries with their sides, those that stand on neither, and the new ones' keys.

    Args:
        connection: with the table log_queries, and `known`: the clusters of the queries before `first`.
        known_keys: `query_keys` of these.
        first: the day from which on queries are new.
        sides: how sides are drawn.

    Returns:
        `numbered`, `sided` (of the new queries, and of those that share a key with one), `torn` and `new`.
    """
    numbered = materialize(connection, NUMBERED)
    before = f"SELECT count(*) FROM {numbered} WHERE date < CAST($first AS DATE)"
    new = {"new": connection.sql(before, params={"first": first}).fetchall()[0][0]}
    new_keys = near_keys(connection, materialize(connection, OF_NEW, new, numbered=numbered))
    keys = materialize(connection, SHARED, kept=known_keys, new=new_keys, numbered=numbered)
    nearest_rows = connection.sql(NEAREST.format(new=new_keys, keys=keys)).to_arrow_table()
    standing = connection.sql(STANDING.format(numbered=numbered)).to_arrow_table()
    size = connection.sql(f"SELECT count(*) FROM {numbered}").fetchall()[0][0]
    parents = chains(size, [(standing["n"], standing["root"]), (nearest_rows["n"], nearest_rows["near"])])
    connection.register("roots", pa.table({"n": np.arange(size), "near": parents, "root": roots(parents)}))
    sided = materialize(connection, SIDED, sides.given | new, numbered=numbered, keys=keys)
    torn = materialize(connection, TORN, keys=keys, new=new_keys, sided=sided)
    return {"numbered": numbered, "sided": sided, "torn": torn, "new": new_keys}


def chains(size: int, links: Sequence[tuple[pa.ChunkedArray, pa.ChunkedArray]]) -> NDArray[np.int64]:
    """For each of `size` queries the earlier one that it joins, its own number where there is none; from pairs."""
    parents = np.arange(size)
    for rows, joined in links:
        parents[rows.to_numpy()] = joined.to_numpy()
    return parents


def roots(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each chain began: a parent is never later than its child, so doubling the steps ends."""
    while not np.array_equal(further := parents[parents], parents):
        parents = further
    return parents
