"""Scores of labelled (query, document) pairs by each system, the input of AUC."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Json, Output, Stage, Tables, digest, key_of
from darklode.pipeline.base.chunk_texts import TenantChunks, view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.types import Floats
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts
from darklode.pipeline.retrieve.encoders.deferred import Deferred, release
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.factory import Factory
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.schemas.tables import TABLES

MANUAL_SCORES_STAGE = Stage("manual_scores", 1, ("manual_labels", "manual_texts"), ("manual_scores",))

MAX_SCORES = 1 << 22
"""Maximum scores (queries × documents) in memory."""

PAIRS_AT_ONCE = 1 << 13


def manual_scores(
    tables: Tables, output: Output, *, systems: Mapping[str, Factory], identities: Mapping[str, Json]
) -> None:
    """Score each labelled pair: an encoder by inner product, a retriever by its score in the collection of labelled
    documents.

    One unit per tenant and system.

    Args:
        tables: must contain `manual_labels` and `manual_texts`.
        output: receives `manual_scores`.
        systems: builds each retriever, by name.
        identities: everything that can change each system's scores.
    """
    input_digests = [digest(tables.parts(name)) for name in MANUAL_SCORES_STAGE.reads]
    labels = tables.read("manual_labels", ["tenant", "query_id", "query", "text_id"])
    tenants = pc.unique(labels["tenant"]).sort().to_pylist()
    for number, (name, factory) in enumerate(systems.items()):
        output.progress(number, len(systems), name)
        for tenant in tenants:
            with output.unit(f"{tenant!r} {name!r}", key_of(*input_digests, identities[name])) as unit:
                if not unit.done:
                    tenant_labels = labels.filter(pc.equal(labels["tenant"], tenant)).combine_chunks()
                    output.write(
                        "manual_scores",
                        _rows(tenant_labels, name, _score_pairs(tables, tenant, tenant_labels, factory)),
                    )
    release()


def _score_pairs(tables: Tables, tenant: str, pairs: pa.Table, factory: Factory) -> Floats:
    """Scores, shape (n_pairs,); NaN if a retriever does not return the document."""
    chunks = TenantChunks(tables.with_parts("chunks", tables.parts("manual_texts")), tenant)
    texts = pc.index_in(pairs["text_id"], chunks.chunk_ids).to_numpy().astype(np.int64)
    queries = pairs["query"].combine_chunks().dictionary_encode()
    query_texts = queries.dictionary.to_pylist()
    if isinstance(factory, NeuralBuilder):
        return _products(factory, chunks, query_texts, queries.indices.to_numpy(), texts)
    return _search_scores(factory, chunks, query_texts, queries.indices.to_numpy(), texts)


def _products(
    builder: NeuralBuilder,
    chunks: TenantChunks,
    query_texts: Sequence[str],
    query: NDArray[np.int32],
    text: NDArray[np.int64],
) -> Floats:
    """Inner products; equal to exact search up to rounding."""
    encoder = Deferred(builder.encoder, builder.cache.root)
    cache = EmbeddingCache(builder.cache.root, builder.cache.vector_dtype)
    documents = CachedTexts(encoder, cache)
    text_vectors = np.concatenate([documents(batch) for batch in _texts_by_hash(chunks)])
    query_vectors = CachedQueries(encoder, cache)(query_texts)
    score_blocks = [
        np.einsum(
            "ij,ij->i", query_vectors[query[rows]].astype(np.float64), text_vectors[text[rows]].astype(np.float64)
        )
        for rows in np.array_split(np.arange(len(query)), max(1, len(query) // PAIRS_AT_ONCE))
    ]
    return np.concatenate(score_blocks).astype(np.float32)


def _texts_by_hash(chunks: TenantChunks) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the content hashes and the texts of all chunks, a batch at a time."""
    for batch in chunks.scan(["title", "heading", "text", "content_hash"]):
        rows = pa.Table.from_batches([batch])
        yield rows["content_hash"].combine_chunks(), view(rows).combine_chunks()


def _search_scores(
    factory: Factory,
    chunks: TenantChunks,
    query_texts: Sequence[str],
    query: NDArray[np.int32],
    text: NDArray[np.int64],
) -> Floats:
    scores = np.full(len(query), np.nan, np.float32)
    order = np.argsort(query, kind="stable")
    with tempfile.TemporaryDirectory(prefix="darklode-scores-") as scratch:
        retriever = factory(Corpus(chunks.batches, chunks.n, Path(scratch), None, chunks))
        size = max(1, MAX_SCORES // chunks.n)
        for start in range(0, len(query_texts), size):
            hits = retriever.search(query_texts[start : start + size], chunks.n)
            score_matrix = np.full((len(hits.rows), chunks.n), np.nan, np.float32)
            row, rank = np.nonzero(hits.rows >= 0)
            score_matrix[row, hits.rows[row, rank]] = hits.scores[row, rank]
            low, high = np.searchsorted(query[order], [start, start + len(score_matrix)])
            block_order = order[low:high]
            scores[block_order] = score_matrix[query[block_order] - start, text[block_order]]
    return scores


def _rows(pairs: pa.Table, name: str, scores: Floats) -> pa.Table:
    columns = {column: pairs[column] for column in ("tenant", "query_id", "text_id")}
    score = pa.array(scores, mask=np.isnan(scores))
    return TABLES["manual_scores"].rows(columns | {"system": pa.repeat(name, pairs.num_rows), "score": score})
