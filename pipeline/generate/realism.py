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

QUESTION_PATTERN = re.compile(
    r"^(how|what|why|when|where|which|who|can|could|does|do|is|are|should|will)\b|\?", re.IGNORECASE
)
DISCRIMINATION_MEASURE = "AUC of a classifier of real and generated queries (.5: indistinguishable)"
COVERAGE_MEASURE = "share of the clusters of real queries with a similar query"
MIN_QUERIES = 20
"""Minimum number of real and of generated queries for the classifier."""

MAX_QUERIES = 5000
"""Maximum number of real and of generated queries in pairwise comparisons."""

ROWS_PER_BLOCK = 500  # rows of a similarity matrix held at a time: 500 × MAX_QUERIES float64 are 20 MB
N_FOLDS = 5  # of the cross-validation


def compare_queries(real: pa.ChunkedArray, generated: pa.ChunkedArray, seed: int) -> list[dict[str, Any]]:
    """Compare the generated with the real queries of a tenant; returns rows of `generation_check` without the tenant.

    Args:
        real: texts of real train queries.
        generated: texts of the generated queries that were kept.
        seed: seed of the classifier's folds and of the sample that balances its classes.
    """
    rows = [{"measure": "queries", "real": float(len(real)), "generated": float(len(generated))}]
    for percentile in (5, 25, 50, 75, 95):
        real_words, generated_words = (
            float(np.percentile(count_words(texts), percentile)) if len(texts) else None for texts in (real, generated)
        )
        rows.append({"measure": f"words, percentile {percentile}", "real": real_words, "generated": generated_words})
    rows.append(
        {
            "measure": "share of questions (how, what, …, ?)",
            "real": _share_of_questions(real),
            "generated": _share_of_questions(generated),
        }
    )
    auc = discrimination_auc(real.to_pylist(), generated.to_pylist(), seed)
    return [*rows, {"measure": DISCRIMINATION_MEASURE, "real": None, "generated": auc}]


def _share_of_questions(texts: pa.ChunkedArray) -> float | None:
    """Share of the texts that begin with a question word or contain `?`; None if there are no texts."""
    return float(np.mean([bool(QUESTION_PATTERN.search(text)) for text in texts.to_pylist()])) if len(texts) else None


def discrimination_auc(real: list[str], generated: list[str], seed: int) -> float | None:
    """Cross-validated AUC of a logistic regression on character n-grams; None with fewer than `MIN_QUERIES` of either.

    Args:
        real: texts of real queries.
        generated: texts of generated queries.
        seed: seed of the folds, and of the sample that balances the classes.

    Returns:
        0.5 if the classifier cannot tell generated from real queries, 1 if it always can.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    count = min(len(real), len(generated))
    rng = np.random.default_rng(seed)
    if count < MIN_QUERIES:
        return None
    texts = [
        texts_of_side[position]
        for texts_of_side in (real, generated)
        for position in np.sort(rng.permutation(len(texts_of_side))[:count])
    ]
    is_generated = np.repeat([0, 1], count)
    model = make_pipeline(_character_ngrams(), LogisticRegression(max_iter=1000))
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed)
    predicted = cross_val_predict(model, texts, is_generated, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(is_generated, predicted))


def _character_ngrams() -> Any:
    """Build a tf-idf vectorizer of character n-grams within words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True)


