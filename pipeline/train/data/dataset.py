"""Training data as arrays: queries by row, texts by position in the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.train.data.labels import Labels, Probabilities
from darklode.pipeline.train.data.term_vectors import term_queries
from darklode.pipeline.train.data.vectors import FrozenIndex, concat_ranges

MEASURE = "nDCG@10"
"""Measure that training selects weights by."""
DEPTH = 10
"""Depth of the rankings it is computed on; must be the cutoff of `MEASURE`."""


class QueryEncoder(Protocol):
    """Encodes queries."""

    def queries(self, texts: Sequence[str]) -> Floats:
        """Encode texts as unit vectors, shape (len(texts), dimensions)."""


@dataclass(frozen=True)
class QuerySet:
    """The queries of one split.

    Attributes:
        ids: query ids, ascending; a query's row is its place here.
        vectors: vectors of the base encoder, shape (n_queries, dimensions).
        index: number of the run that each query belongs to; it searches that run's texts only.
        labels: columns query_id, text_id and relevance (null: uncertain), for texts in the index.
        texts: query texts; only encoder methods need them, heads work on `vectors`.
        groups: cluster id of each query; None: not clustered.
        terms: sums of the queries' term vectors, shape (n_queries, dimensions); None: there are none.
    """

    ids: pa.Array
    vectors: Floats
    index: NDArray[np.int32]
    labels: pa.Table
    texts: Sequence[str] = ()
    groups: pa.Array | None = None
    terms: Floats | None = None

    @classmethod
    def from_tables(cls, tables: Tables, frozen: FrozenIndex, split: str) -> QuerySet:
        """Load all queries of a split, with their labels and base vectors."""
        rows = tables.read("adaptation_queries")
        rows = rows.filter(pc.equal(rows["split"], split)).sort_by("query_id").combine_chunks()
        labels = tables.read(
            "adaptation_labels", ["query_id", "text_id", "relevance", "learned", "probability", "weight"]
        )
        in_split = pc.and_(
            pc.is_in(labels["query_id"], rows["query_id"].combine_chunks()),
            pc.is_in(labels["text_id"], frozen.texts["text_id"].combine_chunks()),
        )
        texts = rows["text"].to_pylist()
        return cls(
            ids=rows["query_id"].combine_chunks(),
            vectors=frozen.encode(texts),
            index=rows["index"].to_numpy(),
            labels=labels.filter(in_split),
            texts=texts,
            groups=rows["group"].combine_chunks(),
            terms=term_queries(tables, rows["query_id"].combine_chunks()),
        )

    @classmethod
    def from_texts(cls, texts: list[str], base: QueryEncoder, index: NDArray[np.int32] | None = None) -> QuerySet:
        """Encode queries without labels; their ids are "0", "1", …, and `index` defaults to 0."""
        no_labels = pa.table({"query_id": pa.array([], pa.string())})
        ids = pa.array(map(str, range(len(texts))))
        if index is None:
            index = np.zeros(len(texts), np.int32)
        return cls(ids, base.queries(texts), index, no_labels, texts)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> QuerySet:
        """Select some queries by row, with their labels."""
        ids = self.ids.take(pa.array(rows))
        groups = None if self.groups is None else self.groups.take(pa.array(rows))
        labels = self.labels.filter(pc.is_in(self.labels["query_id"], ids))
        texts = [self.texts[row] for row in rows.tolist()]
        terms = None if self.terms is None else self.terms[rows]
        return QuerySet(ids, self.vectors[rows], self.index[rows], labels, texts, groups, terms)

    def concat(self, other: QuerySet) -> QuerySet:
        """Append the queries of another set; ids must not repeat.

        The result has groups and term vectors only if both sets have them.
        """
        groups = None
        if self.groups is not None and other.groups is not None:
            groups = pa.concat_arrays([self.groups, other.groups])
        terms = None
        if self.terms is not None and other.terms is not None:
            terms = np.concatenate([self.terms, other.terms])
        return QuerySet(
            pa.concat_arrays([self.ids, other.ids]),
            np.concatenate([self.vectors, other.vectors]),
            np.concatenate([self.index, other.index]),
            pa.concat_tables([self.labels, other.labels]),
            [*self.texts, *other.texts],
            groups,
            terms,
        )

    def positives(self, frozen: FrozenIndex) -> tuple[Ints, Ints]:
        """Return the query row and text position of each pair that is labelled as relevant."""
        relevant = self.labels.filter(pc.greater(self.labels["relevance"], 0))
        query, text_row = self.label_rows(frozen, relevant)
        return query, frozen.position_of[text_row]

    def label_rows(self, frozen: FrozenIndex, labels: pa.Table) -> tuple[Ints, Ints]:
        """Return the query row and the row in `frozen.texts` of each label."""
        text_ids = frozen.texts["text_id"].combine_chunks()
        query = pc.index_in(labels["query_id"], self.ids)
        text_row = pc.index_in(labels["text_id"], text_ids)
        return query.to_numpy().astype(np.int64), text_row.to_numpy().astype(np.int64)

    def ranking(self, frozen: FrozenIndex, vectors: Floats, depth: int) -> pa.Table:
        """Search exactly with query vectors; columns query_id, rank, text_id and score, query by query, best first."""
        text_rows, scores = frozen.search(vectors, self.index, depth)
        query, column = np.nonzero(text_rows >= 0)
        return self._rankings(frozen, query, text_rows[query, column]).append_column(
            "score", pa.array(scores[query, column])
        )

    def ndcg(self, frozen: FrozenIndex, vectors: Floats) -> float:
        """Mean nDCG@10 of query vectors, by the fast search of training; NaN without queries."""
        if not len(self):
            return float("nan")
        positions, _ = frozen.nearest(vectors, self.index, DEPTH + self.max_uncertain)
        rankings = self._rankings(frozen, *frozen.rows_of(positions))
        return float(compute_measures([rankings], self.labels, self.ids.to_pylist(), [MEASURE]).mean())

    @cached_property
    def max_uncertain(self) -> int:
        """Maximum number of uncertain labels of a query: measures leave these texts out of the ranking."""
        uncertain = self.labels.filter(pc.is_null(self.labels["relevance"]))["query_id"]
        return int(pc.max(pc.value_counts(uncertain).field("counts")).as_py() or 0)

    def _rankings(self, frozen: FrozenIndex, query: Ints, row: Ints) -> pa.Table:
        """Build a table of rankings from query rows and text rows, which are sorted by query and best first."""
        starts = np.searchsorted(query, np.arange(len(self)))
        rank = np.arange(len(query)) - starts[query] + 1
        columns = {"query_id": self.ids.take(pa.array(query)), "rank": rank.astype(np.int32)}
        return pa.table(columns | {"text_id": frozen.texts["text_id"].take(pa.array(row))})


@dataclass(frozen=True)
class Task:
    """The data of a training trial. Queries are addressed by their row in `train`, texts by their position in `frozen`.

    Attributes:
        frozen: the text vectors, which training does not change.
        train: training queries.
        validation: queries that trials are evaluated and selected on.
        pair_query: query of each training pair, ascending.
        pair_position: positive of each training pair.
        labels: all positives of the train queries, uncertain ones too, trained on or not; never mined as negatives.
        non_relevant: texts labelled as not relevant, per train query; preferred as negatives.
        siblings: all texts of the positives' documents, per train query; None if they may be negatives.
        probabilities: judge probabilities of labels; None if there are none.
        pair_weight: weight of each training pair, above 0 to 1; None: all are 1.
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
    pair_weight: Floats | None = None
    keep_last: bool = False

    def relative_weights(self, *, one_per_query: bool) -> Floats:
        """Weight of each training pair divided by the mean weight, shape (n_pairs,).

        Equal weights are exactly 1, whatever their value, so that a judge that gives no probabilities, or people's
        labels, train as without weights.

        Args:
            one_per_query: whether training draws one pair per query, so that each query counts equally in the mean;
                otherwise each pair does.
        """
        if self.pair_weight is None:
            return np.ones(len(self.pair_query), np.float32)
        weights = self.pair_weight.astype(np.float64)
        share = np.ones(len(weights)) if not one_per_query else 1 / np.bincount(self.pair_query)[self.pair_query]
        return np.asarray(weights * share.sum() / (weights @ share), np.float32)

    def with_queries(self, query_rows: Ints) -> Task:
        """Return the task with some of the train queries only; validation stays the same."""
        new_rows = np.full(len(self.train), -1)  # −1: the query is left out
        new_rows[query_rows] = np.arange(len(query_rows))
        query = new_rows[self.pair_query]
        return replace(
            self,
            train=self.train.take(query_rows),
            pair_query=query[query >= 0],
            pair_position=self.pair_position[query >= 0],
            pair_weight=None if self.pair_weight is None else self.pair_weight[query >= 0],
            labels=self.labels.select(query_rows),
            non_relevant=self.non_relevant.select(query_rows),
            siblings=self.siblings and self.siblings.select(query_rows),
            probabilities=self.probabilities and self.probabilities.select(query_rows),
        )

    def from_training_pairs(self, query: Ints, position: Ints) -> Task:
        """Return the task with these pairs as its only labels, all with the weight 1."""
        n_positions = len(self.frozen)
        no_pairs = np.empty(0, np.int64)
        labels = Labels.from_pairs(query, position, n_positions)
        non_relevant = Labels.from_pairs(no_pairs, no_pairs, n_positions)
        return replace(
            self,
            pair_query=query,
            pair_position=position,
            labels=labels,
            non_relevant=non_relevant,
            siblings=None,
            probabilities=None,
            pair_weight=None,
        )

    @classmethod
    def from_tables(cls, tables: Tables, frozen: FrozenIndex, *, same_document: bool) -> Task:
        """Load the task from the tables of `adaptation_pairs`.

        Args:
            tables: hold `adaptation_queries` and `adaptation_labels`.
            frozen: the text vectors.
            same_document: whether other texts of a positive's document may be negatives.
        """
        train, validation = (QuerySet.from_tables(tables, frozen, split) for split in ("train", "validation"))
        rows = train.labels.combine_chunks()
        query, text_row = train.label_rows(frozen, rows)
        position = frozen.position_of[text_row]
        n_positions = len(frozen)
        relevance = rows["relevance"]
        is_relevant = pc.fill_null(pc.greater(relevance, 0), False).to_numpy(zero_copy_only=False)
        is_non_relevant = pc.fill_null(pc.equal(relevance, 0), False).to_numpy(zero_copy_only=False)
        learned = np.asarray(rows["learned"].to_numpy(zero_copy_only=False), bool)
        labels = Labels.from_pairs(query[~is_non_relevant], position[~is_non_relevant], n_positions)
        non_relevant = Labels.from_pairs(query[is_non_relevant], position[is_non_relevant], n_positions)
        siblings = None if same_document else _document_texts(frozen, query[is_relevant], text_row[is_relevant])
        values = rows["probability"].to_numpy(zero_copy_only=False).astype(np.float32)
        probabilities = Probabilities.from_pairs(query, position, values, n_positions)
        # In the order of their keys. Copies of a text share a position, and the largest weight.
        weights = rows["weight"].to_numpy(zero_copy_only=False).astype(np.float32)[learned]
        pairs = Probabilities.from_pairs(query[learned], position[learned], weights, n_positions)
        pair_query, pair_position = np.divmod(pairs.pairs.keys, n_positions)
        return cls(
            frozen,
            train,
            validation,
            pair_query,
            pair_position,
            labels,
            non_relevant,
            siblings,
            probabilities,
            pair_weight=pairs.values,
        )


def _document_texts(frozen: FrozenIndex, query: Ints, text_row: Ints) -> Labels:
    """Return all texts of the documents that these positives belong to, as pairs with their queries."""
    texts = frozen.texts
    document_ids = pc.binary_join_element_wise(
        pc.cast(texts["index"], pa.string()), texts["doc_id"], "\x00"
    ).combine_chunks()
    document = document_ids.dictionary_encode().indices.to_numpy().astype(np.int64)
    order = np.argsort(document, kind="stable")
    starts = np.searchsorted(document[order], np.arange(document.max() + 2))
    pairs = np.unique(np.column_stack([query, document[text_row]]), axis=0)
    low, high = starts[pairs[:, 1]], starts[pairs[:, 1] + 1]
    return Labels.from_pairs(
        np.repeat(pairs[:, 0], high - low), frozen.position_of[order[concat_ranges(low, high)]], len(frozen)
    )
