"""Similarity of generated and real queries: lengths, questions, a classifier two-sample test, and cluster coverage."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.segmentation import count_words
from darklode.pipeline.base.types import Ints
from darklode.schemas.generation_tables import GENERATION_CLUSTERS

QUESTION = re.compile(r"^(how|what|why|when|where|which|who|can|could|does|do|is|are|should|will)\b|\?", re.IGNORECASE)
DISCRIMINATION = "AUC of a classifier of real and generated queries (.5: indistinguishable)"
COVERED = "share of the clusters of real queries with a similar query"
MIN_QUERIES = 20
"""Minimum number of real and of generated queries for the classifier."""

MAX_QUERIES = 5000
"""Maximum number of real and of generated queries in pairwise comparisons."""

BLOCK = 500
FOLDS = 5


def compare_queries(real: pa.ChunkedArray, generated: pa.ChunkedArray, seed: int) -> list[dict[str, Any]]:
    """Rows of `generation_check`, without the tenant.

    Args:
        real: texts of train queries.
        generated: texts of kept queries.
        seed: of the classifier's folds.
    """
    rows = [{"measure": "queries", "real": float(len(real)), "generated": float(len(generated))}]
    for share in (5, 25, 50, 75, 95):
        each = [float(np.percentile(count_words(texts), share)) if len(texts) else None for texts in (real, generated)]
        rows.append({"measure": f"words, percentile {share}", "real": each[0], "generated": each[1]})
    each = [_share(texts) for texts in (real, generated)]
    rows.append({"measure": "share of questions (how, what, …, ?)", "real": each[0], "generated": each[1]})
    auc = discrimination_auc(real.to_pylist(), generated.to_pylist(), seed)
    return [*rows, {"measure": DISCRIMINATION, "real": None, "generated": auc}]


def _share(texts: pa.ChunkedArray) -> float | None:
    return float(np.mean([bool(QUESTION.search(text)) for text in texts.to_pylist()])) if len(texts) else None


def discrimination_auc(real: list[str], generated: list[str], seed: int) -> float | None:
    """Cross-validated AUC of a logistic regression on character n-grams; None with fewer than `MIN_QUERIES` of either.

    Args:
        real: texts.
        generated: texts.
        seed: of the folds, and of the sample that balances the classes.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    count, draws = min(len(real), len(generated)), np.random.default_rng(seed)
    if count < MIN_QUERIES:
        return None
    texts = [
        texts_of_side[position]
        for texts_of_side in (real, generated)
        for position in np.sort(draws.permutation(len(texts_of_side))[:count])
    ]
    right = np.repeat([0, 1], count)
    model = make_pipeline(_character_ngrams(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    predicted = cross_val_predict(model, texts, right, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(right, predicted))


def _character_ngrams() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)


def cluster_coverage(real: pa.Table, generated: pa.Table, seed: int) -> tuple[pa.Table, float | None]:
    """Which clusters of real queries have a similar generated query.

    Similar: the cosine of character n-gram tf-idf is at least the median, over real queries, of the cosine with the
    nearest query of another cluster.

    Args:
        real: tenant, group and text of a tenant's train queries.
        generated: query_id and text of its kept generated queries.
        seed: of the samples.

    Returns:
        Rows of `generation_clusters`, and the share of the clusters with a similar real query of another cluster; None
        with fewer than two clusters.
    """
    real, generated = _sample_texts(real, seed), _sample_texts(generated, seed)
    if not real.num_rows:
        return GENERATION_CLUSTERS.empty(), None
    groups = real["group"].combine_chunks().dictionary_encode()
    number, names = groups.indices.to_numpy(), groups.dictionary
    model = _character_ngrams().fit([*real["text"].to_pylist(), *generated["text"].to_pylist()])
    real_vectors, made = (
        model.transform(rows["text"].to_pylist()) if len(rows) else None for rows in (real, generated)
    )
    best_similarity, nearest_row = _nearest(real_vectors, made)
    order = np.lexsort((np.arange(len(best_similarity)), -best_similarity, number))
    first = order[np.searchsorted(number[order], np.arange(len(names)))]
    several, nothing = len(names) > 1, made is None
    other = _nearest(real_vectors, real_vectors, number)[0] if several else np.empty(0)
    typical_similarity = float(np.median(other)) if several else np.nan
    ids = pa.nulls(len(names), pa.string()) if nothing else generated["query_id"].take(pa.array(nearest_row[first]))
    coverage = {
        "tenant": pa.repeat(real["tenant"][0], len(names)),
        "group": names,
        "queries": np.bincount(number),
        "query_id": ids,
        "similarity": pa.array(best_similarity[first], mask=np.full(len(names), nothing)),
        "covered": pa.array(best_similarity[first] >= typical_similarity, mask=np.full(len(names), not several)),
    }
    usual = len(np.unique(number[other >= typical_similarity])) / len(names) if several else None
    return GENERATION_CLUSTERS.rows(coverage), usual


def shares(clusters: pa.Table, usual: float | None) -> list[dict[str, Any]]:
    """The row of `generation_check` for the result of `cluster_coverage`, without the tenant."""
    covered_or_null = clusters["covered"].drop_null()
    share = pc.mean(covered_or_null.cast(pa.float64())).as_py() if len(covered_or_null) else None
    return [{"measure": COVERED, "real": usual, "generated": share}]


def _sample_texts(rows: pa.Table, seed: int) -> pa.Table:
    drawn = np.random.default_rng(seed).permutation(rows.num_rows)[:MAX_QUERIES]
    return rows.take(pa.array(np.sort(drawn)))


def _nearest(query_vectors: Any, among: Any, own: Ints | None = None) -> tuple[NDArray[np.float64], Ints]:
    """Largest cosine of each row with the rows of `among`, and the index of the first such row.

    Args:
        query_vectors: sparse rows of length 1.
        among: likewise; None: all cosines are 0.
        own: cluster of each row; rows of the same cluster are excluded.
    """
    n = query_vectors.shape[0]
    best_similarity, nearest_row = np.zeros(n), np.zeros(n, np.int64)
    for start in range(0, n if among is not None else 0, BLOCK):
        rows = slice(start, start + BLOCK)
        scores = (query_vectors[rows] @ among.T).toarray()
        if own is not None:
            scores[own[rows, None] == own[None, :]] = -1.0
        nearest_row[rows] = scores.argmax(axis=1)
        best_similarity[rows] = scores.max(axis=1)
    return best_similarity, nearest_row
