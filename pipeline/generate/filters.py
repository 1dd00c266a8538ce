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
from darklode.schemas.generation_tables import FILTERED_QUERIES, REAL_QUERIES, WRITTEN_QUERIES
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import QUERIES

FILTER_STAGE = Stage(
    "filtered_queries", 4, ("chunks", REAL_QUERIES.name, WRITTEN_QUERIES.name), (FILTERED_QUERIES.name, QUERIES.name)
)

MIN_PERCENTILE, MAX_PERCENTILE = 5, 95
"""Percentiles of the word counts of a tenant's train queries: the minimum and maximum for generated queries."""

MAX_COPIED_SHARE = 0.8
"""Maximum share of a query's words that occur in this order, without a gap, in the text it was generated from."""

SOURCE_TEXTS_SQL = """
    SELECT c.text FROM written_queries w JOIN chunks c USING (tenant, chunk_id) ORDER BY w.tenant, w.query_id
"""

# The two queries below read `keys`, the rows of `_Candidates.keys`, which `_near_mask` registers.
# Generated queries (n < $count) that share a near-duplicate key with a held-out query (n >= $count).
NEAR_HELD_OUT_SQL = (
    "SELECT DISTINCT k.n FROM keys k JOIN keys other USING (key) WHERE k.n < $count AND other.n >= $count"
)

# Generated queries that share a near-duplicate key with an earlier one: of near-duplicates the first one stays. Only
# queries that passed the earlier filters ($open) count.
NEAR_EARLIER_SQL = """
    WITH remaining AS (FROM keys SEMI JOIN (SELECT unnest($remaining) AS n) USING (n))
    SELECT DISTINCT k.n FROM remaining k JOIN remaining other USING (key) WHERE other.n < k.n
"""


