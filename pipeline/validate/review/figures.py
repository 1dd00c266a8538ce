"""What a review estimates: the judge's precision, or a measure of systems, with the interval of the labels so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.measure_influence import ExpectedMeasure, UncertainLabels, measure_influence
from darklode.pipeline.base.prediction_powered import LabelSample, calibrate, correct_mean
from darklode.pipeline.base.types import Doubles, Ints
from darklode.pipeline.validate.estimates import LabelledStrata, estimate, merge_empty
from darklode.pipeline.validate.purposes import Purpose, bounded_probability_sql
from darklode.pipeline.validate.review.journal import pair_name
from darklode.pipeline.validate.review.stopping import ReviewFigure

MEASURE = "nDCG@10"
MAX_QUERIES = 5000
"""Maximum number of test queries for which the measure's interval is computed while people wait."""
DRAWS, SEED = 2000, 0


def figure_of(tables: Tables, purpose: Purpose) -> ReviewFigure | None:
    """What a review with this purpose estimates; None if its labels are for fitting.

    Args:
        tables: must contain `review_sample`, `review_strata`, `pool`, `verdicts` and `queries`.
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
STRATA_SQL = """
    SELECT position, verdict, sum(pairs) AS pairs FROM review_strata WHERE retriever IS NULL
    GROUP BY position, verdict ORDER BY position
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
            strata["pairs"].cast("int64").to_numpy(),
            np.array([verdict == "relevant" for verdict in strata["verdict"].to_pylist()]),
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


MEASURED_PAIRS_SQL = f"""
    SELECT tenant, query_id, chunk_id, dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query,
           {bounded_probability_sql("v.probability")} AS probability,
           row_number() OVER (PARTITION BY tenant, query_id ORDER BY fused_score DESC, chunk_id) AS rank
    FROM pool LEFT JOIN verdicts v USING (tenant, query_id, chunk_id)
    SEMI JOIN (FROM queries WHERE split = 'test') USING (tenant, query_id)
    ORDER BY tenant, query_id, chunk_id
"""


@dataclass(frozen=True)
class SystemMeasure:
    """Mean nDCG@10 over the test queries of the fused ranking of the pool, corrected by people's labels.

    Attributes:
        sample: the sampled pairs.
        stratum_pairs: number of pairs in the run per stratum.
        query: query of each pair of the test queries, from 0.
        row: its row of each sampled pair, -1 if its query is no test query.
        score: log-odds of the judge's probability of each pair.
        measure: expected measure and influences under the judge's probabilities.
    """

    sample: SampledPairs
    stratum_pairs: Ints
    query: Ints
    row: Ints
    score: Doubles
    measure: ExpectedMeasure
    name = f"{MEASURE} of the fused ranking"

    @classmethod
    def from_tables(cls, tables: Tables) -> SystemMeasure | None:
        """Read the test queries' pairs; None without test queries, or with more than `MAX_QUERIES`."""
        n_queries = len(tables.sql("SELECT DISTINCT tenant, query_id FROM queries WHERE split = 'test'"))
        pairs, sample = tables.sql(MEASURED_PAIRS_SQL), sampled_pairs(tables)
        if not pairs.num_rows or n_queries > MAX_QUERIES:
            return None
        ids = zip(*(pairs[name].to_pylist() for name in ("tenant", "query_id", "chunk_id")), strict=True)
        row_of = {pair_name(*pair_ids): row for row, pair_ids in enumerate(ids)}
        query, rank = (pairs[name].to_numpy().astype(np.int64) for name in ("query", "rank"))
        probability = pairs["probability"].to_numpy().astype(np.float64)
        labels = UncertainLabels(query, probability, int(query.max()) + 1)
        return cls(
            sample,
            tables.sql(STRATA_SQL)["pairs"].cast("int64").to_numpy(),
            query,
            np.array([row_of.get(name, -1) for name in sample.names]),
            logit(probability),
            measure_influence(MEASURE, rank, labels),
        )

    def half_width(self, labels: dict[str, float]) -> float:
        sampled_label = self.sample.labels(labels)
        is_labelled = np.isfinite(sampled_label)
        n_labelled = np.bincount(self.sample.stratum[is_labelled], minlength=len(self.stratum_pairs))
        sampled_weight = (self.stratum_pairs / np.maximum(n_labelled, 1))[self.sample.stratum]
        used = is_labelled & (self.row >= 0)
        if not used.any():
            return float("nan")
        n = len(self.query)
        label, weight, stratum = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.int64)
        rows = self.row[used]
        label[rows], weight[rows], stratum[rows] = sampled_label[used], sampled_weight[used], self.sample.stratum[used]
        # Pairs are labelled query by query: the labels of an unfinished review are those of a part of the queries.
        query_share = self.sample.n_queries(is_labelled) / self.sample.n_queries(np.ones(len(is_labelled), bool))
        sample = LabelSample(self.query, label, weight, stratum, np.arange(int(self.query.max()) + 1), query_share)
        interval = correct_mean(sample, calibrate(sample, self.score, SEED), self.measure)
        return (interval.high - interval.low) / 2
