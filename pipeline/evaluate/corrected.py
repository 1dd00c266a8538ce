"""The stages `corrected_audit` and `corrected_evaluation`: figures of retrievers and systems by the judge's labels,
corrected by the labels that people gave to a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.finite import finite_or_none
from darklode.pipeline.base.majority_labels import MAJORITY_LABELS_SQL
from darklode.pipeline.base.measure_influence import UncertainLabels, is_supported, measure_influence
from darklode.pipeline.base.prediction_powered import (
    Calibration,
    CorrectedEstimate,
    LabelSample,
    calibrate,
    correct_mean,
    correct_ratio,
)
from darklode.pipeline.base.sampled_pool import SampledPool
from darklode.pipeline.base.types import Doubles, Ints, Mask, Row
from darklode.pipeline.judge.logistic import log_odds
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.evaluation_tables import CORRECTED_AUDIT, CORRECTED_EVALUATION

_READS = ("queries", "pool", "verdicts", "review_sample", "review_strata", "reviews")
CORRECTED_AUDIT_STAGE = Stage("corrected_audit", 4, (*_READS, "rankings"), (CORRECTED_AUDIT.name,))
CORRECTED_EVALUATION_STAGE = Stage(
    "corrected_evaluation", 4, (*_READS, "test_queries", "test_rankings"), (CORRECTED_EVALUATION.name,)
)
"""With adaptive judging, both also read `unjudged`."""

HARD_LABEL_PROBABILITIES = (0.1, 0.9)
"""Probabilities of not relevant and relevant verdicts without one; calibration replaces them, only their order counts
beside verdicts with a probability."""

LABEL_COLUMNS_SQL = "h.relevance > 0 AS label, dense_rank() OVER (ORDER BY p.tenant) - 1 AS tenant_number"
LABELS_SQL = f"LEFT JOIN ({MAJORITY_LABELS_SQL}) h USING (tenant, query_id, chunk_id)"
ORDERED_PAIRS_SQL = "FROM sampled_pool ORDER BY tenant, query_id, chunk_id"
TENANTS_SQL = "SELECT DISTINCT tenant FROM sampled_pool ORDER BY tenant"
TEST_PAIRS_SQL = """
    SELECT t.query_id IS NOT NULL AS is_test FROM sampled_pool p LEFT JOIN test_queries t USING (tenant, query_id)
    ORDER BY p.tenant, p.query_id, p.chunk_id
"""
RANKS_SQL = """
    SELECT coalesce(r.rank, 0) AS rank FROM sampled_pool p
    LEFT JOIN (SELECT tenant, query_id, {text} AS chunk_id, rank FROM {table} WHERE {system} = $system) r
    USING (tenant, query_id, chunk_id) ORDER BY p.tenant, p.query_id, p.chunk_id
"""


@dataclass(frozen=True)
class LabelledPool:
    """The pairs of the pool with their labels; arrays of shape (n_pairs,).

    Attributes:
        sample: the pairs, and people's labels of the sample.
        score: the judge's log-odds of relevance, those predicted for pairs that adaptive judging skipped, and the mean
            for pairs with neither.
        judged: 1 where the judge says relevant, else 0.
        tenant: tenant of each pair, from 0, sorted.
        tenants: names of the tenants.
    """

    sample: LabelSample
    score: Doubles
    judged: Doubles
    tenant: Ints
    tenants: list[str]

    @classmethod
    def read(cls, connection: duckdb.DuckDBPyConnection, *, has_unjudged: bool = False) -> LabelledPool:
        """Read the pairs of a run, and create the table `sampled_pool`.

        Args:
            connection: to the tables of the stage.
            has_unjudged: whether `unjudged` is one of them.
        """
        pairs = SampledPool.read(connection, columns=LABEL_COLUMNS_SQL, joins=LABELS_SQL, has_unjudged=has_unjudged)
        rows = connection.sql(ORDERED_PAIRS_SQL).to_arrow_table()
        return cls(
            pairs.label(_to_doubles(rows["label"])),
            _scores(rows),
            _to_doubles(pc.fill_null(rows["relevant"], False)),
            rows["tenant_number"].to_numpy().astype(np.int64),
            [name for (name,) in connection.sql(TENANTS_SQL).fetchall()],
        )


def _scores(rows: pa.Table) -> Doubles:
    """The judge's log-odds of each pair."""
    low, high = HARD_LABEL_PROBABILITIES
    hard = pc.if_else(rows["relevant"], high, low)
    score = log_odds(_to_doubles(pc.coalesce(rows["probability"].cast(pa.float64()), hard)))
    return np.asarray(np.where(np.isfinite(score), score, np.nanmean(score) if np.isfinite(score).any() else 0.0))


