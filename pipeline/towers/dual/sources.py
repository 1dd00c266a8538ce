"""Runs whose texts include the documents' topics, for the content view and for the searched texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.train.data.sources import BUILD_TABLES, LOG_TABLES, TrainingSource

TOPIC_COUNTS_SQL = "SELECT tenant, count(topic) AS n FROM documents GROUP BY tenant ORDER BY tenant"

# `source_texts` are registered rows in the columns of `chunks`.
# The topic is put before the headings, and the content hash covers it, because the hash is the embedding cache's key.
# Rows without a topic stay unchanged, so that their cached vectors stay valid.
WITH_TOPICS_SQL = """
    SELECT s.* REPLACE (
        CASE WHEN d.topic IS NULL THEN s.heading ELSE concat_ws(chr(10), d.topic, s.heading) END AS heading,
        CASE WHEN d.topic IS NULL THEN s.content_hash
             ELSE left(sha256(concat_ws(chr(0), 'topic', s.title, d.topic, s.heading, s.text)), 32) END AS content_hash
    )
    FROM source_texts s LEFT JOIN (SELECT doc_id, topic FROM documents WHERE tenant = $tenant) d USING (doc_id)
    ORDER BY chunk_id
"""


class TopicalSource(TrainingSource):
    """A run whose texts have their topic between title and headings."""

    @property
    def tables(self) -> Tables:
        """The tables that training reads; for a build also `documents`, which has the topics."""
        return self.run.tables(*dict.fromkeys((*(LOG_TABLES if self.mined else BUILD_TABLES), "documents")))

    def content(self) -> str:
        return f"{super().content()} {self.tables.content('documents')}"

    def texts(self, tenant: str) -> Iterator[pa.Table]:
        for rows in super().texts(tenant):
            yield self._with_topics(rows, tenant)

    def passage_rows(self, tenant: str, text_ids: Sequence[str]) -> pa.Table:
        return self._with_topics(super().passage_rows(tenant, text_ids), tenant)

    @cached_property
    def _topics(self) -> dict[str, int]:
        """Number of documents with a topic, by tenant."""
        rows = self._rows(TOPIC_COUNTS_SQL)
        return dict(zip(rows["tenant"].to_pylist(), rows["n"].to_pylist(), strict=True))

    def _with_topics(self, rows: pa.Table, tenant: str) -> pa.Table:
        """Add the topics to rows in the columns of `chunks`."""
        if not self._topics.get(tenant):
            return rows
        with self.tables.connect(WITH_TOPICS_SQL) as connection:
            connection.register("source_texts", rows)
            return connection.sql(WITH_TOPICS_SQL, params={"tenant": tenant}).to_arrow_table().cast(rows.schema)
