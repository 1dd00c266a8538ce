"""What a review estimates: the judge's precision, or a measure of systems, with the interval of the labels so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import logit

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.label_weights import STRATA_SQL
from darklode.pipeline.base.measure_influence import ExpectedMeasure, UncertainLabels, measure_influence
from darklode.pipeline.base.prediction_powered import calibrate, correct_mean
from darklode.pipeline.base.sampled_pool import SampledPool
from darklode.pipeline.base.types import Doubles, Ints, Mask
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


SAMPLE_SQL = """
    SELECT tenant, query_id, chunk_id, dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query, strata.position
    FROM review_sample JOIN (SELECT DISTINCT stratum, position FROM review_strata) strata USING (stratum)
    ORDER BY tenant, query_id, chunk_id
"""


def sampled_pairs(tables: Tables) -> SampledPairs:
    """Read the sample."""
    rows = tables.sql(SAMPLE_SQL)
    query, stratum = (rows[name].to_numpy().astype(np.int64) for name in ("query", "position"))
    return SampledPairs(_names(rows), query, stratum)


def _names(rows: pa.Table) -> list[str]:
    """Names of pairs by their ids."""
    ids = zip(*(rows[name].to_pylist() for name in ("tenant", "query_id", "chunk_id")), strict=True)
    return [pair_name(*pair_ids) for pair_ids in ids]


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
        query, stratum = self.sample.query[is_labelled], self.sample.stratum[is_labelled]
        strata = LabelledStrata.count(self.pairs, self.is_found, query, stratum, label[is_labelled] > 0)
        if not merge_empty(strata)[0].is_found.any():
            return float("nan")
        query_share = len(np.unique(query)) / self.n_queries
        interval = estimate(strata, query_share, np.random.default_rng(SEED), DRAWS).precision
        return (interval.high - interval.low) / 2


# The queries of `evaluate`: see `evaluate.test_queries`.
MEASURED_COLUMNS_SQL = """
    t.query_id IS NOT NULL AS is_measured,
    row_number() OVER (PARTITION BY p.tenant, p.query_id ORDER BY p.fused_score DESC, p.chunk_id) AS rank
"""
MEASURED_PAIRS_SQL = """
    LEFT JOIN (FROM held_out WHERE split = 'test') t USING (tenant, query_id)
    WHERE t.query_id IS NOT NULL OR s.position IS NOT NULL
"""
ORDERED_PAIRS_SQL = f"""
    SELECT tenant, query_id, chunk_id, is_measured, rank, {bounded_probability_sql("probability")} AS bounded
    FROM sampled_pool v ORDER BY tenant, query_id, chunk_id
"""


@dataclass(frozen=True)
class SystemMeasure:
    """Mean nDCG@10 of the pool's fused ranking over the queries that `evaluate` uses, corrected by people's labels.

    Attributes:
        pool: pairs of these queries, and the sampled pairs of others.
        names: names of the sampled pairs, in the order of the pool.
        is_measured: whether each pair is of one of these queries.
        score: log-odds of the judge's probability of each pair of these queries.
        measure: expected measure and influences under the judge's probabilities.
    """

    pool: SampledPool
    names: list[str]
    is_measured: Mask
    score: Doubles
    measure: ExpectedMeasure

    @property
    def name(self) -> str:
        n_queries = len(self.measure.expected)
        return f"{MEASURE} of the fused ranking on these {n_queries:,} test queries with a positive"

    @classmethod
    def from_tables(cls, tables: Tables) -> SystemMeasure | None:
        """Read the pairs of the test queries with a positive; None without any."""
        with tables.connect() as connection:
            pool = SampledPool.read(
                connection,
                columns=MEASURED_COLUMNS_SQL,
                joins=MEASURED_PAIRS_SQL,
                has_unjudged="unjudged" in tables,
            )
            pairs = connection.sql(ORDERED_PAIRS_SQL).to_arrow_table()
        is_measured = pairs["is_measured"].to_numpy()
        if not is_measured.any():
            return None
        probability = pairs["bounded"].to_numpy().astype(np.float64)[is_measured]
        rank = pairs["rank"].to_numpy().astype(np.int64)[is_measured]
        queries, query = np.unique(pool.query[is_measured], return_inverse=True)
        labels = UncertainLabels(query.astype(np.int64), probability, len(queries))
        return cls(
            pool,
            _names(pairs.filter(pa.array(pool.stratum >= 0))),
            is_measured,
            logit(probability),
            measure_influence(MEASURE, rank, labels),
        )

    def half_width(self, labels: dict[str, float]) -> float:
        label = np.full(len(self.pool.query), np.nan)
        label[self.pool.stratum >= 0] = [labels.get(name, np.nan) for name in self.names]
        sample = self.pool.label(label).take_queries(self.is_measured)
        if not sample.is_labelled.any():
            return float("nan")
        interval = correct_mean(sample, calibrate(sample, self.score, SEED), self.measure)
        return (interval.high - interval.low) / 2
