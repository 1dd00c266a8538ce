"""Queries for measuring recall, and their exact nearest neighbors by full vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.index.faiss_io import is_member, one_thread
from darklode.pipeline.index.source import StoredVectors, VectorSource, truncate_and_normalize
from darklode.pipeline.index.texts import previous_tables
from darklode.pipeline.retrieve.encoders.caching import CachedQueries
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.train.release.adapter import Adapter
from darklode.schemas.serving_tables import INDEX_PROBES, INDEX_QUERIES, INDEXED_TEXTS

PROBES_STAGE = Stage("index_probes", 2, (INDEXED_TEXTS.name,), (INDEX_QUERIES.name, INDEX_PROBES.name))

DEPTH = 200
"""Depth of the exact lists: twice the depth of recall, so that they survive many removals."""

RECALL_DEPTH = 100
NEXT_NUMBER_FACT = "next number"
"""Fact of the stage: texts from this number on are not yet considered in the lists."""

TEXT_COLUMNS = ["tenant", "content_hash", "number"]
BASE_PART, ADAPTED_PART = "base", "adapted"


@dataclass(frozen=True)
class QueryVectors:
    """Queries and their encoders.

    Attributes:
        source: the indexed texts and the user queries.
        adapter: an additional query encoder; None: none.
    """

    source: VectorSource
    adapter: Adapter | None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a query's vector."""
        return {"adapter": self.adapter.facts["weights"] if self.adapter else None}

    def vectors(self, texts: list[str]) -> dict[str, Floats]:
        """Unit vectors of queries by part (base, adapted), in the encoder's full dimensions."""
        vectors_by_part = {BASE_PART: truncate_and_normalize(base_vectors(self.source.stored_vectors, texts), None)}
        if self.adapter:
            vectors_by_part[ADAPTED_PART] = truncate_and_normalize(self.adapter.encode(texts), None)
        return vectors_by_part


def base_vectors(stored_vectors: StoredVectors, texts: list[str]) -> Floats:
    """Query vectors by the encoder of the index, shape (len(texts), dimensions); zero for blank queries."""
    encoder = Deferred(stored_vectors.encoder, stored_vectors.cache.root)
    return CachedQueries(encoder, stored_vectors.memory())(texts)


def exact_neighbors(tables: Tables, output: Output, queries_source: QueryVectors, *, queries: int) -> None:
    """Choose evenly spaced queries and find their exact nearest neighbors among the texts of their tenant.

    Every tenant gets the same number of queries, if it has them. A file of vectors has no queries: vectors of its texts
    are used instead.

    Args:
        tables: `indexed_texts`.
        output: receives `index_queries` and `index_probes`.
        queries_source: queries and their encoders.
        queries: maximum number of queries.
    """
    texts = tables.read(INDEXED_TEXTS.name, TEXT_COLUMNS)
    stored_vectors = _without_truncation(queries_source.source.stored_vectors)
    chosen = _choose_queries(queries_source.source.queries(), queries)
    tenants, query_texts = [tenant for tenant, _ in chosen], [text for _, text in chosen]
    if chosen:
        parts = queries_source.vectors(query_texts)
    else:
        sampled_texts = texts.take(pa.array(_evenly_spaced(texts.num_rows, queries)))
        tenants = sampled_texts["tenant"].to_pylist()
        parts = {BASE_PART: stored_vectors.take(sampled_texts["content_hash"])}
    for part, vectors in parts.items():
        output.write(INDEX_QUERIES.name, _query_rows(part, tenants, query_texts, vectors))
        neighbors = best_neighbors(stored_vectors, texts, QueriesOfTenants(vectors, tenants))
        output.write(INDEX_PROBES.name, probe_rows(part, *neighbors))
    output.facts[NEXT_NUMBER_FACT] = _next_number(texts)
    rows = sum(len(vectors) for vectors in parts.values())
    output.count(FunnelStep("index_probes", "queries", len(query_texts) or rows, "vectors of queries", rows))


