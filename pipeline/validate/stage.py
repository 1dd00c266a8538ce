"""The stage `validate`: compare the judge with reviewers, and reviewers with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import Confusion, alpha, cohens_kappa, kappa_of_table, quadratic
from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables, digest
from darklode.pipeline.base.bootstrap import IntervalEstimate
from darklode.pipeline.base.majority_labels import MAJORITY_LABELS_SQL
from darklode.pipeline.validate.estimates import bootstrap
from darklode.pipeline.validate.metrics import Scope, scopes, validation_row
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.review_tables import DISAGREEMENTS, REVIEWER_AGREEMENT, VALIDATION

DISAGREEMENTS_SQL = f"""
    WITH labels AS ({MAJORITY_LABELS_SQL}), reviewer_answers AS (
        SELECT tenant, query_id, chunk_id, list(reviewer ORDER BY reviewer) AS reviewers,
               list(coalesce(rationale, '') ORDER BY reviewer) AS reasons
        FROM reviews WHERE relevance IS NOT NULL GROUP BY tenant, query_id, chunk_id
    ), strata AS (SELECT DISTINCT stratum, verdict FROM review_strata),
    disagreeing_labels AS (
        SELECT labels.*, strata.verdict, sample.weight
        FROM labels JOIN review_sample sample USING (tenant, query_id, chunk_id) JOIN strata USING (stratum)
        WHERE relevance IS NOT NULL AND (relevance > 0) <> (strata.verdict = 'relevant')
    )
    SELECT tenant, query_id, chunk_id,
           CASE WHEN d.relevance > 0 THEN 'missed positive' ELSE 'false positive' END AS kind,
           d.verdict, v.probability, v.grade, v.rationale, d.relevance, a.reviewers, a.reasons, d.weight
    FROM disagreeing_labels d JOIN reviewer_answers a USING (tenant, query_id, chunk_id)
    LEFT JOIN verdicts v USING (tenant, query_id, chunk_id)
    ORDER BY d.weight DESC, tenant, query_id, chunk_id
"""


def disagreements(tables: Tables) -> pa.Table:
    """Rows of `disagreements`, highest weight first.

    Args:
        tables: must contain `reviews`, `review_sample`, `review_strata` and `verdicts`.
    """
    rows = tables.sql(DISAGREEMENTS_SQL)
    return DISAGREEMENTS.rows(dict(zip(rows.column_names, rows.columns, strict=True)))


VALIDATE_STAGE = Stage(
    "validate",
    2,
    ("queries", "pool", "verdicts", "review_sample", "review_strata", "reviews"),
    ("validation", "reviewer_agreement", "disagreements"),
)


def validate(
    tables: Tables,
    output: Output,
    settings: EvaluateSettings,
    *,
    thresholds: Mapping[str, float],
    seed: int,
) -> None:
    """Extrapolate the sample's labels to the whole run (`estimates.estimate`, `metrics.validation_row`).

    A pair's label is the majority of its reviewers, without skips; a tie gives none. Estimates use pairs of the current
    sample only; answers to other pairs are kept and count again if a later sample contains the pair. Without a sample
    nothing is written.

    Args:
        tables: must contain `queries`, `pool`, `verdicts`, `review_sample`, `review_strata` and `reviews`.
        output: receives `validation`, `reviewer_agreement` and `disagreements`.
        settings: number of resamples.
        thresholds: the judge's threshold of each tenant.
        seed: random seed of the intervals and folds.
    """
    if not tables.rows("review_strata"):
        return
    rows = [
        validation_row(scope, _threshold(scope, thresholds), settings.n_resamples, seed + number)
        for number, scope in enumerate(scopes(tables))
    ]
    output.write("validation", pa.Table.from_pylist(rows, schema=VALIDATION.schema))
    output.write("reviewer_agreement", reviewer_agreement(tables, settings.n_resamples, seed))
    output.write("disagreements", disagreements(tables))
    sampled, labelled = tables.rows("review_sample"), int(str(rows[0]["labelled"]))
    lost = {name: int(str(rows[0][name])) for name in ("tied", "skipped")}
    lost["unanswered"] = sampled - labelled - sum(lost.values())
    dropped = {reason: n for reason, n in lost.items() if n}
    output.count(FunnelStep("validate", "sampled pairs", sampled, "labelled pairs", labelled, dropped))


def _threshold(scope: Scope, thresholds: Mapping[str, float]) -> float | None:
    thresholds_used = {thresholds.get(tenant) for tenant in scope.tenants}
    return thresholds_used.pop() if len(thresholds_used) == 1 else None


def is_stale(run: Run) -> bool:
    """Whether a run's verdicts changed since its validation."""
    manifest, parts = run.manifests().get("validate"), run.parts()
    return manifest is not None and manifest.inputs.get("verdicts") != digest(parts.get("verdicts", []))


# Confusion counts of every two reviewers, by query.
REVIEWER_PAIRS_SQL = """
    SELECT review.reviewer, other_review.reviewer AS other,
           count(*) FILTER (review.relevance > 0 AND other_review.relevance > 0) AS both,
           count(*) FILTER (review.relevance > 0 AND other_review.relevance = 0) AS first,
           count(*) FILTER (review.relevance = 0 AND other_review.relevance > 0) AS second,
           count(*) FILTER (review.relevance = 0 AND other_review.relevance = 0) AS neither
    FROM reviews review JOIN reviews other_review USING (tenant, query_id, chunk_id)
    WHERE review.reviewer < other_review.reviewer
        AND review.relevance IS NOT NULL AND other_review.relevance IS NOT NULL
    GROUP BY review.reviewer, other_review.reviewer, tenant, query_id
    ORDER BY review.reviewer, other_review.reviewer, tenant, query_id
"""