def cluster_coverage(real: pa.Table, generated: pa.Table, seed: int) -> tuple[pa.Table, float | None]:
    """Find out which clusters of real queries have a similar generated query.

    Two queries are similar if the cosine of their character n-gram tf-idf vectors is at least as high as is usual
    between clusters: the median, over real queries, of the cosine with the nearest query of another cluster.

    Args:
        real: columns tenant, group (the cluster) and text of a tenant's real train queries.
        generated: columns query_id and text of its generated queries that were kept.
        seed: seed of the samples of at most MAX_QUERIES queries.

    Returns:
        Rows of `generation_clusters`, and the share of the clusters with a similar real query of another cluster; None
        with fewer than two clusters.
    """
    real, generated = _sample_texts(real, seed), _sample_texts(generated, seed)
    if not real.num_rows:
        return GENERATION_CLUSTERS.empty(), None
    groups = real["group"].combine_chunks().dictionary_encode()
    cluster_of_query = groups.indices.to_numpy()
    cluster_names = groups.dictionary
    n_clusters = len(cluster_names)
    model = _character_ngrams().fit([*real["text"].to_pylist(), *generated["text"].to_pylist()])
    real_vectors, generated_vectors = (
        model.transform(rows["text"].to_pylist()) if len(rows) else None for rows in (real, generated)
    )
    similarity, nearest_row = _find_nearest(real_vectors, generated_vectors)
    # The best query of each cluster is the first one of the cluster in this order.
    order = np.lexsort((np.arange(len(similarity)), -similarity, cluster_of_query))
    best_query = order[np.searchsorted(cluster_of_query[order], np.arange(n_clusters))]
    has_other_clusters = n_clusters > 1
    has_no_generated = generated_vectors is None
    between_clusters = (
        _find_nearest(real_vectors, real_vectors, cluster_of_query)[0] if has_other_clusters else np.empty(0)
    )
    threshold = float(np.median(between_clusters)) if has_other_clusters else np.nan
    nearest_ids = (
        pa.nulls(n_clusters, pa.string())
        if has_no_generated
        else generated["query_id"].take(pa.array(nearest_row[best_query]))
    )
    coverage = {
        "tenant": pa.repeat(real["tenant"][0], n_clusters),
        "group": cluster_names,
        "queries": np.bincount(cluster_of_query),
        "query_id": nearest_ids,
        "similarity": pa.array(similarity[best_query], mask=np.full(n_clusters, has_no_generated)),
        "covered": pa.array(similarity[best_query] >= threshold, mask=np.full(n_clusters, not has_other_clusters)),
    }
    covered_by_real = np.unique(cluster_of_query[between_clusters >= threshold]) if has_other_clusters else None
    usual_share = None if covered_by_real is None else len(covered_by_real) / n_clusters
    return GENERATION_CLUSTERS.rows(coverage), usual_share


def shares(clusters: pa.Table, usual: float | None) -> list[dict[str, Any]]:
    """The row of `generation_check`, without the tenant, for the result of `cluster_coverage`.

    Args:
        clusters: rows of `generation_clusters`.
        usual: share of the clusters with a similar real query of another cluster.
    """
    is_covered = clusters["covered"].drop_null()
    covered_share = pc.mean(is_covered.cast(pa.float64())).as_py() if len(is_covered) else None
    return [{"measure": COVERAGE_MEASURE, "real": usual, "generated": covered_share}]


def _sample_texts(rows: pa.Table, seed: int) -> pa.Table:
    """At most MAX_QUERIES random rows, in their order."""
    sampled_rows = np.random.default_rng(seed).permutation(rows.num_rows)[:MAX_QUERIES]
    return rows.take(pa.array(np.sort(sampled_rows)))


def _find_nearest(
    query_vectors: Any, candidate_vectors: Any, clusters_of_rows: Ints | None = None
) -> tuple[NDArray[np.float64], Ints]:
    """Largest cosine of each row with the rows of `candidate_vectors`, and the index of the first such row.

    Args:
        query_vectors: sparse matrix (n, features) whose rows have length 1.
        among: sparse matrix (m, features) whose rows have length 1; None: all cosines are 0.
        own: cluster of each row of both matrices, which are then the same; rows of the same cluster are not compared.
    """
    n = query_vectors.shape[0]
    best_similarity = np.zeros(n)
    nearest_row = np.zeros(n, np.int64)
    for start in range(0, n if candidate_vectors is not None else 0, ROWS_PER_BLOCK):
        rows = slice(start, start + ROWS_PER_BLOCK)
        scores = (query_vectors[rows] @ candidate_vectors.T).toarray()
        if clusters_of_rows is not None:
            scores[clusters_of_rows[rows, None] == clusters_of_rows[None, :]] = -1.0
        nearest_row[rows] = scores.argmax(axis=1)
        best_similarity[rows] = scores.max(axis=1)
    return best_similarity, nearest_row
