"""The stage `rerank_candidates`: the texts that a reranker orders, by a fusion of BM25 and an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.prepare.split import SPLITS
from darklode.pipeline.reranker.lists import CandidateLists
from darklode.pipeline.train.data.fusion import fuse
from darklode.pipeline.train.data.sources import TrainingSource, texts_of
from darklode.pipeline.train.release.label_free import DENSE_WEIGHTS
from darklode.schemas.reranker_tables import RERANK_CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.data.dataset import QuerySet
    from darklode.pipeline.train.data.vectors import FrozenIndex
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings

READS = ("adaptation_queries", "adaptation_labels", "adaptation_texts")
CANDIDATES_STAGE = Stage("rerank_candidates", 1, READS, (RERANK_CANDIDATES.name,))

FUSED_DEPTH = 100
"""Minimum length of the fused lists, as in `adapt`."""

FUSIONS = (None, *DENSE_WEIGHTS)
"""Fusions to select from: by rank (None), or by score with a weight of the encoder's and 1 minus it of BM25's."""


def rerank_candidates(tables: Tables, output: Output, base: BaseEncoder, depth: int) -> None:
    """Write the first texts of the fused lists for all queries; the fusion is selected on validation queries.

    Args:
        tables: the tables of `adaptation_pairs`.
        output: receives `rerank_candidates`; its fact `encoder weight` is the selected weight, null for RRF.
        base: the encoder, with the runs.
        depth: candidates per query.
    """
    from darklode.pipeline.train.data.dataset import QuerySet, Task
    from darklode.pipeline.train.fit.model_selection import selection_queries
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings

    frozen = base.open(tables)
    bm25 = Bm25Rankings(base, frozen)
    selection = selection_queries(Task.from_tables(tables, frozen, same_document=True))
    weight = _select_weight(selection, frozen, bm25, depth)
    tenant = tables.read("adaptation_queries", ["tenant"])["tenant"][0].as_py()
    for number, split in enumerate(SPLITS):
        queries = QuerySet.from_tables(tables, frozen, split)
        if len(queries):
            rows = _fuse(_lists(queries, frozen, bm25, depth), weight, depth)
            columns = {name: rows[name] for name in ("query_id", "rank", "text_id", "score")}
            columns["tenant"] = pa.repeat(tenant, rows.num_rows)
            output.write(RERANK_CANDIDATES.name, RERANK_CANDIDATES.rows(columns))
        output.progress(number + 1, len(SPLITS))
    output.facts |= {"encoder weight": weight, "candidates": depth}
    n_queries = tables.rows("adaptation_queries")
    output.count(
        FunnelStep(CANDIDATES_STAGE.name, "queries", n_queries, "candidates", output.rows(RERANK_CANDIDATES.name))
    )


def _select_weight(queries: QuerySet, frozen: FrozenIndex, bm25: Bm25Rankings, depth: int) -> float | None:
    """The fusion of `FUSIONS` with the best nDCG@10; the first of several."""
    lists, ids = _lists(queries, frozen, bm25, depth), queries.ids.to_pylist()
    values = {
        weight: float(compute_measures([_fuse(lists, weight, depth)], queries.labels, ids, ["nDCG@10"]).mean())
        for weight in FUSIONS
    }
    return max(values, key=lambda weight: values[weight])


def _lists(queries: QuerySet, frozen: FrozenIndex, bm25: Bm25Rankings, depth: int) -> tuple[pa.Table, pa.Table]:
    length = max(FUSED_DEPTH, depth)
    return bm25.rankings(queries, length), queries.ranking(frozen, queries.vectors, length)


def _fuse(lists: tuple[pa.Table, pa.Table], weight: float | None, depth: int) -> pa.Table:
    rows = fuse(*lists, weight)
    return rows.filter(pc.less_equal(rows["rank"], depth))


def load_lists(
    tables: Tables, sources: Sequence[TrainingSource], queries: pa.Table, labels: pa.Table
) -> CandidateLists:
    """Candidate lists of some queries, with the texts.

    Args:
        tables: `rerank_candidates` and `adaptation_texts`.
        sources: the runs, which have the texts.
        queries: query_id and text of each.
        labels: query_id, text_id and relevance; others than those of the queries are left out.
    """
    ids = queries["query_id"].combine_chunks()
    rows = tables.read(RERANK_CANDIDATES.name)
    rows = rows.filter(pc.is_in(rows["query_id"], ids)).combine_chunks()
    number = pc.index_in(rows["query_id"], ids).to_numpy().astype(np.int64)
    order = np.lexsort((rows["rank"].to_numpy(), number))
    rows, number = rows.take(pa.array(order)), number[order]
    text_ids = pc.unique(rows["text_id"])
    return CandidateLists(
        ids,
        queries["text"].to_pylist(),
        load_texts(tables, sources, text_ids),
        rows.select(["query_id", "text_id", "score"]),
        number,
        pc.index_in(rows["text_id"], text_ids).to_numpy().astype(np.int64),
        labels.filter(pc.is_in(labels["query_id"], ids)).select(["query_id", "text_id", "relevance"]),
    )


def load_texts(tables: Tables, sources: Sequence[TrainingSource], text_ids: pa.Array) -> pa.Array:
    """Texts as retrievers see them, in the order of their ids.

    Args:
        tables: `adaptation_texts`.
        sources: the runs.
        text_ids: ids in `adaptation_texts`.
    """
    from darklode.pipeline.base.chunk_texts import view

    if not len(text_ids):
        return pa.array([], pa.string())
    texts = tables.read("adaptation_texts", ["tenant", "index", "text_id"])
    rows = texts.take(pc.index_in(text_ids, texts["text_id"].combine_chunks()))
    return view(texts_of(sources, rows)).combine_chunks()
