"""Filters of generated queries; each query is dropped by the first filter that it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.personal_data import mask
from darklode.pipeline.base.relations import Relation
from darklode.pipeline.base.segmentation import count_words
from darklode.pipeline.base.types import Mask
from darklode.pipeline.prepare.language import drop_other_languages
from darklode.schemas.generation_tables import REAL_QUERIES, SIEVED_QUERIES, WRITTEN_QUERIES
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import QUERIES

FILTER_GENERATED = Stage(
    "sieved_queries", 4, ("chunks", REAL_QUERIES.name, WRITTEN_QUERIES.name), (SIEVED_QUERIES.name, QUERIES.name)
)

SHORTEST, LONGEST = 5, 95
"""Percentiles of the word counts of the tenant's train queries; queries outside are dropped."""

MAX_COPIED_SHARE = 0.8
"""Maximum share of a query's words that are one contiguous run in its text."""


OWN_TEXTS = """
    SELECT c.text FROM written_queries w JOIN chunks c USING (tenant, chunk_id) ORDER BY w.tenant, w.query_id
"""

NEAR_HELD_OUT = "SELECT DISTINCT k.n FROM keys k JOIN keys other USING (key) WHERE k.n < $count AND other.n >= $count"

# Of near-duplicate generated queries the first one stays; queries dropped by earlier filters do not count.
NEAR_OTHERS = """
    WITH open AS (FROM keys SEMI JOIN (SELECT unnest($open) AS n) USING (n))
    SELECT DISTINCT k.n FROM open k JOIN open other USING (key) WHERE other.n < k.n
"""


def filter_generated(
    tables: Tables, output: Output, settings: CleanSettings, documents: Tables, *, copies: bool
) -> None:
    """Drop queries that users would not write, and near-duplicates of held-out queries; the others become train
    queries.

    Args:
        tables: `chunks`, `real_queries` and `written_queries`.
        output: `sieved_queries` with reasons, and `queries` with the remaining ones.
        settings: accepted languages.
        documents: the run's `documents`; their words help to identify a query's language.
        copies: the writer copies its text by design, so copies are not dropped.
    """
    generated = tables.read(WRITTEN_QUERIES.name).sort_by([("tenant", "ascending"), ("query_id", "ascending")])
    candidates = _Candidates(tables, generated, settings, documents)
    filters: list[tuple[str, Callable[[Mask], Mask]]] = [
        ("unreadable", lambda _: candidates.is_unreadable),
        ("shorter than real queries", lambda _: candidates.words < candidates.bounds[0]),
        ("longer than real queries", lambda _: candidates.words > candidates.bounds[1]),
        ("another language", lambda _: candidates.is_other_language),
        ("personal data", lambda _: candidates.has_personal_data),
        ("near-duplicate of a held-out query", lambda _: candidates.is_near_held_out),
        ("near-duplicate of another generated query", candidates.is_near_another),
        ("not self-contained", lambda _: candidates.has_dangling_reference),
    ]
    if not copies:
        filters.insert(4, ("copied from its text", lambda _: candidates.is_copied))
    reasons = np.full(generated.num_rows, None, object)
    for reason, apply_filter in filters:
        is_remaining = np.asarray(reasons == None, bool)  # noqa: E711 (elementwise)
        reasons[apply_filter(is_remaining) & is_remaining] = reason
    _write(output, candidates, reasons)


def _write(output: Output, candidates: _Candidates, reasons: NDArray[np.object_]) -> None:
    generated, reason_column = candidates.generated, pa.array(reasons, pa.string())
    ids = {name: generated[name] for name in ("tenant", "query_id")}
    output.write(SIEVED_QUERIES.name, SIEVED_QUERIES.rows(ids | {"reason": reason_column}))
    stays = pc.is_null(reason_column)
    retained = candidates.with_language.filter(stays)
    count = retained.num_rows
    columns = {name: retained[name] for name in ("tenant", "query_id", "text", "language", "language_score", "n_words")}
    # Each query is its own cluster, since none is held out.
    numbers = pa.array(np.arange(count), pa.int32())
    columns |= {"cluster_id": numbers, "n_represented": pa.repeat(1, count), "split": pa.repeat("train", count)}
    output.write(QUERIES.name, QUERIES.rows(columns))
    gone = generated.filter(pc.invert(stays))
    payload = pc.coalesce(gone["text"], gone["error"])
    output.reject(
        FILTER_GENERATED.name,
        QUERIES.name,
        {
            "tenant": gone["tenant"],
            "id": gone["query_id"],
            "payload": payload,
            "reason": reason_column.filter(pc.invert(stays)),
        },
    )
    counts = {
        reason_count["values"]: reason_count["counts"]
        for reason_count in pc.value_counts(reason_column.drop_null()).to_pylist()
    }
    output.count(
        FunnelStep(
            FILTER_GENERATED.name, "written queries", len(reason_column), "queries", count, dict(sorted(counts.items()))
        )
    )


