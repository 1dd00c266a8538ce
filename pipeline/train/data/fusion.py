"""Fusion of rankings by rank or by score; rankings are tables with query_id, rank, text_id and score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.retrieve.retrievers.fusion import min_max, reciprocal_rank


def by_value(rows: pa.Table, column: str) -> pa.Table:
    """Rankings by descending value of a column, which becomes the score; ties by text."""
    ordered = rows.sort_by([("query_id", "ascending"), (column, "descending"), ("text_id", "ascending")])
    queries = ordered["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    starts = np.flatnonzero(np.diff(queries, prepend=-1))
    rank = np.arange(len(queries)) - np.repeat(starts, np.diff([*starts, len(queries)])) + 1
    score = pc.cast(ordered[column], pa.float32())
    return pa.table({"query_id": ordered["query_id"], "rank": rank, "text_id": ordered["text_id"], "score": score})


def fuse_by_rank(rankings: Sequence[pa.Table]) -> pa.Table:
    """Reciprocal rank fusion."""
    return _sum([_values(rows, pa.array(reciprocal_rank(rows["rank"].to_numpy()))) for rows in rankings])


def normalize(ranking: pa.Table) -> pa.Table:
    """Scores of each query between 0 (its last text) and 1 (its first); 1 if all are equal; columns query_id, text_id
    and value.

    So the last text of a list counts as one that the list does not have, as in retrievers of kind `hybrid`. That
    matters only for lists shorter than asked for: few texts have a word of the query.
    """
    extremes = ranking.group_by("query_id").aggregate([("score", "min"), ("score", "max")])
    joined = ranking.select(["query_id", "text_id", "score"]).join(extremes, "query_id")
    score, low, high = (joined[name].to_numpy().astype(np.float64) for name in ("score", "score_min", "score_max"))
    return _values(joined, pa.array(min_max(score, low, high)))


def fuse(lexical: pa.Table, dense: pa.Table, weight: float | None) -> pa.Table:
    """Fuse BM25's rankings with an encoder's: by score with the weight of the encoder's, or by rank (None)."""
    if weight is None:
        return fuse_by_rank([lexical, dense])
    return fuse_by_score(normalize(lexical), normalize(dense), weight)


def fuse_by_score(first: pa.Table, second: pa.Table, weight: float) -> pa.Table:
    """Weighted mean of normalized scores; a text that only one ranking has counts 0 in the other.

    Args:
        first: scores by `normalize`.
        second: scores by `normalize`.
        weight: weight of the second, 0 to 1; the first has 1 − weight.
    """
    pairs = ((first, 1 - weight), (second, weight))
    return _sum([_values(rows, pc.multiply(rows["value"], each)) for rows, each in pairs])


def _values(rows: pa.Table, values: pa.Array) -> pa.Table:
    return pa.table({"query_id": rows["query_id"], "text_id": rows["text_id"], "value": values})


def _sum(parts: Sequence[pa.Table]) -> pa.Table:
    summed = pa.concat_tables(parts).group_by(["query_id", "text_id"]).aggregate([("value", "sum")])
    return by_value(summed, "value_sum")