def _to_doubles(values: pa.ChunkedArray) -> Doubles:
    """As NumPy; null becomes NaN."""
    return np.asarray(pc.fill_null(values.cast(pa.float64()), float("nan")).to_numpy(), np.float64)


def corrected_audit(tables: Tables, output: Output, *, depths: Sequence[int], seed: int) -> None:
    """Write each retriever's recall of the pool's relevant pairs, by the judge's labels and corrected.

    Args:
        tables: must contain `queries`, `pool`, `verdicts`, `review_sample`, `review_strata`, `reviews` and `rankings`;
            with adaptive judging also `unjudged`.
        output: receives `corrected_audit`; nothing is written without a label of the sample.
        depths: depths of the recall.
        seed: assigns queries to folds.
    """
    with tables.connect() as connection:
        pool = LabelledPool.read(connection, has_unjudged="unjudged" in tables)
        if not pool.sample.is_labelled.any():
            return
        systems = [
            name for (name,) in connection.sql("SELECT DISTINCT retriever FROM rankings ORDER BY retriever").fetchall()
        ]
        ranks = {name: _read_ranks(connection, "rankings", "retriever", "chunk_id", name) for name in systems}
    figures = CorrectedFigures(pool, calibrate(pool.sample, pool.score, seed), ranks)
    rows = figures.rows([f"R@{depth}" for depth in sorted(set(depths))])
    output.write(CORRECTED_AUDIT.name, pa.Table.from_pylist(list(rows), schema=CORRECTED_AUDIT.schema))


def corrected_evaluation(tables: Tables, output: Output, settings: EvaluateSettings, *, seed: int) -> None:
    """Write the systems' measures on the test queries and the differences of systems, by the judge's labels and
    corrected.

    Args:
        tables: must contain `queries`, `pool`, `verdicts`, `review_sample`, `review_strata`, `reviews`, `test_queries`
            and `test_rankings`; with adaptive judging also `unjudged`.
        output: receives `corrected_evaluation`; nothing is written without a label of the sample or a test query.
        settings: measures; others than P, nDCG and R are left out.
        seed: assigns queries to folds.
    """
    with tables.connect() as connection:
        pool = LabelledPool.read(connection, has_unjudged="unjudged" in tables)
        if not pool.sample.is_labelled.any():
            return
        is_test = connection.sql(TEST_PAIRS_SQL).to_arrow_table()["is_test"].to_numpy()
        if not is_test.any():
            return
        systems = [
            name for (name,) in connection.sql("SELECT DISTINCT system FROM test_rankings ORDER BY system").fetchall()
        ]
        ranks = {name: _read_ranks(connection, "test_rankings", "system", "text_id", name) for name in systems}
    calibration = calibrate(pool.sample, pool.score, seed)
    rows = CorrectedFigures(pool, calibration, ranks).take(is_test).rows(settings.measures)
    output.write(CORRECTED_EVALUATION.name, pa.Table.from_pylist(list(rows), schema=CORRECTED_EVALUATION.schema))


def _read_ranks(connection: duckdb.DuckDBPyConnection, table: str, column: str, text: str, system: str) -> Ints:
    """Rank of each pair in a system's rankings, 0 if it is not ranked, shape (n_pairs,)."""
    query = RANKS_SQL.format(text=text, table=table, system=column)
    ranks = connection.sql(query, params={"system": system}).to_arrow_table()["rank"]
    return np.asarray(ranks.to_numpy(), np.int64)


