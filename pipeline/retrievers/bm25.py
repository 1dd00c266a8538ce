"""BM25 over stemmed terms, on the bm25s engine."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import bm25s
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipeline.retrievers.port import Hits
from pipeline.retrievers.topk import BLOCK_CELLS, stack_hits, top_k
from pipeline.terms import TermSpace

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to DEBUG


class Bm25:
    """BM25 (Robertson and Zaragoza 2009) with Lucene's idf, which is above 0 for every term.

    k1 is 1.5 and b 0.75. A chunk without any term of the query is no hit.
    """

    name = "bm25"

    def __init__(self, terms: TermSpace) -> None:
        self._terms = terms
        self._engine = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        if terms.counts.nnz:
            lengths = np.asarray(terms.counts.sum(axis=1), dtype=np.int64).ravel()
            words = np.repeat(terms.counts.indices, terms.counts.data.astype(np.int64))
            chunks = np.split(words, np.cumsum(lengths)[:-1])
            corpus = (chunks, dict(terms.vocabulary))
            self._engine.index(corpus, create_empty_token=False, show_progress=False)

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`."""
        counts = self._terms.count(queries)
        step = max(1, BLOCK_CELLS // max(1, self._terms.n_chunks))
        blocks = [top_k(self._scores(counts[i : i + step]), depth) for i in range(0, len(queries), step)]
        return stack_hits(blocks, min(depth, self._terms.n_chunks))

    def _scores(self, queries: sparse.csr_matrix) -> NDArray[np.float32]:
        scores = np.full((queries.shape[0], self._terms.n_chunks), np.nan, dtype=np.float32)
        for row in range(queries.shape[0]):
            terms = slice(queries.indptr[row], queries.indptr[row + 1])
            words = np.repeat(queries.indices[terms], queries.data[terms].astype(np.int64))
            if len(words):
                found = self._engine.get_scores_from_ids(words)
                scores[row] = np.where(found > 0, found, np.nan)
        return scores
