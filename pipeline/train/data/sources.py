"""Runs as training data: queries, labels and texts of a build or of a mined run in one format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.artifacts.combined_tables import CombinedTables
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Ints
from darklode.pipeline.evaluate.test_queries import DOCUMENTS_AS_CHUNKS_SQL

ROWS_PER_READ = 1 << 16
"""Texts read from a run at once."""

BUILD_TABLES = ("queries", "qrels", "training_labels", "triplets", "chunks")
LOG_TABLES = ("triplets", "mined_test", "query_clusters", "documents")

# Pairs of the train split's triplets, of the triplet sources `$sources` (all if it is empty).
TRAINING_PAIRS_SQL = """
    SELECT DISTINCT query_id, positive_id AS text_id FROM triplets
    WHERE tenant = $tenant AND split = 'train'
      AND (len($sources) = 0 OR list_contains(CAST($sources AS VARCHAR[]), source))
"""

BUILD_QUERIES_SQL = """
    SELECT query_id, text, CAST(cluster_id AS VARCHAR) AS "group", split, CAST(NULL AS VARCHAR) AS kind
    FROM queries WHERE tenant = $tenant ORDER BY query_id
"""

# Test queries have the labels of `qrels`, others those of `training_labels`. The best positive of a query that has only
# uncertain ones may be in its triplets.
BUILD_LABELS_SQL = f"""
    WITH training_pairs AS ({TRAINING_PAIRS_SQL}), labels AS (
        SELECT query_id, chunk_id AS text_id, relevance, weight FROM training_labels WHERE tenant = $tenant
        UNION ALL SELECT query_id, chunk_id, relevance, weight
        FROM qrels q JOIN queries USING (tenant, query_id) WHERE tenant = $tenant AND split = 'test'
    )
    SELECT query_id, text_id, CASE WHEN l.query_id IS NULL THEN relevance ELSE coalesce(relevance, 1) END AS relevance,
           l.query_id IS NOT NULL AND coalesce(relevance, 1) > 0 AS learned,
           CAST(weight AS FLOAT) AS probability
    FROM labels LEFT JOIN training_pairs l USING (query_id, text_id) ORDER BY query_id, text_id
"""

# Judgments that were brought to a build. A query that they hold out stays so. Where they hold out queries, other
# held-out queries of the run in that split are trained on if judged as training queries, and left out if not.
JUDGED_SPLITS_SQL = """
    WITH judged_splits AS (
        SELECT query_id, any_value(split) AS judged_split FROM judgments
        WHERE tenant = $tenant AND split IS NOT NULL GROUP BY query_id
    ), splits AS (
        SELECT query_id, text, cluster_id,
               CASE WHEN judged_split <> 'train' THEN judged_split
                    WHEN split = 'train' OR split NOT IN (SELECT judged_split FROM judged_splits) THEN split
                    ELSE judged_split END AS split
        FROM queries LEFT JOIN judged_splits USING (query_id) WHERE tenant = $tenant
    )
"""

JUDGED_QUERIES_SQL = f"""
    {JUDGED_SPLITS_SQL}
    SELECT query_id, text, CAST(cluster_id AS VARCHAR) AS "group", split, CAST(NULL AS VARCHAR) AS kind
    FROM splits WHERE split IS NOT NULL ORDER BY query_id
"""

# A judgment replaces the run's label of the pair; an unknown chunk of a relevant document keeps it.
JUDGED_LABELS_SQL = f"""
    {JUDGED_SPLITS_SQL}, training_pairs AS (
        FROM ({TRAINING_PAIRS_SQL}) SEMI JOIN (FROM splits WHERE split = 'train') USING (query_id)
    ), run_labels AS (
        SELECT query_id, chunk_id AS text_id, relevance, weight
        FROM (FROM training_labels WHERE tenant = $tenant) JOIN splits USING (query_id)
        WHERE split <> 'test'
        UNION ALL SELECT query_id, chunk_id, relevance, weight
        FROM (FROM qrels WHERE tenant = $tenant) JOIN splits USING (query_id) WHERE split = 'test'
    ), judged AS (SELECT query_id, chunk_id AS text_id, relevance FROM judged_chunks WHERE tenant = $tenant),
    labels AS (
        SELECT query_id, text_id, relevance, CAST(least(relevance, 1) AS DOUBLE) AS weight, true AS is_judged
        FROM judged WHERE relevance IS NOT NULL
        UNION ALL SELECT *, false FROM run_labels
        ANTI JOIN (FROM judged WHERE relevance IS NOT NULL) USING (query_id, text_id)
        UNION ALL SELECT query_id, text_id, NULL, NULL, true FROM judged ANTI JOIN run_labels USING (query_id, text_id)
        WHERE relevance IS NULL
    )
    SELECT query_id, text_id,
           CASE WHEN is_judged OR l.query_id IS NULL THEN relevance ELSE coalesce(relevance, 1) END AS relevance,
           CASE WHEN is_judged THEN coalesce(relevance > 0, false)
                ELSE l.query_id IS NOT NULL AND coalesce(relevance, 1) > 0 END AS learned,
           CAST(weight AS FLOAT) AS probability
    FROM labels LEFT JOIN training_pairs l USING (query_id, text_id) ORDER BY query_id, text_id