def update_neighbors(tables: Tables, output: Output, source: VectorSource, *, trained: str) -> None:
    """Update the exact lists: remove deleted texts, score added ones.

    A list is valid down to the score of its last text before the update, because texts outside the list score no more
    than that. If fewer than 100 valid texts are left (and the index has more), all texts are searched again.

    Args:
        tables: `indexed_texts`.
        output: receives `index_queries` and `index_probes`; has the previous ones.
        source: the vectors.
        trained: id of the codebook in use.

    Raises:
        ArtifactError: the previous tables are missing, or no tenant of the queries has texts any more.
    """
    earlier = previous_tables(output, trained, INDEX_PROBES.name, INDEX_QUERIES.name)
    texts = tables.read(INDEXED_TEXTS.name, TEXT_COLUMNS)
    query_rows, previous_lists = _of_current_tenants(
        earlier.read(INDEX_QUERIES.name), earlier.read(INDEX_PROBES.name), texts
    )
    added = texts.filter(pc.greater_equal(texts["number"], int(output.earlier_facts[NEXT_NUMBER_FACT])))
    output.write(INDEX_QUERIES.name, query_rows)
    for part in parts_of(query_rows):
        queries = QueriesOfTenants(vectors_of(query_rows, part), tenants_of(query_rows, part))
        stored_vectors = _without_truncation(source.stored_vectors)
        start = _still_valid(lists_of(previous_lists, part, len(queries.vectors)), texts["number"].to_numpy())
        numbers, scores = best_neighbors(stored_vectors, added, queries, start)
        scores[scores < start.floor[:, None]] = -np.inf
        if ((scores > -np.inf).sum(axis=1) < np.minimum(RECALL_DEPTH, queries.count_texts(texts))).any():
            numbers, scores = best_neighbors(stored_vectors, texts, queries)
        output.write(INDEX_PROBES.name, probe_rows(part, numbers, scores))
    output.facts[NEXT_NUMBER_FACT] = max(int(output.earlier_facts[NEXT_NUMBER_FACT]), _next_number(texts))
    output.count(FunnelStep("index_probes", "queries", query_rows.num_rows, "queries", query_rows.num_rows))


