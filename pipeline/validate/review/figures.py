"""What a review estimates: the judge's precision, or a measure of systems, with the interval of the labels so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.label_weights import STRATA_SQL, weigh_labels
from darklode.pipeline.base.measure_influence import ExpectedMeasure, UncertainLabels, measure_influence
from darklode.pipeline.base.prediction_powered import LabelSample, calibrate, correct_mean
from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.validate.estimates import LabelledStrata, estimate, merge_empty
from darklode.pipeline.validate.purposes import Purpose, bounded_probability_sql
from darklode.pipeline.validate.review.journal import pair_name
from darklode.pipeline.validate.review.stopping import ReviewFigure

MEASURE = "nDCG@10"
DRAWS, SEED = 2000, 0


def figure_of(tables: Tables, purpose: Purpose) -> ReviewFigure | None:
    """What a review with this purpose estimates; None if its labels are for fitting.

    Args:
        tables: must contain `review_sample`, `review_strata`, `pool`, `verdicts`, `queries` and, to `evaluate`,
            `held_out`; with adaptive judging also `unjudged`.
        purpose: of the review.
    """
    if purpose == "validate":
        return JudgePrecision.from_tables(tables)
    return SystemMeasure.from_tables(tables) if purpose == "evaluate" else None


@dataclass(frozen=True)
class SampledPairs:
    """The sample; arrays of shape (n_sampled,).

    Attributes:
        names: of the pairs.
        query: query of each pair, from 0.
        stratum: position of its stratum in `review_strata`.
    """

    names: list[str]
    query: Ints
    stratum: Ints

    def labels(self, labels: dict[str, float]) -> Doubles:
        """Label of each pair, NaN if it has none."""
        return np.array([labels.get(name, np.nan) for name in self.names])

    def n_queries(self, rows: NDArray[np.bool_]) -> int:
        """Number of queries of the pairs in a mask."""
        return len(np.unique(self.query[rows]))


SAMPLE_SQL = """
    SELECT tenant, query_id, chunk_id, dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query, strata.position
    FROM review_sample JOIN (SELECT DISTINCT stratum, position FROM review_strata) strata USING (stratum)
    ORDER BY tenant, query_id, chunk_id
"""


def sampled_pairs(tables: Tables) -> SampledPairs:
    """Read the sample."""
    rows = tables.sql(SAMPLE_SQL)
    ids = zip(*(rows[name].to_pylist() for name in ("tenant", "query_id", "chunk_id")), strict=True)
    query, stratum = (rows[name].to_numpy().astype(np.int64) for name in ("query", "position"))
    return SampledPairs([pair_name(*pair_ids) for pair_ids in ids], query, stratum)


@dataclass(frozen=True)
class JudgePrecision:
    """Precision of the judge's positives, as `darklode validate` estimates it.

    Attributes:
        sample: the sampled pairs.
        pairs: number of pairs in the run per stratum, shape (n_strata,).
        is_found: whether the judge calls the stratum relevant, same shape.
        n_queries: number of queries in the run.
    """

    sample: SampledPairs
    pairs: Ints
    is_found: NDArray[np.bool_]
    n_queries: int
    name = "precision of the judge"

    @classmethod
    def from_tables(cls, tables: Tables) -> JudgePrecision:
        """Read the sample and its strata."""
        strata = tables.sql(STRATA_SQL)
        return cls(
            sampled_pairs(tables),
            strata["pairs"].to_numpy(),
            strata["is_found"].to_numpy(),
            tables.rows("queries"),
        )

    def half_width(self, labels: dict[str, float]) -> float:
        label = self.sample.labels(labels)
        is_labelled = np.isfinite(label)
        if not is_labelled.any():
            return float("nan")
        shape = (int(self.sample.query.max()) + 1, len(self.pairs))
        labelled, relevant = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        cells = (self.sample.query[is_labelled], self.sample.stratum[is_labelled])
        np.add.at(labelled, cells, 1)
        np.add.at(relevant, cells, label[is_labelled] > 0)
        strata = LabelledStrata(self.pairs, self.is_found, labelled, relevant)
        if not merge_empty(strata)[0].is_found.any():
            return float("nan")
        query_share = self.sample.n_queries(is_labelled) / self.n_queries
        interval = estimate(strata, query_share, np.random.default_rng(SEED), DRAWS).precision
        return (interval.high - interval.low) / 2


# The queries of `evaluate`: see `evaluate.test_queries`.
MEASURED_PAIRS_SQL = """
    CREATE TEMP TABLE measured_pairs AS
    SELECT p.tenant, p.query_id, p.chunk_id, {probability} AS probability,
           coalesce(CAST(q.cluster_id AS VARCHAR), p.query_id) AS "group",
           dense_rank() OVER (ORDER BY p.tenant, p.query_id) - 1 AS query,
           row_number() OVER (PARTITION BY p.tenant, p.query_id ORDER BY fused_score DESC, p.chunk_id) AS rank,
           row_number() OVER (ORDER BY p.tenant, p.query_id, p.chunk_id) - 1 AS row
    FROM pool p JOIN queries q USING (tenant, query_id) LEFT JOIN verdicts v USING (tenant, query_id, chunk_id) {join}
    SEMI JOIN (FROM held_out WHERE split = 'test') USING (tenant, query_id)
