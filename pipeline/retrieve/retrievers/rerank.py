"""Reranking: the best hits of a retriever, ordered by a model that reads query and chunk together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.memory.rows import RowKind
from darklode.pipeline.base.memory.store import KeyedStore
from darklode.pipeline.base.models.cross_encoder import CrossEncoderModel
from darklode.pipeline.base.types import Doubles, Floats, Ints
from darklode.pipeline.retrieve.encoders.caching import hash_query
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.fusion import weighted_scores
from darklode.pipeline.retrieve.retrievers.port import Hits, Recall, Retriever
from darklode.pipeline.retrieve.retrievers.topk import best_hits, rank_keys

SCORE_ROWS = RowKind(
    "rerank_scores", "reranker", ("query_hash", "content_hash"), pa.schema([pa.field("score", pa.float32())])
)
"""Cached score of a query and a chunk."""

STORE_SECONDS = 5.0
"""Seconds of scoring until scores are stored; a kill loses these and the forward passes in flight."""

_FORWARD_PASSES = 8
"""Forward passes after which scores can be stored."""

_DECIMALS = 4
"""Decimals of scores that do not depend on the other pairs of a batch."""


class PairScorer(Protocol):
    """Scores pairs of queries and chunks."""

    def scores(self, queries: Sequence[str], query: Ints, row: Ints) -> Floats:
        """Score pairs.

        Args:
            queries: texts of the queries.
            query: index of each pair's query, shape (n_pairs,).
            row: row of each pair's chunk, same shape.
        """


class Reranked(Retriever):
    """The best hits of a retriever, ordered by a pair scorer; chunks below are no hits.

    Args:
        name: the retriever's name in rankings.
        retriever: finds the candidates.
        depth: number of candidates per query, and the greatest length of a list.
        scorer: scores the candidates.
        n_chunks: number of chunks.
        weight: weight of the scorer's scores; the retriever's have the rest, both scaled to 0 … 1 per query.
    """

    def __init__(
        self, name: str, retriever: Retriever, depth: int, scorer: PairScorer, n_chunks: int, weight: float = 1.0
    ) -> None:
        self.name = name
        self._retriever, self._depth, self._scorer, self._n_chunks = retriever, depth, scorer, n_chunks
        self._weight = weight

    @property
    def recall(self) -> Recall | None:
        """See `Retriever`: that of the first retriever."""
        return self._retriever.recall

    @property
    def unused(self) -> pa.Table:
        """See `Retriever`: what the first retriever could not use."""
        return self._retriever.unused

    def search(self, queries: Sequence[str], depth: int) -> Hits:
        """See `Retriever`. Equal scores rank by ascending row."""
        candidates = self._retriever.search(queries, self._depth)
        query, column = np.nonzero(candidates.rows >= 0)
        row = candidates.rows[query, column]
        scores = self._scorer.scores(queries, query, row)
        if self._weight < 1:
            own_scores = candidates.scores[query, column].astype(np.float64)
            scores = weighted_scores(query, own_scores, scores, self._weight).astype(np.float32)
        keys = rank_keys(scores, row)
        return best_hits(query, keys, len(queries), min(depth, self._n_chunks))


class CrossEncoderScorer(PairScorer):
    """A cross-encoder's output (logit) for query and chunk, from the cache where it has been computed before.

    Args:
        model: the cross-encoder; not loaded if no score is missing.
        corpus: the tenant's chunks.
        store: cache of the scores.
        owner: everything that can change a score.
    """

    def __init__(self, model: CrossEncoderModel, corpus: Corpus, store: KeyedStore, owner: str) -> None:
        self._model, self._corpus, self._store, self._owner = model, corpus, store, owner
        self._hashes = corpus.hashed_chunks.hashes()

    def scores(self, queries: Sequence[str], query: Ints, row: Ints) -> Floats:
        """See `PairScorer`.

        Raises:
            MissingPart: the model or a package is missing.
            DarklodeError: a score is not a number.
        """
        query_hashes = pa.array([hash_query(text) for text in queries], pa.string())
        keys = pa.table(
            {"query_hash": query_hashes.take(pa.array(query)), "content_hash": self._hashes.take(pa.array(row))}
        )
        scores = np.full(len(row), np.nan, np.float32)
        cached = self._store.open(self._owner).find(keys)
        scores[cached.rows] = cached.values["score"].to_numpy()
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            pair_keys = self._store.kind.keys(keys.take(pa.array(missing)))
            _, first, number = np.unique(pair_keys, axis=0, return_index=True, return_inverse=True)
            self._compute(queries, query, row, keys, missing[first], scores)
            scores[missing] = scores[missing[first]][number.ravel()]
        return scores

    def _compute(
        self, queries: Sequence[str], query: Ints, row: Ints, keys: pa.Table, missing: Ints, scores: Floats
    ) -> None:
        """Fill in scores of distinct pairs, longest first: the pairs of a batch have similar lengths then."""
        chunk_rows, position = np.unique(row[missing], return_inverse=True)
        _, chunks = self._corpus.hashed_texts(chunk_rows)
        lengths = np.array([len(text) for text in queries])[query[missing]]
        lengths = lengths + pc.utf8_length(chunks).to_numpy()[position]
        order = np.argsort(-lengths, kind="stable")
        step, stored, stored_at = _FORWARD_PASSES * self._model.pairs_per_pass, 0, time.monotonic()
        for start in range(0, len(order), step):
            places = order[start : start + step]
            texts = chunks.take(pa.array(position[places])).to_pylist()
            pairs = [(queries[number], text) for number, text in zip(query[missing[places]], texts, strict=True)]
            scores[missing[places]] = self._checked(self._model.scores(pairs, as_probabilities=False), pairs)
            end = start + len(places)
            if end == len(order) or time.monotonic() - stored_at > STORE_SECONDS:
                self._keep(keys, scores, missing[order[stored:end]])
                stored, stored_at = end, time.monotonic()
        self._store.merge_small_parts(self._owner)

    def _checked(self, scores: Doubles, pairs: Sequence[tuple[str, str]]) -> Doubles:
        if not np.isfinite(scores).all():
            query, text = pairs[int(np.argmin(np.isfinite(scores)))]
            raise DarklodeError(
                f"{self._owner} gave no number for {query[:60]!r} and {text[:60]!r}; set dtype: bfloat16 or float32"
            )
        return scores.round(_DECIMALS)

    def _keep(self, keys: pa.Table, scores: Floats, pairs: Ints) -> None:
        self._store.append(self._owner, keys.take(pa.array(pairs)).append_column("score", pa.array(scores[pairs])))
