"""Builders of the tables that the judge stage reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from darklode.schemas.tables import CHUNKS, POOL, QUERIES


def queries(tenant: str, texts: Mapping[str, str]) -> pa.Table:
    """Rows of `queries` from query_id → text."""
    n = len(texts)
    numbers = {name: [1] * n for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    words = {"tenant": [tenant] * n, "language": ["en"] * n, "split": ["train"] * n}
    return QUERIES.rows({"query_id": list(texts), "text": list(texts.values())} | numbers | words)


def chunks(tenant: str, texts: Mapping[str, str], **columns: Sequence[str | None]) -> pa.Table:
    """Rows of `chunks` from chunk_id → text; the text is its own content hash."""
    n, ids, values = len(texts), list(texts), list(texts.values())
    words = {"tenant": [tenant] * n, "chunk_id": ids, "doc_id": ids, "text": values, "content_hash": values}
    offsets = {"position": [0] * n, "start": [0] * n, "end": [len(text) for text in values]}
    return CHUNKS.rows(words | offsets | columns)


def pool(tenant: str, pairs: Sequence[tuple[str, str]]) -> pa.Table:
    """Rows of `pool` from (query_id, chunk_id)."""
    n = len(pairs)
    ids = {"query_id": [query for query, _ in pairs], "chunk_id": [chunk for _, chunk in pairs]}
    found = {"retrievers": [["bm25"]] * n, "best_rank": [1] * n, "fused_score": [0.1] * n}
    return POOL.rows({"tenant": [tenant] * n} | ids | found)
