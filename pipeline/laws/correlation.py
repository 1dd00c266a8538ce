"""Correlation of contrastive entropy with ranking measures over trained encoders (Scaling Laws for Dense Retrieval,
Figure 2, which prints no coefficient).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.bootstrap import interval
from darklode.pipeline.base.types import Doubles
from darklode.schemas.law_tables import LAW_CORRELATIONS

MIN_ENCODERS = 4
"""Minimum number of distinct pairs of values, about one per encoder, for a coefficient."""

ALL_SOURCES = "all sources"
"""Value of `source` for the coefficient over all label sources."""

RESAMPLES = 2000
"""Number of bootstrap resamples: more make the interval's ends less random, and take more time."""

MIN_SPREAD = 1e-15
"""Geometric mean of both sums of squares at or below which a side counts as constant."""

# Pairs of entropy and another measure of the same trained encoder. At size 0 the encoder is untrained and thus the same
# for all seeds, so its values are averaged without the seed.
ENTROPY_PAIRS_SQL = """
    WITH point_means AS (
        SELECT CASE WHEN size > 0 THEN seed END AS seed, source, size, parameters, measure,
               coalesce(encoder_id, encoder) AS encoder, avg(value ORDER BY value) AS value
        FROM law_points GROUP BY ALL
    )
    SELECT m.measure, m.source, m.size, entropies.value AS entropy, m.value
    FROM point_means m JOIN point_means entropies
        ON entropies.measure = 'contrastive_entropy' AND entropies.source = m.source AND entropies.size = m.size
        AND entropies.seed IS NOT DISTINCT FROM m.seed AND entropies.parameters IS NOT DISTINCT FROM m.parameters
        AND entropies.encoder IS NOT DISTINCT FROM m.encoder
    WHERE m.measure NOT IN ('contrastive_entropy', 'loss')
    ORDER BY m.measure, m.source, m.size, m.parameters, m.encoder, m.seed
"""


def correlations(tables: Tables, seed: int) -> pa.Table:
    """Pearson's coefficient of entropy and each other measure, per source and over all sources.

    Args:
        tables: holds `law_points`.
        seed: seed of the bootstrap intervals.

    Returns:
        The table `law_correlations`.
    """
    rows = tables.sql(ENTROPY_PAIRS_SQL)
    distinct = rows.select(["measure", "source"]).group_by(["measure", "source"]).aggregate([])
    measure_sources = sorted(zip(distinct["measure"].to_pylist(), distinct["source"].to_pylist(), strict=True))
    measures = [measure for measure, _ in measure_sources]
    with_several_sources = {measure for measure in measures if measures.count(measure) > 1}
    keys = [*measure_sources, *((measure, ALL_SOURCES) for measure in with_several_sources)]
    rows_out = []
    for measure, source in sorted(keys):
        in_measure = pc.equal(rows["measure"], measure)
        key_rows = rows.filter(
            in_measure if source == ALL_SOURCES else pc.and_(in_measure, pc.equal(rows["source"], source))
        )
        pairs = np.unique(np.column_stack([key_rows["entropy"].to_numpy(), key_rows["value"].to_numpy()]), axis=0)
        if len(pairs) >= MIN_ENCODERS:
            rows_out.append({"measure": measure, "source": source} | _correlation_row(pairs, seed))
    return pa.Table.from_pylist(rows_out, schema=LAW_CORRELATIONS.schema)


def _correlation_row(pairs: Doubles, seed: int) -> dict[str, Any]:
    """Coefficient of pairs, shape (n, 2), with its interval; null if one side is constant."""
    x, y = (pairs - pairs.mean(axis=0)).T
    sums = np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y])
    value = pearson(sums.sum(axis=0))
    if not np.isfinite(value):
        return {"encoders": len(pairs), "pearson": None, "low": None, "high": None}
    low, high = interval(sums, pearson, RESAMPLES, seed)
    return {"encoders": len(pairs), "pearson": float(value), "low": float(low), "high": float(high)}


def pearson(sums: Doubles) -> Doubles:
    """Coefficient from sums of 1, x, y, x², y² and xy, shape (..., 6); NaN if one side is constant."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
        correlation = np.where(spread > MIN_SPREAD, (xy - x * y / n) / spread, np.nan)
    return np.asarray(np.clip(correlation, -1, 1))