def filter_generated(
    tables: Tables, output: Output, settings: CleanSettings, documents: Tables, *, copies: bool
) -> None:
    """Drop queries that users would not write, and near-duplicates of held-out queries; the others become train
    queries.

    Args:
        tables: `chunks`, `real_queries` and `written_queries`.
        output: `filtered_queries` with reasons, and `queries` with the remaining ones.
        settings: accepted languages.
        documents: the run's `documents`; their words help to identify a query's language.
        copies: whether the writer copies parts of its text by design, so that copies are not dropped.
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
    """Write all reasons, the remaining queries, the rejects and the funnel step; a reason of None: not dropped."""
    generated = candidates.generated
    reason_column = pa.array(reasons, pa.string())
    ids = {name: generated[name] for name in ("tenant", "query_id")}
    output.write(FILTERED_QUERIES.name, FILTERED_QUERIES.rows(ids | {"reason": reason_column}))
    is_accepted = pc.is_null(reason_column)
    accepted = candidates.with_language.filter(is_accepted)
    count = accepted.num_rows
    columns = {name: accepted[name] for name in ("tenant", "query_id", "text", "language", "language_score", "n_words")}
    # Each query is its own cluster, since none is held out.
    cluster_ids = pa.array(np.arange(count), pa.int32())
    columns |= {"cluster_id": cluster_ids, "n_represented": pa.repeat(1, count), "split": pa.repeat("train", count)}
    output.write(QUERIES.name, QUERIES.rows(columns))
    dropped = generated.filter(pc.invert(is_accepted))
    payload = pc.coalesce(dropped["text"], dropped["error"])
    output.reject(
        FILTER_STAGE.name,
        QUERIES.name,
        {
            "tenant": dropped["tenant"],
            "id": dropped["query_id"],
            "payload": payload,
            "reason": reason_column.filter(pc.invert(is_accepted)),
        },
    )
    counts = {
        reason_count["values"]: reason_count["counts"]
        for reason_count in pc.value_counts(reason_column.drop_null()).to_pylist()
    }
    output.count(
        FunnelStep(
            FILTER_STAGE.name, "written queries", len(reason_column), "queries", count, dict(sorted(counts.items()))
        )
    )


@dataclass(frozen=True)
class _Candidates:
    """Generated queries with a mask per filter; a mask is true for the queries that the filter drops.

    Attributes:
        tables: `chunks`, `real_queries` and `written_queries`.
        generated: rows of `written_queries`, ordered by tenant and id.
        settings: accepted languages.
        documents: the run's `documents`, for language identification.
    """

    tables: Tables
    generated: pa.Table
    settings: CleanSettings
    documents: Tables

    @cached_property
    def texts(self) -> pa.Array:
        """Texts of the queries, empty if the writer returned none."""
        return pc.fill_null(self.generated["text"], "").combine_chunks()

    @property
    def is_unreadable(self) -> Mask:
        """Queries without a word."""
        return np.asarray(self.words == 0)

    @cached_property
    def words(self) -> NDArray[np.int32]:
        """Number of words of each query."""
        return np.asarray(count_words(pa.chunked_array([self.texts])))

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Minimum and maximum words of each query; unbounded if its tenant has no train query."""
        training_queries = self.tables.sql(
            "SELECT tenant, text FROM real_queries WHERE split = 'train' ORDER BY tenant, query_id"
        )
        training_words = np.asarray(count_words(training_queries["text"]))
        training_tenants = np.asarray(training_queries["tenant"])
        minimum = np.zeros(len(self.words))
        maximum = np.full(len(self.words), np.inf)
        generated_tenants = np.asarray(self.generated["tenant"])
        for tenant in np.unique(training_tenants):
            is_tenant = generated_tenants == tenant
            tenant_words = training_words[training_tenants == tenant]
            minimum[is_tenant] = np.percentile(tenant_words, MIN_PERCENTILE, method="lower")
            maximum[is_tenant] = np.percentile(tenant_words, MAX_PERCENTILE, method="higher")
        return minimum, maximum

    @cached_property
    def _language(self) -> tuple[pa.Table, Mask]:
        """The queries with their languages, and a mask of those in a language that is not accepted."""
        rows = self.generated.select(["tenant", "query_id"]).append_column("text", pa.chunked_array([self.texts]))
        filter_result = drop_other_languages(rows, self.settings, self.documents)
        return filter_result.queries, np.asarray(filter_result.is_dropped)

    @property
    def with_language(self) -> pa.Table:
        """All queries with language, language score and word count."""
        return self._language[0].append_column("n_words", pa.array(self.words))

    @property
    def is_other_language(self) -> Mask:
        """Queries in a language that is not accepted."""
        return self._language[1]

    @property
    def is_copied(self) -> Mask:
        """Queries of which more than MAX_COPIED_SHARE is copied from their text."""
        texts = self.tables.sql(SOURCE_TEXTS_SQL)["text"].to_pylist()
        return np.array(
            [
                copied_share(query, source_text) > MAX_COPIED_SHARE
                for query, source_text in zip(self.texts.to_pylist(), texts, strict=True)
            ]
        )

    @property
    def has_personal_data(self) -> Mask:
        """Queries that masking would change."""
        texts = pa.chunked_array([self.texts])
        return np.asarray(pc.not_equal(mask(texts), texts))

    @cached_property
    def keys(self) -> pa.Table:
        """Near-duplicate keys of the generated and the held-out queries, as rows (n, key).

        Queries with a common key are near-duplicates. n is the row number: generated queries first, then the others.
        """
        generated_queries = self.generated.select(["tenant"]).append_column("text", pa.chunked_array([self.texts]))
        held_out_queries = self.tables.sql(
            "SELECT tenant, text FROM real_queries WHERE split <> 'train' ORDER BY tenant, query_id"
        )
        both = pa.concat_tables([generated_queries.cast(held_out_queries.schema), held_out_queries])
        with self.tables.connect() as connection:
            connection.register("numbered_queries", both.append_column("n", pa.array(np.arange(both.num_rows))))
            return connection.sql(f"FROM {near_keys(connection, Relation('numbered_queries'))}").to_arrow_table()

    @property
    def is_near_held_out(self) -> Mask:
        """Near-duplicates of validation or test queries."""
        return self._near_mask(NEAR_HELD_OUT_SQL, count=len(self.words))

    def is_near_another(self, is_remaining: Mask) -> Mask:
        """Near-duplicates of an earlier one of the remaining queries."""
        return self._near_mask(NEAR_EARLIER_SQL, remaining=np.flatnonzero(is_remaining).tolist())

    def _near_mask(self, query: str, **parameters: object) -> Mask:
        """Mask of the generated queries whose numbers a query over `keys` returns."""
        with self.tables.connect() as connection:
            connection.register("keys", self.keys)
            near_rows = connection.sql(query, params=parameters).to_arrow_table()
        return np.isin(np.arange(len(self.words)), near_rows["n"].to_numpy())

    @property
    def has_dangling_reference(self) -> Mask:
        """Queries that the writer's check calls not self-contained, such as `how do I install it`."""
        return np.asarray(pc.equal(pc.fill_null(self.generated["self_contained"], True), False))


def copied_share(query: str, text: str) -> float:
    """Length of the longest contiguous run of a query's words in the text, as a share of the query's words."""
    query_words = query.lower().split()
    text_words = text.lower().split()
    if not query_words:
        return 0.0
    # runs[i + 1]: length of the longest run that ends at the current query word and at text word i.
    longest_run = 0
    runs = [0] * (len(text_words) + 1)
    for query_word in query_words:
        previous_runs = zip(runs[:-1], text_words, strict=True)
        runs = [0, *(run + 1 if query_word == text_word else 0 for run, text_word in previous_runs)]
        longest_run = max(longest_run, *runs)
    return longest_run / len(query_words)
