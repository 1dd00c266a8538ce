"""How far reviewers agree with one another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.artifacts import Tables
from pipeline.raters import Confusion, alpha, cohens_kappa
from pipeline.validation.resampling import bootstrap
from schemas.review_tables import REVIEWER_AGREEMENT

# The four counts of each two reviewers, query by query.
PAIRWISE = """
    SELECT one.reviewer, two.reviewer AS other, count(*) FILTER (one.relevance > 0 AND two.relevance > 0) AS both,
           count(*) FILTER (one.relevance > 0 AND two.relevance = 0) AS first,
           count(*) FILTER (one.relevance = 0 AND two.relevance > 0) AS second,
           count(*) FILTER (one.relevance = 0 AND two.relevance = 0) AS neither
    FROM reviews one JOIN reviews two USING (tenant, query_id, chunk_id)
    WHERE one.reviewer < two.reviewer AND one.relevance IS NOT NULL AND two.relevance IS NOT NULL
    GROUP BY one.reviewer, two.reviewer, tenant, query_id ORDER BY one.reviewer, two.reviewer, tenant, query_id
"""

VOTES = """
    WITH votes AS (
        SELECT tenant, query_id, count(*) FILTER (relevance > 0) AS yes, count(*) FILTER (relevance = 0) AS no
        FROM reviews GROUP BY tenant, query_id, chunk_id
    )
    SELECT dense_rank() OVER (ORDER BY tenant, query_id) - 1 AS query, yes, no FROM votes WHERE yes + no > 1
"""

_Floats = NDArray[np.float64]


def reviewer_agreement(tables: Tables, resamples: int, seed: int) -> pa.Table:
    """Rows of `reviewer_agreement`: each two reviewers with a pair in common, then all; none where nobody shares one.

    Args:
        tables: holds `reviews`.
        resamples: of the queries, for each interval.
        seed: of the resampling.
    """
    rows = [*_each_two(tables, resamples, seed), *_all(tables, resamples, seed)]
    return pa.Table.from_pylist(rows, schema=REVIEWER_AGREEMENT.schema)


def _each_two(tables: Tables, resamples: int, seed: int) -> Iterator[dict[str, object]]:
    found = tables.sql(PAIRWISE)
    names = found.select(["reviewer", "other"])
    for pair in names.group_by(names.column_names, use_threads=False).aggregate([]).to_pylist():
        one, two = (pc.equal(found[name], pair[name]) for name in names.column_names)
        own = found.filter(pc.and_(one, two))
        counts = np.column_stack([own[name].to_numpy() for name in ("both", "first", "second", "neither")])
        kappa = bootstrap(counts.astype(np.float64), _kappa, resamples, seed)
        yield pair | _counts(int(counts.sum()), int(counts[:, [0, 3]].sum())) | kappa.columns("kappa")


def _kappa(sums: _Floats) -> _Floats:
    both, first, second, neither = (sums[..., place] for place in range(4))
    return cohens_kappa(Confusion(both, first, second, neither))


def _all(tables: Tables, resamples: int, seed: int) -> Iterator[dict[str, object]]:
    votes = tables.sql(VOTES)
    if not votes.num_rows:
        return
    yes, no, query = (votes[name].to_numpy() for name in ("yes", "no", "query"))
    kinds, kind = np.unique(np.column_stack([yes, no]), axis=0, return_inverse=True)
    queries = np.unique(query, return_inverse=True)[1]
    shape = (int(queries.max()) + 1, len(kinds))
    counts = np.bincount(queries * len(kinds) + kind.ravel(), minlength=shape[0] * shape[1]).reshape(shape)
    found = bootstrap(counts.astype(np.float64), lambda sums: alpha(kinds[:, 0], kinds[:, 1], sums), resamples, seed)
    yield _counts(len(yes), int(((yes == 0) | (no == 0)).sum())) | found.columns("alpha")


def _counts(pairs: int, alike: int) -> dict[str, object]:
    return {"pairs": pairs, "alike": alike}