@dataclass(frozen=True)
class _Candidates:
    """Generated queries, by tenant and id, with a mask per filter."""

    tables: Tables
    generated: pa.Table
    settings: CleanSettings
    documents: Tables

    @cached_property
    def texts(self) -> pa.Array:
        return pc.fill_null(self.generated["text"], "").combine_chunks()

    @property
    def is_unreadable(self) -> Mask:
        return np.asarray(self.words == 0)

    @cached_property
    def words(self) -> NDArray[np.int32]:
        return np.asarray(count_words(pa.chunked_array([self.texts])))

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Minimum and maximum words of each query; unbounded if its tenant has no train query."""
        training_queries = self.tables.sql(
            "SELECT tenant, text FROM real_queries WHERE split = 'train' ORDER BY tenant, query_id"
        )
        words, owners = np.asarray(count_words(training_queries["text"])), np.asarray(training_queries["tenant"])
        low, high = np.zeros(len(self.words)), np.full(len(self.words), np.inf)
        tenant_column = np.asarray(self.generated["tenant"])
        for tenant in np.unique(owners):
            own, tenant_words = tenant_column == tenant, words[owners == tenant]
            low[own] = np.percentile(tenant_words, SHORTEST, method="lower")
            high[own] = np.percentile(tenant_words, LONGEST, method="higher")
        return low, high

    @cached_property
    def _language(self) -> tuple[pa.Table, Mask]:
        rows = self.generated.select(["tenant", "query_id"]).append_column("text", pa.chunked_array([self.texts]))
        filter_result = drop_other_languages(rows, self.settings, self.documents)
        return filter_result.queries, np.asarray(filter_result.is_dropped)

    @property
    def with_language(self) -> pa.Table:
        """All queries with language, language score and word count."""
        return self._language[0].append_column("n_words", pa.array(self.words))

    @property
    def is_other_language(self) -> Mask:
        return self._language[1]

    @property
    def is_copied(self) -> Mask:
        texts = self.tables.sql(OWN_TEXTS)["text"].to_pylist()
        return np.array(
            [
                copied_share(query, source_text) > MAX_COPIED_SHARE
                for query, source_text in zip(self.texts.to_pylist(), texts, strict=True)
            ]
        )

    @property
    def has_personal_data(self) -> Mask:
        texts = pa.chunked_array([self.texts])
        return np.asarray(pc.not_equal(mask(texts), texts))

    @cached_property
    def keys(self) -> pa.Table:
        """Near-duplicate keys (n, key) of these queries and, with n from their number on, of the held-out ones."""
        ours = self.generated.select(["tenant"]).append_column("text", pa.chunked_array([self.texts]))
        held_out_queries = self.tables.sql(
            "SELECT tenant, text FROM real_queries WHERE split <> 'train' ORDER BY tenant, query_id"
        )
        both = pa.concat_tables([ours.cast(held_out_queries.schema), held_out_queries])
        with self.tables.connect() as connection:
            connection.register("numbered", both.append_column("n", pa.array(np.arange(both.num_rows))))
            return connection.sql(f"FROM {near_keys(connection, Relation('numbered'))}").to_arrow_table()

    @property
    def is_near_held_out(self) -> Mask:
        """Near-duplicates of validation or test queries."""
        return self._near_mask(NEAR_HELD_OUT, count=len(self.words))

    def is_near_another(self, is_remaining: Mask) -> Mask:
        """Near-duplicates of an earlier one of the remaining queries."""
        return self._near_mask(NEAR_OTHERS, open=np.flatnonzero(is_remaining).tolist())

    def _near_mask(self, query: str, **parameters: object) -> Mask:
        with self.tables.connect() as connection:
            connection.register("keys", self.keys)
            near_rows = connection.sql(query, params=parameters).to_arrow_table()
        return np.isin(np.arange(len(self.words)), near_rows["n"].to_numpy())

    @property
    def has_dangling_reference(self) -> Mask:
        return np.asarray(pc.equal(pc.fill_null(self.generated["self_contained"], True), False))


def copied_share(query: str, text: str) -> float:
    """Length of the longest contiguous run of a query's words in the text, as a share of the query's words."""
    query_words, text_words = query.lower().split(), text.lower().split()
    if not query_words:
        return 0.0
    longest, runs = 0, [0] * (len(text_words) + 1)
    for word in query_words:
        runs = [0, *(before + 1 if word == other else 0 for before, other in zip(runs[:-1], text_words, strict=True))]
        longest = max(longest, *runs)
    return longest / len(query_words)
