"""Recorded judge: verdicts that another judge gave before, read from a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts.tables import escape_glob
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.columns import JUDGMENT_COLUMNS, ColumnMapping
from darklode.pipeline.judge.port import Judge, replies_of

NOT_RECORDED = "no recorded verdict"
EMPTY_VERDICT = "the recorded verdict is empty"
AMBIGUOUS_DOCUMENT = "the recorded verdict is that of a document with several chunks"
"""Reasons why a pair has no label."""

READERS = {
    ".parquet": "read_parquet($path)",
    ".jsonl": "read_json($path, format = 'newline_delimited')",
    ".ndjson": "read_json($path, format = 'newline_delimited')",
    ".csv": "read_csv($path, all_varchar = true, header = true, delim = ',')",
    ".tsv": "read_csv($path, all_varchar = true, header = true, delim = '\t', quote = '')",
}
"""DuckDB's reader by the file's ending; `$path` is the path."""

COLUMNS = {
    "query_id": JUDGMENT_COLUMNS["query_id"],
    "item_id": ("chunk_id", *(name for name in JUDGMENT_COLUMNS["document"] if name != "chunk_id")),
    "label": ("relevant", *JUDGMENT_COLUMNS["relevance"]),
    "probability": ("probability",),
    "tenant": JUDGMENT_COLUMNS["tenant"],
}
"""Usual column names of each role. A table `verdicts` of a run fits."""

# Pairs named by their chunk count before those named by their document.
VERDICTS_SQL = """
    SELECT row_number() OVER () AS line, {tenant} AS tenant, trim({query_id}::VARCHAR) AS query_id,
           trim({item_id}::VARCHAR) AS item_id, nullif(trim(lower({label}::VARCHAR)), '') AS label,
           TRY_CAST({probability} AS FLOAT) AS probability, {probability} IS NOT NULL AS has_probability
    FROM {reader}
"""
CHECKED_SQL = """
    SELECT line, tenant, query_id, item_id, probability,
           CASE label WHEN 'true' THEN 1 WHEN 'false' THEN 0 ELSE TRY_CAST(label AS DOUBLE)::INTEGER END AS grade,
           label IN ('true', 'false') AS is_boolean,
           CASE WHEN coalesce(query_id, '') = '' OR coalesce(item_id, '') = '' THEN 'missing id'
                WHEN label IS NOT NULL AND label NOT IN ('true', 'false')
                     AND NOT regexp_full_match(label, '[+-]?[0-9]{{1,9}}([.]0*)?') THEN 'label is no whole number'
                WHEN has_probability AND (probability IS NULL OR isnan(probability) OR probability NOT BETWEEN 0 AND 1)
                     THEN 'probability is not between 0 and 1'
                WHEN count(*) OVER (PARTITION BY tenant, query_id, item_id) > 1 THEN 'pair occurs twice'
           END AS fault
    FROM ({rows})
"""


@dataclass(frozen=True)
class VerdictFile:
    """A table of verdicts in a file.

    Attributes:
        path: CSV, TSV, JSON lines or Parquet with a header.
        column: column of the labels; empty: a usual name.
        relevant_from: lowest grade of a relevant pair.
    """

    path: str
    column: str = ""
    relevant_from: int = 1

    @cached_property
    def digest(self) -> str:
        """Hash of the file's bytes, 16 hex digits.

        Raises:
            InputError: the file cannot be read.
        """
        try:
            with Path(self.path).expanduser().open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()[:16]
        except OSError as error:
            raise InputError(f"{self.path} cannot be read: {error.strerror or error}") from error

    @cached_property
    def rows(self) -> pa.Table:
        """Columns tenant, query_id, item_id, grade, relevant, probability; labels that are missing are null.

        Raises:
            InputError: the file cannot be read, lacks a column, or has a row that cannot be used.
        """
        reader = READERS.get(Path(self.path).suffix.lower())
        if reader is None:
            raise InputError(f"{self.path}: judge.verdicts takes a file that ends in {', '.join(READERS)}")
        parameters = {"path": escape_glob(str(Path(self.path).expanduser()))}
        try:
            with duckdb.connect() as connection:
                names = [name for name, *_ in connection.sql(f"DESCRIBE FROM {reader}", params=parameters).fetchall()]
                rows = VERDICTS_SQL.format(reader=reader, **self._sql_columns(names))
                checked = connection.sql(CHECKED_SQL.format(rows=rows), params=parameters).to_arrow_table()
        except duckdb.Error as error:
            raise InputError(f"{self.path} cannot be read as a table: {error}") from error
        self._refuse_faults(checked)
        least = pc.if_else(checked["is_boolean"], 1, self.relevant_from)
        relevant = pc.greater_equal(checked["grade"], pc.fill_null(least, self.relevant_from))
        grade = pc.if_else(pc.fill_null(checked["is_boolean"], True), None, checked["grade"]).cast(pa.int32())
        ids = ("tenant", "query_id", "item_id", "probability")
        return pa.table({name: checked[name] for name in ids} | {"relevant": relevant, "grade": grade})

    def _sql_columns(self, present: list[str]) -> dict[str, str]:
        """SQL of each role's column; a role without one is null."""
        names = {"label": self.column} if self.column else {}
        columns = ColumnMapping("judge", names, COLUMNS, ("query_id", "item_id", "label")).find(self.path, present)
        quoted = {role: '"{}"'.format(name.replace('"', '""')) for role, name in columns.items()}
        tenant = f"nullif(trim({quoted['tenant']}::VARCHAR), '')" if "tenant" in quoted else "NULL"
        return {"probability": "NULL"} | quoted | {"tenant": f"CAST({tenant} AS VARCHAR)"}

    def _refuse_faults(self, checked: pa.Table) -> None:
        faulty_rows = checked.filter(pc.is_valid(checked["fault"])).sort_by("line")
        if faulty_rows.num_rows:
            row = faulty_rows.slice(0, 1).to_pylist()[0]
            raise InputError(
                f"{self.path}, row {row['line']} (query {row['query_id']}, {row['item_id']}): {row['fault']}; "
                f"{faulty_rows.num_rows} of {checked.num_rows} rows cannot be used"
            )
        if not checked.num_rows:
            raise InputError(f"{self.path} has no verdict")