@dataclass(frozen=True)
class CorrectedFigures:
    """Computes the figures of systems over the queries of a pool.

    Attributes:
        pool: pairs and labels.
        calibration: their probabilities.
        ranks: rank of each pair in each system's rankings, 0 if it is not ranked.
    """

    pool: LabelledPool
    calibration: Calibration
    ranks: dict[str, Ints]

    def take(self, rows: Mask | slice) -> CorrectedFigures:
        """Select the pairs of some queries."""
        pool = self.pool
        return CorrectedFigures(
            LabelledPool(
                pool.sample.take_queries(rows), pool.score[rows], pool.judged[rows], pool.tenant[rows], pool.tenants
            ),
            self.calibration.take(rows),
            {name: ranks[rows] for name, ranks in self.ranks.items()},
        )

    def rows(self, measures: Sequence[str]) -> Iterator[Row]:
        """Rows of all tenants together, then of each tenant if there are several."""
        yield from self._of_tenant(None, measures)
        tenants = np.unique(self.pool.tenant)
        if len(tenants) > 1:
            starts = np.searchsorted(self.pool.tenant, [*tenants, len(self.pool.tenants)])
            for tenant, (start, end) in zip(tenants, pairwise(starts), strict=True):
                yield from self.take(slice(start, end))._of_tenant(self.pool.tenants[tenant], measures)

    def _of_tenant(self, tenant: str | None, measures: Sequence[str]) -> Iterator[Row]:
        """Rows of each system, then of each two systems, by measure."""
        for measure in measures:
            if measure.startswith("R@"):
                rows = self._recalls(measure, int(measure.removeprefix("R@")))
            elif is_supported(measure):
                rows = self._means(measure)
            else:
                continue
            yield from ({"tenant": tenant} | row for row in rows)

    def _means(self, measure: str) -> Iterator[Row]:
        sample = self.pool.sample
        judged = UncertainLabels(sample.query, self.pool.judged, sample.n_queries)
        expected = {
            name: measure_influence(measure, ranks, self.calibration.labels(sample))
            for name, ranks in self.ranks.items()
        }
        by_judge = {
            name: float(measure_influence(measure, ranks, judged).expected.mean()) for name, ranks in self.ranks.items()
        }
        for name in self.ranks:
            estimate = correct_mean(sample, self.calibration, expected[name], generalize=True)
            yield _row(name, None, measure, by_judge[name], estimate)
        for other, name in combinations(self.ranks, 2):
            difference = expected[name] - expected[other]
            estimate = correct_mean(sample, self.calibration, difference, (-1.0, 1.0), generalize=True)
            yield _row(name, other, measure, by_judge[name] - by_judge[other], estimate)

    def _recalls(self, measure: str, depth: int) -> Iterator[Row]:
        """Recall of the relevant pairs of all queries together."""
        judged = self.pool.judged
        in_top = {name: ((ranks > 0) & (ranks <= depth)).astype(np.float64) for name, ranks in self.ranks.items()}
        for name, gain in in_top.items():
            yield self._recall(name, None, measure, gain, judged)
        for other, name in combinations(in_top, 2):
            yield self._recall(name, other, measure, in_top[name] - in_top[other], judged)

    def _recall(self, system: str, other: str | None, measure: str, gain: Doubles, judged: Doubles) -> Row:
        bounds = (0.0, 1.0) if other is None else (-1.0, 1.0)
        estimate = correct_ratio(self.pool.sample, self.calibration, gain, np.ones(len(gain)), bounds)
        by_judge = float(gain @ judged / judged.sum()) if judged.any() else float("nan")
        return _row(system, other, f"{measure} (pooled)", by_judge, estimate)


def _row(system: str, other: str | None, measure: str, judge_only: float, estimate: CorrectedEstimate) -> Row:
    return {
        "system": system,
        "other": other,
        "measure": measure,
        "judge_only": finite_or_none(judge_only),
        "value": finite_or_none(estimate.value),
        "low": finite_or_none(estimate.low),
        "high": finite_or_none(estimate.high),
        "labels": estimate.labels,
        "effective_labels": estimate.effective_labels,
        "label_clusters": estimate.clusters,
        "reason": estimate.reason,
    }