"""
MEASURED_SAMPLE_SQL = """
    SELECT coalesce(row, -1) AS row FROM review_sample LEFT JOIN measured_pairs USING (tenant, query_id, chunk_id)
    ORDER BY tenant, query_id, chunk_id
"""
CLUSTERS_SQL = """
    SELECT dense_rank() OVER (ORDER BY tenant, "group") - 1 AS cluster
    FROM (SELECT DISTINCT query, tenant, "group" FROM measured_pairs) ORDER BY query
"""


@dataclass(frozen=True)
class SystemMeasure:
    """Mean nDCG@10 of the pool's fused ranking over the queries that `evaluate` uses, corrected by people's labels.

    Attributes:
        sample: the sampled pairs.
        stratum_pairs: number of pairs in the run per stratum.
        is_found: whether the judge calls the stratum relevant, same shape.
        query: query of each pair of these queries, from 0.
        cluster: cluster of each of these queries, from 0.
        row: row of each sampled pair among these pairs, -1 if it is of another query.
        score: log-odds of the judge's probability of each pair.
        measure: expected measure and influences under the judge's probabilities.
    """

    sample: SampledPairs
    stratum_pairs: Ints
    is_found: NDArray[np.bool_]
    query: Ints
    cluster: Ints
    row: Ints
    score: Doubles
    measure: ExpectedMeasure

    @property
    def name(self) -> str:
        return f"{MEASURE} of the fused ranking on these {len(self.cluster):,} test queries with a positive"

    @classmethod
    def from_tables(cls, tables: Tables) -> SystemMeasure | None:
        """Read the pairs of the test queries with a positive; None without any."""
        probability, join = "v.probability", ""
        if "unjudged" in tables:
            probability = "coalesce(v.probability, u.probability)"
            join = "LEFT JOIN unjudged u USING (tenant, query_id, chunk_id)"
        with tables.connect() as connection:
            bounded = bounded_probability_sql(probability)
            connection.execute(MEASURED_PAIRS_SQL.format(probability=bounded, join=join))
            pairs = connection.sql("FROM measured_pairs ORDER BY row").to_arrow_table()
            rows = connection.sql(MEASURED_SAMPLE_SQL).to_arrow_table()["row"]
            clusters = connection.sql(CLUSTERS_SQL).to_arrow_table()["cluster"]
        if not pairs.num_rows:
            return None
        query, rank = (pairs[name].to_numpy().astype(np.int64) for name in ("query", "rank"))
        probabilities = pairs["probability"].to_numpy().astype(np.float64)
        strata = tables.sql(STRATA_SQL)
        return cls(
            sampled_pairs(tables),
            strata["pairs"].to_numpy(),
            strata["is_found"].to_numpy(),
            query,
            clusters.to_numpy().astype(np.int64),
            rows.to_numpy().astype(np.int64),
            logit(probabilities),
            measure_influence(MEASURE, rank, UncertainLabels(query, probabilities, len(clusters))),
        )

    def half_width(self, labels: dict[str, float]) -> float:
        sampled_label = self.sample.labels(labels)
        is_labelled = np.isfinite(sampled_label)
        stratum_of_label = self.sample.stratum[is_labelled]
        sampled_weight = np.full(len(is_labelled), np.nan)
        sampled_weight[is_labelled] = weigh_labels(stratum_of_label, self.stratum_pairs, self.is_found)
        used = is_labelled & (self.row >= 0)
        if not used.any():
            return float("nan")
        n = len(self.query)
        label, weight, stratum = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int64)
        rows = self.row[used]
        label[rows], weight[rows], stratum[rows] = sampled_label[used], sampled_weight[used], self.sample.stratum[used]
        # Pairs are labelled query by query: the labels of an unfinished review are those of a part of the queries.
        query_share = self.sample.n_queries(is_labelled) / self.sample.n_queries(np.ones(len(is_labelled), bool))
        stratum_labels = np.bincount(stratum_of_label, minlength=len(self.stratum_pairs)).astype(np.int64)
        sample = LabelSample(self.query, label, weight, stratum, self.cluster, query_share, stratum_labels)
        interval = correct_mean(sample, calibrate(sample, self.score, SEED), self.measure)
        return (interval.high - interval.low) / 2
