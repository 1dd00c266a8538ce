"""The pairs of a pool and the review sample drawn from them: turns people's labels into a `LabelSample`."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow.compute as pc

from darklode.pipeline.base.label_weights import STRATA_SQL, weigh_labels
from darklode.pipeline.base.prediction_powered import LabelSample
from darklode.pipeline.base.types import Doubles, Ints, Mask

# `query` is the number of the pair's query in the order of tenant and query_id.
_POOL_SQL = """
    CREATE TEMP TABLE sampled_pool AS
    SELECT p.tenant, p.query_id, p.chunk_id, v.relevant, {probability} AS probability, s.position AS stratum,
           coalesce(CAST(q.cluster_id AS VARCHAR), p.query_id) AS "group",
           dense_rank() OVER (ORDER BY p.tenant, p.query_id) - 1 AS query, {columns}
    FROM pool p JOIN queries q USING (tenant, query_id) LEFT JOIN verdicts v USING (tenant, query_id, chunk_id)
    LEFT JOIN review_sample r USING (tenant, query_id, chunk_id)
    LEFT JOIN (SELECT DISTINCT stratum, position FROM review_strata) s USING (stratum)
    {unjudged} {joins}
"""
_UNJUDGED_SQL = "LEFT JOIN unjudged u USING (tenant, query_id, chunk_id)"
_QUERY_AND_STRATUM_SQL = "SELECT query, stratum FROM sampled_pool ORDER BY tenant, query_id, chunk_id"
_CLUSTERS_SQL = """
    SELECT dense_rank() OVER (ORDER BY tenant, "group") - 1 AS cluster
    FROM (SELECT DISTINCT query, tenant, "group" FROM sampled_pool) ORDER BY query
"""


@dataclass(frozen=True)
class SampledPool:
    """Pairs of a pool, some of them in the review sample.

    Attributes:
        query: query of each pair, from 0, sorted, shape (n_pairs,).
        stratum: position of the pair's stratum in `review_strata`, -1 outside the sample, shape (n_pairs,).
        cluster: cluster of each query, from 0, shape (n_queries,).
        stratum_pairs: number of pairs in the run per stratum, shape (n_strata,).
        is_found: whether the judge calls the stratum relevant, same shape.
    """

    query: Ints
    stratum: Ints
    cluster: Ints
    stratum_pairs: Ints
    is_found: Mask

    @classmethod
    def read(
        cls, connection: duckdb.DuckDBPyConnection, *, columns: str, joins: str = "", has_unjudged: bool = False
    ) -> SampledPool:
        """Read the pairs in the order of tenant, query_id and chunk_id, and create their table `sampled_pool`.

        The table has the columns tenant, query_id, chunk_id, relevant (the verdict), probability (the judge's, or that
        predicted for an unjudged pair; null if the verdict is unreadable), stratum, group, query, and more.

        Args:
            connection: to the tables `pool`, `queries`, `verdicts`, `review_sample` and `review_strata`.
            columns: SQL of more columns; the tables are `p`, `q`, `v`, `r` and `s` in this order.
            joins: SQL of more joins, and of a condition on the pairs; the sample must be among them.
            has_unjudged: whether `unjudged` is one of the tables.
        """
        probability = "CASE WHEN v.relevant IS NOT NULL THEN v.probability END"
        if has_unjudged:
            probability = f"coalesce({probability}, u.probability)"
        unjudged = _UNJUDGED_SQL if has_unjudged else ""
        connection.execute(_POOL_SQL.format(probability=probability, columns=columns, unjudged=unjudged, joins=joins))
        rows = connection.sql(_QUERY_AND_STRATUM_SQL).to_arrow_table()
        strata = connection.sql(STRATA_SQL).to_arrow_table()
        return cls(
            rows["query"].to_numpy().astype(np.int64),
            pc.fill_null(rows["stratum"], -1).to_numpy().astype(np.int64),
            connection.sql(_CLUSTERS_SQL).to_arrow_table()["cluster"].to_numpy().astype(np.int64),
            strata["pairs"].to_numpy(),
            strata["is_found"].to_numpy(),
        )

    def label(self, label: Doubles) -> LabelSample:
        """Add people's labels, with the number of pairs that each stands for.

        Args:
            label: 1 relevant, 0 not relevant, NaN not labelled; labels outside the sample are not used, shape
                (n_pairs,).
        """
        is_labelled = np.isfinite(label) & (self.stratum >= 0)
        weight = np.full(len(label), np.nan)
        weight[is_labelled] = weigh_labels(self.stratum[is_labelled], self.stratum_pairs, self.is_found)
        label = np.where(is_labelled, label, np.nan)
        stratum = np.maximum(self.stratum, 0)
        return LabelSample(self.query, label, weight, stratum, self.cluster).with_query_share()
