"""BEIR's folder: corpus.jsonl, queries.jsonl and qrels/<split>.tsv."""

from pathlib import Path

import duckdb

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import JSON_LINES, TSV, any_row, copy, define_ids, require_positives, write_id_map

SPLITS = {"train": "train", "validation": "dev", "test": "test"}
"""Our name of each split, and BEIR's."""

TITLE_SQL = "concat_ws(' › ', nullif(title, ''), nullif(heading, ''))"

CORPUS_SQL = f"""
    SELECT exported(tenant, chunk_id) AS _id, {TITLE_SQL} AS title, text FROM chunks ORDER BY tenant, chunk_id
"""

QUERIES_SQL = "SELECT exported(tenant, query_id) AS _id, text FROM queries ORDER BY tenant, query_id"

QRELS_SQL = """
    SELECT exported(tenant, query_id) AS "query-id", exported(tenant, chunk_id) AS "corpus-id", relevance AS score
    FROM qrels JOIN queries USING (tenant, query_id)
    WHERE split = '{split}' AND relevance > 0 ORDER BY tenant, query_id, chunk_id
"""


def beir(tables: Tables, folder: Path) -> None:
    """Write the chunks as BEIR's corpus, all queries, and the positives of each split that has any.

    A chunk's title is its document's title and its headings, joined by ` › `; "" where it has neither. Pairs judged
    not relevant are left out: BEIR's readers take every row of a qrels file for a judged positive (`trec` keeps them).
    Source: the layout that `beir.datasets.data_loader.GenericDataLoader` reads.

    Raises:
        ExportError: no chunk is relevant to any query.
    """
    require_positives(tables)
    with tables.connect() as connection:
        define_ids(connection)
        copy(connection, CORPUS_SQL, folder / "corpus.jsonl", JSON_LINES)
        copy(connection, QUERIES_SQL, folder / "queries.jsonl", JSON_LINES)
        for split, name in SPLITS.items():
            _qrels(connection, split, folder / "qrels" / f"{name}.tsv")
        write_id_map(connection, folder)


def _qrels(connection: duckdb.DuckDBPyConnection, split: str, path: Path) -> None:
    query = QRELS_SQL.format(split=split)
    if any_row(connection, query):
        copy(connection, query, path, TSV)


KIND = Format(("chunks", "queries", "qrels"), beir, test_labels=True)
