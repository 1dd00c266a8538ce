"""Rows of `triplets` with ids and scores of one's own, as a build or a mining run writes them."""

from collections.abc import Sequence

import pyarrow as pa

from darklode.schemas.tables import TRIPLETS

Given = tuple[str, str, Sequence[str]]
"""A query, its positive and its negatives; an id that ends in `'` has the text of the id without it."""


def triplet_rows(
    rows: Sequence[Given], tenant: str = "t", split: str = "train", source: str = "pooled", scored: bool = True
) -> pa.Table:
    """One row for each; the first negative scores 0.9, the next 0.8 and so on, and the positive 1."""
    return TRIPLETS.rows(
        {
            "triplet_id": [f"{tenant}|{query}|{positive}" for query, positive, _ in rows],
            "tenant": [tenant] * len(rows),
            "query_id": [query for query, _, _ in rows],
            "query": [f"what is {query}?" for query, _, _ in rows],
            "positive_id": [positive for _, positive, _ in rows],
            "positive": [text(positive) for _, positive, _ in rows],
            "negative_ids": [list(negatives) for _, _, negatives in rows],
            "negatives": [[text(negative) for negative in negatives] for _, _, negatives in rows],
            "positive_score": [1.0 if scored else None] * len(rows),
            "negative_scores": [
                [0.9 - place / 10 if scored else None for place in range(len(negatives))] for _, _, negatives in rows
            ],
            "source": [source] * len(rows),
            "split": [split] * len(rows),
        }
    )


def text(name: str) -> str:
    return f"text of {name.rstrip(chr(39))}"