"""

# A query with triplets of one split and rows of the test period, or of two splits, is left out.
LOG_QUERIES_SQL = """
    WITH split_queries AS (
        SELECT query_id, query AS text, split, CAST(NULL AS VARCHAR) AS kind FROM triplets WHERE tenant = $tenant
        UNION ALL SELECT query_id, query, 'test', kind FROM mined_test WHERE tenant = $tenant
    )
    SELECT query_id, min(text) AS text, coalesce(any_value(c.cluster_id), query_id) AS "group", max(split) AS split,
           min(kind) AS kind
    FROM split_queries
    LEFT JOIN (SELECT query_id, cluster_id FROM query_clusters WHERE tenant = $tenant) c USING (query_id)
    GROUP BY query_id HAVING count(DISTINCT split) = 1 ORDER BY query_id
"""

# A document that one source labels as an answer to a query is not a negative of it, whatever another source says.
LOG_LABELS_SQL = f"""
    WITH training_pairs AS ({TRAINING_PAIRS_SQL}), source_labels AS (
        SELECT query_id, positive_id AS text_id, 1 AS relevance FROM triplets WHERE tenant = $tenant
        UNION ALL SELECT query_id, doc_id, 1 FROM mined_test WHERE tenant = $tenant
        UNION ALL SELECT query_id, unnest(negative_ids), 0 FROM triplets WHERE tenant = $tenant
    ), labels AS (SELECT query_id, text_id, max(relevance) AS relevance FROM source_labels GROUP BY query_id, text_id)
    SELECT query_id, text_id, CAST(relevance AS INTEGER) AS relevance, l.text_id IS NOT NULL AS learned,
           CAST(NULL AS FLOAT) AS probability
    FROM labels LEFT JOIN training_pairs l USING (query_id, text_id) ORDER BY query_id, text_id
"""


@dataclass(frozen=True)
class TrainingSource:
    """A run to train on.

    Attributes:
        run: a build, or a run mined from a log.
        number: place in the list of runs, from 0; ids of all runs but the first are prefixed with it.
        mined: whether the run was mined from a log; otherwise it is a build.
        text_characters: characters that a mined run's documents are cut to, as in its triplets.
        judgments: tables `judgments` and `judged_chunks`, brought to a build after it was finished, if any: their
            splits and labels replace the build's.
    """

    run: Run
    number: int
    mined: bool
    text_characters: int
    judgments: Tables | None = None

    @property
    def tables(self) -> Tables:
        """The tables that training reads.

        Raises:
            ArtifactError: the run is not finished.
        """
        tables = self.run.tables(*(LOG_TABLES if self.mined else BUILD_TABLES))
        return tables if self.judgments is None else CombinedTables(tables, self.judgments)

    def content(self) -> str:
        """Fingerprint of everything that training reads."""
        tables, judged = self.tables, () if self.judgments is None else ("judgments", "judged_chunks")
        return " ".join(tables.content(name) for name in (*(LOG_TABLES if self.mined else BUILD_TABLES), *judged))

    def tenants(self) -> list[str]:
        """Return the tenants with triplets, sorted."""
        tenant_rows = self.tables.sql("SELECT DISTINCT tenant FROM triplets ORDER BY tenant")
        return list(tenant_rows["tenant"].to_pylist())

    def text_tenants(self) -> list[str]:
        """Return the tenants with texts, sorted; some may have no triplets."""
        table = "documents" if self.mined else "chunks"
        tenant_rows = self.tables.sql(f"SELECT DISTINCT tenant FROM {table} ORDER BY tenant")
        return list(tenant_rows["tenant"].to_pylist())

    def queries(self, tenant: str) -> pa.Table:
        """Load a tenant's queries; columns query_id, text, group (cluster id), split and kind."""
        build_sql = BUILD_QUERIES_SQL if self.judgments is None else JUDGED_QUERIES_SQL
        rows = self._rows(LOG_QUERIES_SQL if self.mined else build_sql, tenant=tenant)
        return self.with_prefix(self.with_prefix(rows, "query_id"), "group")

    def labels(self, tenant: str, sources: tuple[str, ...] = ()) -> pa.Table:
        """Load a tenant's labels; columns query_id, text_id, relevance, learned and probability.

        `learned` marks the pairs that may be trained on.

        Args:
            tenant: tenant whose labels are loaded.
            sources: triplet sources to train on; empty: all.
        """
        build_sql = BUILD_LABELS_SQL if self.judgments is None else JUDGED_LABELS_SQL
        labels_sql = LOG_LABELS_SQL if self.mined else build_sql
        rows = self._rows(labels_sql, tenant=tenant, sources=list(sources))
        return self.with_prefix(self.with_prefix(rows, "query_id"), "text_id")

    def texts(self, tenant: str) -> Iterator[pa.Table]:
        """Yield the searched texts in the columns of `chunks`, in tables of at most `ROWS_PER_READ` rows."""
        texts_sql = DOCUMENTS_AS_CHUNKS_SQL.format(row_filter="WHERE tenant = $tenant") if self.mined else _CHUNKS_SQL
        parameters = {"tenant": tenant} | ({"characters": self.text_characters} if self.mined else {})
        for rows in self.tables.stream(texts_sql, parameters, ROWS_PER_READ):
            yield self.with_prefix(rows, "chunk_id")

    def passage_rows(self, tenant: str, text_ids: Sequence[str]) -> pa.Table:
        """Load some texts by id; columns chunk_id, doc_id, title, heading, text and content_hash, ordered by id."""
        texts_sql = _DOCUMENTS_BY_ID_SQL if self.mined else _CHUNKS_BY_ID_SQL
        parameters = {"tenant": tenant, "ids": list(text_ids)}
        rows = self._rows(texts_sql, **parameters | ({"characters": self.text_characters} if self.mined else {}))
        return rows.select(["chunk_id", "doc_id", "title", "heading", "text", "content_hash"])

    def iterate_hashes(self, tenant: str) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Yield content hashes with their texts, as encoders read them."""
        for rows in self.texts(tenant):
            yield rows["content_hash"].combine_chunks(), view(rows).combine_chunks()

    def count(self, query: str, **parameters: object) -> int:
        """Return the value in column `n` of a SQL query that returns one row."""
        return int(self._rows(query, **parameters)["n"][0].as_py())

    def _rows(self, query: str, **parameters: object) -> pa.Table:
        with self.tables.connect(query) as connection:
            return connection.sql(query, params=parameters).to_arrow_table()

    def own_ids(self, ids: pa.ChunkedArray) -> pa.ChunkedArray:
        """Remove this run's prefix from ids, which gives the ids in its tables."""
        return pc.utf8_slice_codeunits(ids, len(self.prefix))

    @property
    def prefix(self) -> str:
        """Prefix of this run's ids."""
        return f"run {self.number}:" if self.number else ""

    def with_prefix(self, rows: pa.Table, column: str) -> pa.Table:
        """Prefix the ids in a column, so that they are unique over all runs."""
        if not self.number:
            return rows
        column_index = rows.schema.get_field_index(column)
        return rows.set_column(column_index, column, pc.binary_join_element_wise(self.prefix, rows[column], ""))


