"""BM25 over the texts that an encoder is adapted on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.types import Ints
from darklode.pipeline.retrieve.retrievers.bm25 import FIXED_SETTINGS
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.vectors import FrozenIndex

if TYPE_CHECKING:
    from darklode.pipeline.retrieve.retrievers.port import Hits


Indexes = dict[int, tuple[int, Corpus]]
"""By the number of a run: row of its first text, and its texts with their BM25 index."""


class Bm25Cache:
    """Keeps the BM25 indexes of the last texts, so that the stages of one process build them once."""

    def __init__(self) -> None:
        self._cached: tuple[pa.Table, Indexes] | None = None

    def indexes(self, texts: pa.Table, build: Callable[[], Indexes]) -> Indexes:
        """The indexes of rows of `adaptation_texts`; built if the last texts were others."""
        if self._cached is None or not self._cached[0].equals(texts):
            self._cached = texts, build()
        return self._cached[1]


class Bm25Rankings:
    """BM25 over the texts of the runs, one index per run.

    Attributes:
        base: the encoder, which has the runs.
        frozen: the index, which has the texts.

    Args:
        cache: where the indexes are kept.
    """

    def __init__(self, base: BaseEncoder, frozen: FrozenIndex, cache: Bm25Cache | None = None) -> None:
        self.base, self.frozen = base, frozen
        self._indexes = (cache or Bm25Cache()).indexes(frozen.texts, self._corpora)

    def _corpora(self) -> Indexes:
        base, frozen, indexes = self.base, self.frozen, Indexes()
        numbers = frozen.texts["index"].to_numpy()
        tenant = frozen.texts["tenant"][0].as_py()
        for number in frozen.numbers.tolist():
            first, n = int(np.searchsorted(numbers, number)), int((numbers == number).sum())

            def batches(source: int = number) -> Iterator[list[str]]:
                return (texts.to_pylist() for _, texts in base.sources[source].iterate_hashes(tenant))

            indexes[number] = first, Corpus(batches, n, Path())
        return indexes

    def rankings(self, queries: QuerySet, depth: int) -> pa.Table:
        """BM25 rankings: query_id, rank, text_id and score, query by query, best first."""
        tables_of_hits = []
        for number in self._indexes:
            query, hits = self._hits(queries, number, depth)
            row, rank = np.nonzero(hits.rows >= 0)
            columns = {
                "query_id": queries.ids.take(pa.array(query[row])),
                "rank": (rank + 1).astype(np.int32),
                "text_id": self.frozen.texts["text_id"].take(pa.array(hits.rows[row, rank])),
                "score": hits.scores[row, rank],
            }
            tables_of_hits.append(pa.table(columns))
        return pa.concat_tables(tables_of_hits)

    def training_pairs(self, task: Task) -> Task:
        """Each query with its first BM25 hit as the positive."""
        pair_tables = []
        for number in self._indexes:
            query, hits = self._hits(task.train, number, 1)
            has_hit = hits.rows[:, 0] >= 0
            pair_tables.append(np.column_stack([query, self.frozen.position_of[hits.rows[:, 0]]])[has_hit])
        pairs = np.concatenate(pair_tables)
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        return task.from_training_pairs(pairs[:, 0], pairs[:, 1])

    def _hits(self, queries: QuerySet, number: int, depth: int) -> tuple[Ints, Hits]:
        """Queries of one index, and their hits as rows of all texts."""
        first, corpus = self._indexes[number]
        query = np.flatnonzero(queries.index == number)
        hits = corpus.bm25(FIXED_SETTINGS).search([queries.texts[row] for row in query.tolist()], depth)
        return query, replace(hits, rows=np.where(hits.rows >= 0, hits.rows + first, -1))
