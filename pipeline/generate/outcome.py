"""What became of each query, and how those that stay are like real ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.segmentation import count_words
from darklode.schemas.generation_tables import (
    GENERATED_QUERIES,
    GENERATION_CHECK,
    REAL_QUERIES,
    SIEVED_QUERIES,
    WRITTEN_QUERIES,
)

OUTCOME = Stage(
    "generated_queries",
    1,
    (REAL_QUERIES.name, WRITTEN_QUERIES.name, SIEVED_QUERIES.name, "rankings", "pool", "verdicts", "triplets"),
    (GENERATED_QUERIES.name, GENERATION_CHECK.name),
)

OUTCOMES = """
    WITH ranks AS (
        SELECT tenant, query_id, min(rank) AS rank FROM rankings
        SEMI JOIN written_queries USING (tenant, query_id, chunk_id) GROUP BY tenant, query_id
    ), taught AS (SELECT DISTINCT tenant, query_id, true AS taught FROM triplets)
    SELECT w.tenant, w.query_id, w.chunk_id, w.text, CAST($1 AS VARCHAR) AS source,
           CAST($2 AS VARCHAR) AS generator_id, CAST(r.rank AS INTEGER) AS round_trip_rank,
           v.relevant AS judged, coalesce(t.taught, false) AS kept,
           CASE WHEN taught THEN NULL WHEN s.reason IS NOT NULL THEN s.reason
                WHEN p.query_id IS NULL THEN 'its own text is not found'
                WHEN v.relevant THEN 'less likely than triplets.min_probability'
                WHEN NOT v.relevant THEN 'judged not relevant' ELSE 'the judge could not be read' END AS reason
    FROM written_queries w JOIN sieved_queries s USING (tenant, query_id) LEFT JOIN ranks r USING (tenant, query_id)
    LEFT JOIN pool p USING (tenant, query_id) LEFT JOIN verdicts v USING (tenant, query_id)
    LEFT JOIN taught t USING (tenant, query_id) ORDER BY w.tenant, w.query_id
"""

ASKING = re.compile(r"^(how|what|why|when|where|which|who|can|could|does|do|is|are|should|will)\b|\?", re.IGNORECASE)
TOLD_APART = "AUC of telling them apart by letters (.5: not at all)"
LEAST = 20
"""Queries of each kind that a comparison takes."""

FOLDS = 5


def outcome(tables: Tables, output: Output, *, source: str, generator_id: str, seed: int) -> None:
    """Write what became of each query, and hold those that stay against the tenant's real train queries.

    Args:
        tables: all of before.
        output: takes `generated_queries` and `generation_check`.
        source: the kind of writer.
        generator_id: the writer.
        seed: of the classifier's folds.
    """
    rows = tables.sql(OUTCOMES, [source, generator_id]).cast(GENERATED_QUERIES.schema)
    output.write(GENERATED_QUERIES.name, rows)
    real = tables.sql("SELECT tenant, text FROM real_queries WHERE split = 'train' ORDER BY tenant, query_id")
    for tenant in pc.unique(rows["tenant"]).to_pylist():
        kept = rows.filter(pc.and_(rows["kept"], pc.equal(rows["tenant"], tenant)))["text"]
        asked = real.filter(pc.equal(real["tenant"], tenant))["text"]
        found = [{"tenant": tenant, **one} for one in compared(asked, kept, seed)]
        output.write(GENERATION_CHECK.name, pa.Table.from_pylist(found, GENERATION_CHECK.schema))
    reasons = rows["reason"].drop_null()
    counts = {one["values"]: one["counts"] for one in pc.value_counts(reasons).to_pylist()}
    kept_count = rows.num_rows - len(reasons)
    output.count(
        FunnelStep(OUTCOME.name, "written queries", rows.num_rows, "queries", kept_count, dict(sorted(counts.items())))
    )


def compared(real: pa.ChunkedArray, generated: pa.ChunkedArray, seed: int) -> list[dict[str, Any]]:
    """Rows of `generation_check`, without the tenant.

    Args:
        real: texts of train queries.
        generated: texts of queries that are kept.
        seed: of the classifier's folds.
    """
    rows = [{"measure": "queries", "real": float(len(real)), "generated": float(len(generated))}]
    for share in (5, 25, 50, 75, 95):
        each = [float(np.percentile(count_words(one), share)) if len(one) else None for one in (real, generated)]
        rows.append({"measure": f"words, percentile {share}", "real": each[0], "generated": each[1]})
    each = [_share(one) for one in (real, generated)]
    rows.append({"measure": "share that asks (how, what, …, ?)", "real": each[0], "generated": each[1]})
    told = told_apart(real.to_pylist(), generated.to_pylist(), seed)
    return [
        *rows,
        {"measure": "AUC of telling them apart by letters (.5: not at all)", "real": None, "generated": told},
    ]


def _share(texts: pa.ChunkedArray) -> float | None:
    return float(np.mean([bool(ASKING.search(text)) for text in texts.to_pylist()])) if len(texts) else None


def told_apart(real: list[str], generated: list[str], seed: int) -> float | None:
    """AUC of a logistic regression on letters that never saw the query; None: too few of either, or of both.

    Args:
        real: texts.
        generated: texts.
        seed: of folds, and of the sample that makes both as many.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    count, draws = min(len(real), len(generated)), np.random.default_rng(seed)
    if count < LEAST:
        return None
    texts = [one[place] for one in (real, generated) for place in np.sort(draws.permutation(len(one))[:count])]
    right = np.repeat([0, 1], count)
    model = make_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True), LogisticRegression(max_iter=1000)
    )
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    said = cross_val_predict(model, texts, right, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(right, said))
