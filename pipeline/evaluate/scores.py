"""How well systems think that given pairs of a query and a document fit, each alone: what AUC is counted of."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Json, Output, Stage, Tables, digest, key_of
from darklode.pipeline.base.corpora import TenantChunks, view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts
from darklode.pipeline.retrieve.encoders.deferred import Deferred, release
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.retrieve.retrievers.port import Factory
from darklode.schemas.tables import TABLES

SCORES = Stage("manual_scores", 1, ("manual_labels", "manual_texts"), ("manual_scores",))

CELLS = 1 << 22
"""Scores of queries × documents held at a time."""

PAIRS_AT_ONCE = 1 << 13

Floats = NDArray[np.float32]


def manual_scores(
    tables: Tables, output: Output, *, systems: Mapping[str, Factory], identities: Mapping[str, Json]
) -> None:
    """Score each labelled pair: an encoder by the inner product, a retriever by its score over the labelled documents.

    One unit per tenant and system.

    Args:
        tables: holds `manual_labels` and `manual_texts`.
        output: takes `manual_scores`.
        systems: builds each retriever, by name.
        identities: what can change each one's scores.
    """
    basis = [digest(tables.parts(name)) for name in SCORES.reads]
    labels = tables.read("manual_labels", ["tenant", "query_id", "query", "text_id"])
    tenants = pc.unique(labels["tenant"]).sort().to_pylist()
    for number, (name, factory) in enumerate(systems.items()):
        output.progress(number, len(systems), name)
        for tenant in tenants:
            with output.unit(f"{tenant!r} {name!r}", key_of(*basis, identities[name])) as unit:
                if not unit.done:
                    mine = labels.filter(pc.equal(labels["tenant"], tenant)).combine_chunks()
                    output.write("manual_scores", _rows(mine, name, _scored(tables, tenant, mine, factory)))
    release()


def _scored(tables: Tables, tenant: str, pairs: pa.Table, factory: Factory) -> Floats:
    """Shape (n_pairs,); not a number where a retriever did not find the document at all."""
    chunks = TenantChunks(tables.of("chunks", tables.parts("manual_texts")), tenant)
    texts = pc.index_in(pairs["text_id"], chunks.chunk_ids).to_numpy().astype(np.int64)
    queries = pairs["query"].combine_chunks().dictionary_encode()
    asked = queries.dictionary.to_pylist()
    if isinstance(factory, NeuralBuilder):
        return _products(factory, chunks, asked, queries.indices.to_numpy(), texts)
    return _searched(factory, chunks, asked, queries.indices.to_numpy(), texts)


def _products(
    builder: NeuralBuilder,
    chunks: TenantChunks,
    asked: Sequence[str],
    query: NDArray[np.int32],
    text: NDArray[np.int64],
) -> Floats:
    """Inner products, as exact search has them but for the rounding of sums."""
    encoder, cache = (
        Deferred(builder.encoder, builder.cache.root),
        EmbeddingCache(builder.cache.root, builder.cache.dtype),
    )
    documents = CachedTexts(encoder, cache)
    vectors = np.concatenate([documents(batch) for batch in _hashed(chunks)])
    of_queries = CachedQueries(encoder, cache)(asked)
    found = [
        np.einsum("ij,ij->i", of_queries[query[at]].astype(np.float64), vectors[text[at]].astype(np.float64))
        for at in np.array_split(np.arange(len(query)), max(1, len(query) // PAIRS_AT_ONCE))
    ]
    return np.concatenate(found).astype(np.float32)


def _hashed(chunks: TenantChunks) -> Iterator[tuple[pa.Array, pa.Array]]:
    for batch in chunks.scan(["title", "heading", "text", "content_hash"]):
        rows = pa.Table.from_batches([batch])
        yield rows["content_hash"].combine_chunks(), view(rows).combine_chunks()


def _searched(
    factory: Factory, chunks: TenantChunks, asked: Sequence[str], query: NDArray[np.int32], text: NDArray[np.int64]
) -> Floats:
    scores = np.full(len(query), np.nan, np.float32)
    order = np.argsort(query, kind="stable")
    with tempfile.TemporaryDirectory(prefix="darklode-scores-") as scratch:
        retriever = factory(Corpus(chunks.batches, chunks.n, Path(scratch), None, chunks))
        size = max(1, CELLS // chunks.n)
        for start in range(0, len(asked), size):
            hits = retriever.search(asked[start : start + size], chunks.n)
            whole = np.full((len(hits.rows), chunks.n), np.nan, np.float32)
            row, place = np.nonzero(hits.rows >= 0)
            whole[row, hits.rows[row, place]] = hits.scores[row, place]
            low, high = np.searchsorted(query[order], [start, start + len(whole)])
            mine = order[low:high]
            scores[mine] = whole[query[mine] - start, text[mine]]
    return scores


def _rows(pairs: pa.Table, name: str, scores: Floats) -> pa.Table:
    columns = {column: pairs[column] for column in ("tenant", "query_id", "text_id")}
    score = pa.array(scores, mask=np.isnan(scores))
    return TABLES["manual_scores"].rows(columns | {"system": pa.repeat(name, pairs.num_rows), "score": score})