# Grades of every two reviewers for each pair, if both give grades, and its query's number from 0.
REVIEWER_GRADES_SQL = """
    SELECT review.reviewer, other_review.reviewer AS other, review.relevance AS first, other_review.relevance AS second,
           dense_rank() OVER (
               PARTITION BY review.reviewer, other_review.reviewer ORDER BY tenant, query_id
           ) - 1 AS query
    FROM reviews review JOIN reviews other_review USING (tenant, query_id, chunk_id)
    WHERE review.reviewer < other_review.reviewer
        AND review.relevance IS NOT NULL AND other_review.relevance IS NOT NULL
    QUALIFY least(
        max(review.relevance) OVER (PARTITION BY review.reviewer, other_review.reviewer),
        max(other_review.relevance) OVER (PARTITION BY review.reviewer, other_review.reviewer)
    ) > 1
    ORDER BY review.reviewer, other_review.reviewer, query, first, second
"""

# Labels of each pair with at least two, and its query's number from 0.
VOTES_SQL = """
    WITH votes AS (
        SELECT tenant, query_id, count(*) FILTER (relevance > 0) AS yes, count(*) FILTER (relevance = 0) AS no
        FROM reviews GROUP BY tenant, query_id, chunk_id
    )
    SELECT dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query, yes, no FROM votes WHERE yes + no > 1
"""

_Floats = NDArray[np.float64]


def reviewer_agreement(tables: Tables, resamples: int, seed: int) -> pa.Table:
    """Rows of `reviewer_agreement`: every two reviewers with common pairs, then all reviewers.

    Args:
        tables: must contain `reviews`.
        resamples: number of resamples of the queries, for each interval.
        seed: random seed of the resampling.
    """
    rows = [*_each_two(tables, resamples, seed), *_all(tables, resamples, seed)]
    return pa.Table.from_pylist(rows, schema=REVIEWER_AGREEMENT.schema)


def _each_two(tables: Tables, resamples: int, seed: int) -> Iterator[dict[str, object]]:
    pair_counts, grades = tables.sql(REVIEWER_PAIRS_SQL), tables.sql(REVIEWER_GRADES_SQL)
    names = ["reviewer", "other"]
    pairs = pair_counts.group_by(names).aggregate([]).sort_by([(name, "ascending") for name in names])
    for pair in pairs.to_pylist():
        own, own_grades = (
            rows.filter(pc.and_(*(pc.equal(rows[name], pair[name]) for name in names)))
            for rows in (pair_counts, grades)
        )
        counts = np.column_stack([own[name].to_numpy() for name in ("both", "first", "second", "neither")])
        kappa = bootstrap(counts.astype(np.float64), _kappa, resamples, seed)
        weighted = _weighted_kappa(own_grades, resamples, seed).columns("weighted_kappa") if len(own_grades) else {}
        yield pair | _counts(int(counts.sum()), int(counts[:, [0, 3]].sum())) | kappa.columns("kappa") | weighted


def _kappa(sums: _Floats) -> _Floats:
    both, first, second, neither = (sums[..., column] for column in range(4))
    return cohens_kappa(Confusion(both, first, second, neither))


def _weighted_kappa(grades: pa.Table, resamples: int, seed: int) -> IntervalEstimate:
    """Quadratic-weighted kappa (Cohen, 1968) of two reviewers' grades, with an interval over queries."""
    first, second, query = (grades[name].to_numpy() for name in ("first", "second", "query"))
    values = np.unique(np.concatenate([first, second]))
    cell = np.searchsorted(values, first) * len(values) + np.searchsorted(values, second)
    n_cells = len(values) ** 2
    counts = np.bincount(query * n_cells + cell, minlength=(int(query.max()) + 1) * n_cells).reshape(-1, n_cells)
    cost = quadratic(values.astype(np.float64))

    def kappa(sums: _Floats) -> _Floats:
        return kappa_of_table(sums.reshape(*sums.shape[:-1], len(values), len(values)), cost)

    return bootstrap(counts.astype(np.float64), kappa, resamples, seed)


def _all(tables: Tables, resamples: int, seed: int) -> Iterator[dict[str, object]]:
    votes = tables.sql(VOTES_SQL)
    if not votes.num_rows:
        return
    yes, no, query = (votes[name].to_numpy() for name in ("yes", "no", "query"))
    kinds, kind = np.unique(np.column_stack([yes, no]), axis=0, return_inverse=True)
    queries = np.unique(query, return_inverse=True)[1]
    shape = (int(queries.max()) + 1, len(kinds))
    counts = np.bincount(queries * len(kinds) + kind.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
    estimate = bootstrap(counts.astype(np.float64), lambda sums: alpha(kinds[:, 0], kinds[:, 1], sums), resamples, seed)
    yield _counts(len(yes), int(((yes == 0) | (no == 0)).sum())) | estimate.columns("alpha")


def _counts(pairs: int, agreements: int) -> dict[str, object]:
    return {"pairs": pairs, "agreements": agreements}
