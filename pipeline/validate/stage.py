"""The stage `validate`: compare the judge with reviewers, and reviewers with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.agreement import Confusion, alpha, cohens_kappa
from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables, digest
from darklode.pipeline.validate.estimates import bootstrap
from darklode.pipeline.validate.labels import MAJORITY_LABELS_SQL
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
           d.verdict, v.probability, v.rationale, d.relevance, a.reviewers, a.reasons, d.weight
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
    1,
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
    pair_counts = tables.sql(REVIEWER_PAIRS_SQL)
    names = ["reviewer", "other"]
    pairs = pair_counts.group_by(names).aggregate([]).sort_by([(name, "ascending") for name in names])
    for pair in pairs.to_pylist():
        first, two = (pc.equal(pair_counts[name], pair[name]) for name in names)
        own = pair_counts.filter(pc.and_(first, two))
        counts = np.column_stack([own[name].to_numpy() for name in ("both", "first", "second", "neither")])
        kappa = bootstrap(counts.astype(np.float64), _kappa, resamples, seed)
        yield pair | _counts(int(counts.sum()), int(counts[:, [0, 3]].sum())) | kappa.columns("kappa")


def _kappa(sums: _Floats) -> _Floats:
    both, first, second, neither = (sums[..., column] for column in range(4))
    return cohens_kappa(Confusion(both, first, second, neither))


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
