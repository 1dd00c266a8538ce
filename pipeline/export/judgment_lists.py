"""Judgments of a run by document or by chunk, for the formats of search tools, which name a query by its text."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.writers import any_row, copy, require_positives
from darklode.pipeline.prepare.split import SPLITS

JUDGMENT_TABLES = ("chunks", "queries", "qrels")

LEVELS = ("document", "chunk")
"""What a judgment is about; the first is the default."""

# A document is relevant if one of its chunks is, and not relevant only if all of its chunks were judged so: a chunk
# that nobody judged, or whose label is uncertain, leaves it open.
ITEMS_SQL = {
    "chunk": "SELECT tenant, query_id, chunk_id AS item_id, relevance FROM qrels WHERE relevance IS NOT NULL",
    "document": """
        SELECT tenant, query_id, doc_id AS item_id, max(relevance) AS relevance
        FROM qrels JOIN (SELECT tenant, chunk_id, doc_id FROM chunks) USING (tenant, chunk_id)
        JOIN (SELECT tenant, doc_id, count(*) AS n_chunks FROM chunks GROUP BY ALL) USING (tenant, doc_id)
        GROUP BY tenant, query_id, doc_id, n_chunks HAVING max(relevance) > 0 OR count(relevance) = n_chunks
    """,
}

JUDGMENTS_SQL = """
    CREATE TEMP VIEW judgments AS
    SELECT split, query_id, text, item_id, relevance FROM ({items}) JOIN queries USING (tenant, query_id)
"""


@contextmanager
def judgments(tables: Tables, level: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with the view `judgments`: split, query_id, text, item_id, relevance; certain labels only.

    The grade of a document is the highest of its chunks. Ids are those of the run, because search tools look them up
    in the index; so the run must have one tenant.

    Args:
        tables: must contain `chunks`, `queries` and `qrels`.
        level: one of `LEVELS`.

    Raises:
        ExportError: unknown level, several tenants, or no chunk is relevant to any query.
    """
    if level not in ITEMS_SQL:
        raise ExportError(f"unknown level {level!r}; use {' or '.join(LEVELS)}")
    require_positives(tables)
    with tables.connect() as connection:
        tenants = connection.sql("SELECT DISTINCT tenant FROM queries ORDER BY tenant").fetchall()
        if len(tenants) > 1:
            names = ", ".join(tenant for (tenant,) in tenants[:5])
            raise ExportError(f"the run has {len(tenants)} tenants ({names}); export one with --tenant NAME")
        connection.execute(JUDGMENTS_SQL.format(items=ITEMS_SQL[level]))
        yield connection


def write_json_lists(connection: duckdb.DuckDBPyConnection, query: str, file: Path, opening: str, closing: str) -> None:
    """Write a JSON object per split, in which the rows of a query are a list; no file for a split without rows.

    Args:
        connection: holds what the query reads.
        query: ordered SQL with `{split}`.
        file: path of the file, with `{split}` in its name.
        opening: JSON before the list, with `{split}`.
        closing: JSON after it.
    """
    for split in SPLITS:
        rows, out = query.format(split=split), file.with_name(file.name.format(split=split))
        if not any_row(connection, rows):
            continue
        part = out.with_name(f".{out.name}.part")
        copy(connection, rows, part, "FORMAT json, ARRAY true")
        with part.open("rb") as rows_file, out.open("wb") as out_file:
            out_file.write(opening.format(split=split).encode())
            shutil.copyfileobj(rows_file, out_file)
            out_file.write(closing.encode())
        part.unlink()