def texts_of(sources: Sequence[TrainingSource], texts: pa.Table) -> pa.Table:
    """Load title, heading, text and content_hash for rows of `adaptation_texts`, in the order of the rows.

    Args:
        sources: all runs, by number.
        texts: columns tenant (the same in all rows), index and text_id.
    """
    run_numbers = texts["index"].to_numpy()
    passages_by_run: list[pa.Table] = []
    rows_by_run: list[Ints] = []
    for number in np.unique(run_numbers):
        rows = np.flatnonzero(run_numbers == number)
        own_ids = sources[number].own_ids(texts["text_id"].take(pa.array(rows)))
        passages = sources[number].passage_rows(texts["tenant"][0].as_py(), own_ids.to_pylist())
        passages_by_run.append(passages.take(pc.index_in(own_ids, passages["chunk_id"].combine_chunks())))
        rows_by_run.append(rows)
    all_passages = pa.concat_tables(passages_by_run).select(["title", "heading", "text", "content_hash"])
    return all_passages.take(pa.array(np.argsort(np.concatenate(rows_by_run))))


_CHUNKS_SQL = "SELECT * FROM chunks WHERE tenant = $tenant ORDER BY chunk_id"
_CHUNKS_BY_ID_SQL = _CHUNKS_SQL.replace("ORDER BY", "AND list_contains(CAST($ids AS VARCHAR[]), chunk_id) ORDER BY")
_DOCUMENTS_BY_ID_SQL = DOCUMENTS_AS_CHUNKS_SQL.format(
    row_filter="WHERE tenant = $tenant AND list_contains(CAST($ids AS VARCHAR[]), doc_id)"
)


def resolve_tenant(sources: list[TrainingSource], requested: str | None) -> str:
    """Decide which tenant to train on: the requested one, or the only one; an adapter belongs to one tenant.

    Raises:
        ArtifactError: the runs have no triplets, or several tenants and none is named, or not the named one.
    """
    tenants = sorted({tenant for source in sources for tenant in source.tenants()})
    if not tenants:
        raise ArtifactError("the runs have no training triplets; finish building or mining them")
    if requested is None and len(tenants) > 1:
        raise ArtifactError(
            f"the runs contain the tenants {', '.join(tenants)}; an adapter belongs to one: --set adapt.tenant=NAME"
        )
    if requested is not None and requested not in tenants:
        raise ArtifactError(f"no run has triplets of the tenant {requested}; there are {', '.join(tenants)}")
    return requested or tenants[0]