def _of_current_tenants(query_rows: pa.Table, lists: pa.Table, texts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Queries, numbered from 0 in each part, and their lists, without those of tenants that have left the index.

    Raises:
        ArtifactError: no query is left.
    """
    is_current = pc.is_in(query_rows["tenant"], value_set=pc.unique(texts["tenant"]))
    current = query_rows.filter(is_current)
    if current.num_rows == query_rows.num_rows:
        return query_rows, lists
    if not current.num_rows:
        raise ArtifactError("none of the index's tenants has texts any more: build it again")
    base_rows = current.filter(pc.equal(current["part"], BASE_PART))  # all parts have the same queries
    kept = np.sort(base_rows["query"].to_numpy())
    own_lists = lists.filter(pc.is_in(lists["query"], value_set=pa.array(kept)))
    current, own_lists = (_with_query(rows, np.searchsorted(kept, rows["query"])) for rows in (current, own_lists))
    return current, own_lists


def _with_query(rows: pa.Table, numbers: Ints) -> pa.Table:
    """Rows with other query numbers."""
    column = rows.schema.get_field_index("query")
    return rows.set_column(column, rows.schema.field(column), pa.array(numbers).cast(rows.schema.field(column).type))


@dataclass(frozen=True)
class TopLists:
    """Exact result lists.

    Attributes:
        numbers: shape (n_queries, DEPTH).
        scores: same shape; minus infinity if there is no text.
        floor: upper bound of the scores of texts that are not listed, shape (n_queries,).
    """

    numbers: Ints
    scores: Floats
    floor: Floats


def _still_valid(before: TopLists, numbers: Ints) -> TopLists:
    """The lists without removed texts."""
    is_indexed = (before.numbers >= 0) & is_member(np.maximum(before.numbers, 0), numbers)
    return TopLists(before.numbers, np.where(is_indexed, before.scores, -np.inf).astype(np.float32), before.floor)


@dataclass(frozen=True)
class QueriesOfTenants:
    """Queries, each of which searches the texts of its tenant.

    Attributes:
        vectors: unit vectors, shape (n_queries, dimensions).
        tenants: tenant of each query.
    """

    vectors: Floats
    tenants: Sequence[str]

    def mask_others(self, scores: Floats, text_tenants: pa.ChunkedArray) -> None:
        """Set the scores of other tenants' texts to minus infinity, in place; shape (n_queries, n_texts)."""
        names = pc.unique(text_tenants)
        if len(names) == 1 and {*self.tenants} == {*names.to_pylist()}:
            return
        text_codes = pc.index_in(text_tenants, value_set=names).to_numpy()
        query_codes = pc.index_in(pa.array(self.tenants, pa.string()), value_set=names).fill_null(-1).to_numpy()
        scores[query_codes[:, None] != text_codes[None, :]] = -np.inf

    def count_texts(self, texts: pa.Table) -> Ints:
        """Number of texts that each query searches, shape (n_queries,)."""
        counts = {row["values"]: row["counts"] for row in pc.value_counts(texts["tenant"]).to_pylist()}
        return np.array([counts.get(tenant, 0) for tenant in self.tenants], np.int64)


def best_neighbors(
    stored_vectors: StoredVectors, texts: pa.Table, queries: QueriesOfTenants, start: TopLists | None = None
) -> tuple[Ints, Floats]:
    """Numbers and scores of each query's best texts, best first, shape (n_queries, DEPTH); ties by lower number.

    Args:
        stored_vectors: the vectors.
        texts: tenant, content_hash and number.
        queries: the queries.
        start: lists to merge with; None: empty.
    """
    shape = len(queries.vectors), DEPTH
    numbers = start.numbers if start else np.full(shape, -1, np.int64)
    scores = start.scores if start else np.full(shape, -np.inf, np.float32)
    text_numbers = texts["number"].to_numpy()
    with one_thread():
        for first, block in stored_vectors.blocks(texts["content_hash"]):
            block_scores = queries.vectors @ block.T
            queries.mask_others(block_scores, texts["tenant"].slice(first, len(block)))
            columns = _top(block_scores)
            ids = text_numbers[first : first + len(block)][columns]
            numbers = np.concatenate([numbers, ids], axis=1)
            scores = np.concatenate([scores, np.take_along_axis(block_scores, columns, 1)], axis=1)
            order = np.lexsort((numbers, -scores), axis=1)[:, :DEPTH]
            numbers = np.take_along_axis(numbers, order, 1)
            scores = np.take_along_axis(scores, order, 1)
    return numbers, scores


def _top(scores: Floats) -> Ints:
    """Columns of the `DEPTH` best scores of each row, unordered; all columns if there are fewer."""
    if scores.shape[1] <= DEPTH:
        return np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.argpartition(-scores, DEPTH - 1, axis=1)[:, :DEPTH]


def _without_truncation(stored_vectors: StoredVectors) -> StoredVectors:
    """The vectors in full dimensions: recall is measured against them."""
    return stored_vectors if stored_vectors.dimensions is None else replace(stored_vectors, dimensions=None)


def _next_number(texts: pa.Table) -> int:
    return int(pc.max(texts["number"]).as_py()) + 1


def _choose_queries(queries: Mapping[str, Sequence[str]], max_count: int) -> list[tuple[str, str]]:
    """Tenants and texts of at most `max_count` queries, but two per tenant, evenly spaced in each tenant's.

    Pairs of the tenants take turns, so that even and odd queries, and the first few, come from all tenants.
    """
    per_tenant = max(2, max_count // max(1, len(queries)))
    pairs_by_tenant = []
    for tenant, texts in queries.items():
        own = [(tenant, texts[row]) for row in _evenly_spaced(len(texts), per_tenant)]
        pairs_by_tenant.append([own[start : start + 2] for start in range(0, len(own), 2)])
    return [query for turn in zip_longest(*pairs_by_tenant, fillvalue=[]) for pair in turn for query in pair]


def _evenly_spaced(n: int, max_count: int) -> list[int]:
    """At most `max_count` evenly spaced positions among n."""
    return [int(position) for position in np.unique(np.linspace(0, n - 1, min(n, max_count)).astype(np.int64))]


def parts_of(query_rows: pa.Table) -> list[str]:
    """Names of the parts: base, and adapted if there is an adapter."""
    return sorted(pc.unique(query_rows["part"]).to_pylist(), reverse=True)


def vectors_of(query_rows: pa.Table, part: str) -> Floats:
    """Query vectors of a part, in order."""
    part_vectors = query_rows.filter(pc.equal(query_rows["part"], part)).sort_by("query")["vector"].combine_chunks()
    return np.asarray(part_vectors.flatten(), np.float32).reshape(len(part_vectors), -1)


def lists_of(rows: pa.Table, part: str, queries: int) -> TopLists:
    """Exact lists of a part, from rows of `index_probes`."""
    part_rows = rows.filter(pc.equal(rows["part"], part))
    query = part_rows["query"].to_numpy()
    rank = part_rows["rank"].to_numpy() - 1
    numbers = np.full((queries, DEPTH), -1, np.int64)
    scores = np.full((queries, DEPTH), -np.inf, np.float32)
    numbers[query, rank] = part_rows["number"].to_numpy()
    scores[query, rank] = part_rows["score"].to_numpy()
    return TopLists(numbers, scores, scores.min(axis=1))


def tenants_of(query_rows: pa.Table, part: str) -> list[str]:
    """Tenants of a part's queries, in order."""
    names: list[str] = query_rows.filter(pc.equal(query_rows["part"], part)).sort_by("query")["tenant"].to_pylist()
    return names


def _query_rows(part: str, tenants: list[str], query_texts: list[str], vectors: Floats) -> pa.Table:
    """Rows of `index_queries`; `query_texts` are the query texts, empty if texts of the index are used as queries."""
    n = len(vectors)
    offsets = np.arange(n + 1, dtype=np.int32) * vectors.shape[1]
    columns = {"part": pa.repeat(part, n), "query": pa.array(np.arange(n)), "tenant": pa.array(tenants, pa.string())}
    columns["vector"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(vectors.ravel()))
    return INDEX_QUERIES.rows(columns | ({"text": pa.array(query_texts)} if query_texts else {}))


def probe_rows(part: str, numbers: Ints, scores: Floats) -> pa.Table:
    """Rows of `index_probes`."""
    query, column = np.nonzero(scores > -np.inf)
    rank = np.cumsum(scores > -np.inf, axis=1)[query, column]
    columns = {"part": pa.repeat(part, len(query)), "query": pa.array(query), "rank": pa.array(rank)}
    return INDEX_PROBES.rows(
        columns | {"number": pa.array(numbers[query, column]), "score": pa.array(scores[query, column])}
    )