class RecordedJudge(Judge):
    """The verdicts of a file; a pair that it lacks has a null label.

    A verdict names a chunk, or a document: then it holds for the document's only chunk, and for all its chunks if it
    is "not relevant".

    Args:
        file: the verdicts.
        chunks: the tenant's chunks; verdicts without a tenant belong to every tenant.
    """

    def __init__(self, file: VerdictFile, chunks: TenantChunks) -> None:
        self._file = file
        self._chunks = chunks
        self._counts = {"recorded": 0, "not_recorded": 0}

    @property
    def judge_id(self) -> str:
        """Hash of the file, column and lowest relevant grade."""
        return f"recorded-1:{self._file.digest}:{self._file.column or 'label'}>={self._file.relevant_from}"

    @property
    def facts(self) -> Mapping[str, int]:
        return self._counts

    async def judge(self, pairs: pa.Table) -> pa.Table:
        """Look up the pairs; errors: `NOT_RECORDED`, `EMPTY_VERDICT`, `AMBIGUOUS_DOCUMENT`."""
        verdicts = self._of_queries(pairs["query_id"])
        by_chunk = _positions(pairs["query_id"], pairs["chunk_id"], verdicts)
        chunk_rows = pc.index_in(pairs["chunk_id"], value_set=self._chunks.chunk_ids).to_numpy()
        documents = self._chunks.doc_ids.take(pa.array(chunk_rows))
        by_document = _positions(pairs["query_id"], documents, verdicts)
        verdict_row = np.where(by_chunk >= 0, by_chunk, by_document)
        is_found = verdict_row >= 0
        pair_verdicts = verdicts.take(pa.array(np.where(is_found, verdict_row, 0), mask=~is_found))
        is_relevant = pc.fill_null(pair_verdicts["relevant"], False).to_numpy()
        is_ambiguous = is_found & (by_chunk < 0) & is_relevant & (self._chunks_of_document[chunk_rows] > 1)
        reason = np.full(pairs.num_rows, None, dtype=object)
        reason[pc.is_null(pair_verdicts["relevant"]).to_numpy()] = EMPTY_VERDICT
        reason[~is_found], reason[is_ambiguous] = NOT_RECORDED, AMBIGUOUS_DOCUMENT
        self._counts["recorded"] += int(is_found.sum())
        self._counts["not_recorded"] += int((~is_found).sum())
        errors = pa.array(reason, pa.string())
        labels = {
            name: pc.if_else(pc.is_null(errors), pair_verdicts[name], None)
            for name in ("relevant", "grade", "probability")
        }
        return replies_of(labels | {"error": errors}, pairs.num_rows)

    def _of_queries(self, query_ids: pa.ChunkedArray) -> pa.Table:
        """The tenant's verdicts on these queries."""
        rows = self._tenant_rows
        return rows.filter(pc.is_in(rows["query_id"], value_set=pc.unique(query_ids)))

    @cached_property
    def _tenant_rows(self) -> pa.Table:
        rows = self._file.rows
        return rows.filter(pc.fill_null(pc.equal(rows["tenant"], self._chunks.tenant), True))

    @cached_property
    def _chunks_of_document(self) -> NDArray[np.int64]:
        """Number of chunks of each chunk's document, shape (n_chunks,)."""
        codes = np.asarray(self._chunks.doc_ids.dictionary_encode().indices.to_numpy(), np.int64)
        return np.asarray(np.bincount(codes)[codes], np.int64)


def _positions(
    query_ids: pa.ChunkedArray, item_ids: pa.Array | pa.ChunkedArray, verdicts: pa.Table
) -> NDArray[np.int64]:
    """Row of each pair in `verdicts`, -1 if there is none, shape (n_pairs,)."""
    pair_keys = pc.binary_join_element_wise(query_ids, item_ids, "\0")
    verdict_keys = pc.binary_join_element_wise(verdicts["query_id"], verdicts["item_id"], "\0")
    return np.asarray(pc.fill_null(pc.index_in(pair_keys, value_set=verdict_keys), -1).to_numpy(), dtype=np.int64)
