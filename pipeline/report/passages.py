"""Texts quoted in the report, with document title, highlighted query terms and the judge's probability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.highlighting import BEGINS_FENCED_SQL, Highlighter
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.report.drawing import Text
from darklode.pipeline.report.source import ReportSource

EXCERPT = 260
"""Characters of a text shown before it is expanded."""

Key = tuple[str, str, str]
"""Tenant, query_id, and chunk_id (doc_id in a mined run)."""

# The queries below read `requested_texts`, which `Passages` registers: tenant, query_id and id of the texts it needs.
_CHUNK_PASSAGES_SQL = f"""
    SELECT requested.*, c.doc_id, c.title, c.heading, {BEGINS_FENCED_SQL} AS fenced FROM requested_texts requested
    LEFT JOIN chunks c ON c.tenant = requested.tenant AND c.chunk_id = requested.id
    LEFT JOIN documents d ON d.tenant = c.tenant AND d.doc_id = c.doc_id
"""
_DOCUMENT_PASSAGES_SQL = """
    SELECT requested.*, requested.id AS doc_id, d.title, CAST(NULL AS VARCHAR) AS heading, false AS fenced
    FROM requested_texts requested
    LEFT JOIN documents d ON d.tenant = requested.tenant AND d.doc_id = requested.id
"""
_CHUNK_PROBABILITIES_SQL = "SELECT tenant, query_id, chunk_id AS id, probability FROM verdicts"
_MINED_PROBABILITIES_SQL = """
    SELECT tenant, query_id, positive_id AS id, probability FROM mined_verdicts UNION ALL
    SELECT tenant, query_id, negative_id, negative_probability FROM mined_verdicts
"""
_PASSAGES_SQL = """
    WITH probabilities AS (
        SELECT tenant, query_id, id, max(probability) AS probability
        FROM ({probabilities}) SEMI JOIN requested_texts USING (tenant, query_id, id) GROUP BY ALL
    )
    SELECT p.*, highest.probability FROM ({passages}) p LEFT JOIN probabilities highest USING (tenant, query_id, id)
"""


class Passages:
    """Details of texts, looked up in one query.

    Args:
        source: the run.
        keys: the texts needed.
    """

    def __init__(self, source: ReportSource, keys: Iterable[Key]) -> None:
        rows = [dict(zip(("tenant", "query_id", "id"), key, strict=True)) for key in dict.fromkeys(keys)]
        key_table = pa.Table.from_pylist(
            rows, pa.schema([(name, pa.string()) for name in ("tenant", "query_id", "id")])
        )
        probabilities, passages = (
            (_MINED_PROBABILITIES_SQL, _DOCUMENT_PASSAGES_SQL)
            if source.mined
            else (_CHUNK_PROBABILITIES_SQL, _CHUNK_PASSAGES_SQL)
        )
        sql = _PASSAGES_SQL.format(probabilities=probabilities, passages=passages)
        with source.tables.connect(sql) as connection:
            connection.register("requested_texts", key_table)
            text_rows = connection.sql(sql).to_arrow_table().to_pylist()
        self._row_by_key: dict[Key, dict[str, Any]] = {
            (row["tenant"], row["query_id"], row["id"]): row for row in text_rows
        }
        bm25 = source.settings.bm25
        self._analyzer = Analyzer(bm25.stemmer, bm25.stop_words)

    def text(self, key: Key, query: str, text: str, role: str, note: str = "") -> Text:
        """A text with highlighted query terms; an empty note is replaced by the judge's probability."""
        row, highlighter = self._row_by_key[key], Highlighter.of_terms(self._analyzer, query)
        probability = row["probability"]
        note = note or ("" if probability is None else f"probability {probability:.3f}")
        for name in ("title", "heading"):  # a triplet's passage begins with them; they are shown separately
            text = text.removeprefix(f"{row[name]}\n") if row[name] is not None else text
        heading_pieces = [highlighter.pieces(row[name]) for name in ("title", "heading") if row[name]]
        return Text(
            *highlighter.collapse(text, EXCERPT, fenced=row["fenced"]), role, note, heading_pieces, row["doc_id"] or ""
        )


def plain(text: str) -> Text:
    """A text without query, role or document."""
    return Text(*Highlighter.of_parts(()).collapse(text, EXCERPT))
