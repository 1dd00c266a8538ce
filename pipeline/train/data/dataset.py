"""Training data as arrays: queries by row, texts by position in the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.train.data.labels import Labels, Probabilities
from darklode.pipeline.train.data.vectors import FrozenIndex, concat_ranges

MEASURE = "nDCG@10"
DEPTH = 10


class QueryEncoder(Protocol):
    """Encodes queries."""

    def queries(self, texts: Sequence[str]) -> Floats:
        """Unit vectors, shape (len(texts), dimensions)."""


@dataclass(frozen=True)
class QuerySet:
    """The queries of one split.

    Attributes:
        ids: ascending.
        vectors: of the base encoder, shape (n_queries, dimensions).
        index: which run each query belongs to.
        labels: query_id, text_id and relevance, for texts in the index.
        texts: query texts; only encoder methods need them, heads work on `vectors`.
        groups: cluster of each query.
    """

    ids: pa.Array
    vectors: Floats
    index: NDArray[np.int32]
    labels: pa.Table
    texts: Sequence[str] = ()
    groups: pa.Array | None = None

    @classmethod
    def from_tables(cls, tables: Tables, frozen: FrozenIndex, split: str) -> QuerySet:
        """All queries of a split."""
        rows = tables.read("adaptation_queries")
        rows = rows.filter(pc.equal(rows["split"], split)).sort_by("query_id").combine_chunks()
        labels = tables.read("adaptation_labels", ["query_id", "text_id", "relevance", "learned", "probability"])
        in_split = pc.and_(
            pc.is_in(labels["query_id"], rows["query_id"].combine_chunks()),
            pc.is_in(labels["text_id"], frozen.texts["text_id"].combine_chunks()),
        )
        texts = rows["text"].to_pylist()
        ids, index = rows["query_id"].combine_chunks(), rows["index"].to_numpy()
        return cls(ids, frozen.encode(texts), index, labels.filter(in_split), texts, rows["group"].combine_chunks())

    @classmethod
    def from_texts(cls, texts: list[str], base: QueryEncoder, index: NDArray[np.int32] | None = None) -> QuerySet:
        """Queries without labels; `index` defaults to 0."""
        none = pa.table({"query_id": pa.array([], pa.string())})
        ids, zero = pa.array(map(str, range(len(texts)))), np.zeros(len(texts), np.int32)
        return cls(ids, base.queries(texts), zero if index is None else index, none, texts)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> QuerySet:
        ids, groups = self.ids.take(pa.array(rows)), None if self.groups is None else self.groups.take(pa.array(rows))
        labels = self.labels.filter(pc.is_in(self.labels["query_id"], ids))
        texts = [self.texts[row] for row in rows.tolist()]
        return QuerySet(ids, self.vectors[rows], self.index[rows], labels, texts, groups)

    def concat(self, other: QuerySet) -> QuerySet:
        return QuerySet(
            pa.concat_arrays([self.ids, other.ids]),
            np.concatenate([self.vectors, other.vectors]),
            np.concatenate([self.index, other.index]),
            pa.concat_tables([self.labels, other.labels]),
            [*self.texts, *other.texts],
            pa.concat_arrays([column for column in (self.groups, other.groups) if column is not None]),
        )

    def positives(self, frozen: FrozenIndex) -> tuple[Ints, Ints]:
        """Query index and text position of each relevant pair."""
        rows = self.labels.filter(pc.greater(self.labels["relevance"], 0))
        query, row = self.label_rows(frozen, rows)
        return query, frozen.position_of[row]

    def label_rows(self, frozen: FrozenIndex, labels: pa.Table) -> tuple[Ints, Ints]:
        """Query index and text row of each label."""
        texts = frozen.texts["text_id"].combine_chunks()
        query, row = pc.index_in(labels["query_id"], self.ids), pc.index_in(labels["text_id"], texts)
        return query.to_numpy().astype(np.int64), row.to_numpy().astype(np.int64)

    def ranking(self, frozen: FrozenIndex, vectors: Floats, depth: int) -> pa.Table:
        """Exact search with query vectors: query_id, rank, text_id and score, query by query, best first."""
        positions, scores = frozen.search(vectors, self.index, depth)
        query, rank = np.nonzero(positions >= 0)
        return self._lists(frozen, query, positions[query, rank]).append_column("score", pa.array(scores[query, rank]))

    def ndcg(self, frozen: FrozenIndex, vectors: Floats) -> float:
        """nDCG@10 of query vectors, by the fast search of training; NaN without queries."""
        if not len(self):
            return float("nan")
        lists = self._lists(frozen, *frozen.rows_of(frozen.nearest(vectors, self.index, DEPTH)[0]))
        return float(compute_measures([lists], self.labels, self.ids.to_pylist(), [MEASURE]).mean())

    def _lists(self, frozen: FrozenIndex, query: Ints, row: Ints) -> pa.Table:
        """Rankings of text rows, given query by query, best first."""
        starts = np.searchsorted(query, np.arange(len(self)))
        rank = np.arange(len(query)) - starts[query] + 1
        columns = {"query_id": self.ids.take(pa.array(query)), "rank": rank.astype(np.int32)}
        return pa.table(columns | {"text_id": frozen.texts["text_id"].take(pa.array(row))})


@dataclass(frozen=True)
class Task:
    """The data of a training trial. Queries are addressed by their index in `train`, texts by their position.

    Attributes:
        frozen: the text vectors.
        train: training queries.
        validation: queries to evaluate and select on.
        pair_query: query of each training pair, ascending.
        pair_position: its positive.
        labels: all positives of the train queries, trained on or not.
        non_relevant: texts labelled as not relevant.
        siblings: other texts of a positive's document; None if they may be negatives.
        probabilities: judge probabilities; None if there are none.
        keep_last: train to the last step and keep the last weights, whatever the validation score.
    """

    frozen: FrozenIndex
    train: QuerySet
    validation: QuerySet
    pair_query: Ints
    pair_position: Ints
    labels: Labels
    non_relevant: Labels
    siblings: Labels | None
    probabilities: Probabilities | None = None
    keep_last: bool = False

    def with_queries(self, query_rows: Ints) -> Task:
        """The task with some of the train queries only."""
        number = np.full(len(self.train), -1)
        number[query_rows] = np.arange(len(query_rows))
        query = number[self.pair_query]
        return replace(
            self,
            train=self.train.take(query_rows),
            pair_query=query[query >= 0],
            pair_position=self.pair_position[query >= 0],
            labels=self.labels.select(query_rows),
            non_relevant=self.non_relevant.select(query_rows),
            siblings=self.siblings and self.siblings.select(query_rows),
            probabilities=self.probabilities and self.probabilities.select(query_rows),
        )

    def from_training_pairs(self, query: Ints, position: Ints) -> Task:
        """The task with these pairs as its only labels."""
        n, none = len(self.frozen), np.empty(0, np.int64)
        labels, non_relevant = Labels.from_pairs(query, position, n), Labels.from_pairs(none, none, n)
        return replace(
            self,
            pair_query=query,
            pair_position=position,
            labels=labels,
            non_relevant=non_relevant,
            siblings=None,
            probabilities=None,
        )

    @classmethod
    def from_tables(cls, tables: Tables, frozen: FrozenIndex, *, same_document: bool) -> Task:
        """From the tables of `adaptation_pairs`."""
        train, validation = (QuerySet.from_tables(tables, frozen, split) for split in ("train", "validation"))
        rows = train.labels.combine_chunks()
        query, row = train.label_rows(frozen, rows)
        position, n = frozen.position_of[row], len(frozen)
        right = rows["relevance"].to_numpy() > 0
        learned = np.asarray(rows["learned"].to_numpy(zero_copy_only=False), bool)
        pairs = np.unique(np.column_stack([query[learned], position[learned]]), axis=0)
        labels = Labels.from_pairs(query[right], position[right], n)
        non_relevant = Labels.from_pairs(query[~right], position[~right], n)
        siblings = None if same_document else _same_document(frozen, query[right], row[right])
        values = rows["probability"].to_numpy(zero_copy_only=False).astype(np.float32)
        probabilities = Probabilities.from_pairs(query, position, values, n)
        return cls(frozen, train, validation, pairs[:, 0], pairs[:, 1], labels, non_relevant, siblings, probabilities)


def _same_document(frozen: FrozenIndex, query: Ints, row: Ints) -> Labels:
    """All texts of the documents of these positives."""
    texts = frozen.texts
    names = pc.binary_join_element_wise(pc.cast(texts["index"], pa.string()), texts["doc_id"], "\x00").combine_chunks()
    document = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.argsort(document, kind="stable")
    starts = np.searchsorted(document[order], np.arange(document.max() + 2))
    pairs = np.unique(np.column_stack([query, document[row]]), axis=0)
    low, high = starts[pairs[:, 1]], starts[pairs[:, 1] + 1]
    return Labels.from_pairs(
        np.repeat(pairs[:, 0], high - low), frozen.position_of[order[concat_ranges(low, high)]], len(frozen)
    )
