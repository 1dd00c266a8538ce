"""TREC's files: qrels.<split>.txt, runs/<retriever>.txt and queries.tsv, as trec_eval and ir_measures read them."""

from pathlib import Path
from urllib.parse import quote

import duckdb

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.duckdb_views import literal
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import (
    TSV_WITHOUT_HEADER,
    any_row,
    copy,
    define_ids,
    require_positives,
    write_id_map,
)
from darklode.pipeline.prepare.split import SPLITS

QUERIES_SQL = "SELECT exported(tenant, query_id), one_line(text) FROM queries ORDER BY tenant, query_id"

QRELS_SQL = """
    SELECT concat_ws(' ', exported(tenant, query_id), '0', exported(tenant, chunk_id), relevance)
    FROM qrels JOIN queries USING (tenant, query_id)
    WHERE split = '{split}' AND relevance IS NOT NULL ORDER BY tenant, query_id, chunk_id
"""

RUN_SQL = """
    SELECT concat_ws(' ', exported(tenant, query_id), 'Q0', exported(tenant, chunk_id), rank, score, safe_id(retriever))
    FROM rankings WHERE retriever = {retriever} ORDER BY tenant, query_id, rank
"""


def trec(tables: Tables, folder: Path) -> None:
    """Write certain judgments (including 0: judged is not unjudged), each retriever's full rankings, and the queries.

    White space in a query's text becomes single spaces, so that each query is one line. A run file's name is its
    retriever's, with `%XX` for what a file name cannot hold. trec_eval orders by score and breaks ties by id, not by
    rank: lists with tied scores may be read in a slightly other order than they were found in.

    Raises:
        ExportError: no chunk is relevant to any query.
    """
    require_positives(tables)
    with tables.connect() as connection:
        define_ids(connection)
        copy(connection, QUERIES_SQL, folder / "queries.tsv", TSV_WITHOUT_HEADER)
        for split in SPLITS:
            _qrels(connection, split, folder / f"qrels.{split}.txt")
        names = connection.sql("SELECT DISTINCT retriever FROM rankings ORDER BY retriever").fetchall()
        for (name,) in names:
            query = RUN_SQL.format(retriever=literal(name))
            copy(connection, query, folder / "runs" / f"{quote(name, safe='')}.txt", TSV_WITHOUT_HEADER)
        write_id_map(connection, folder)


def _qrels(connection: duckdb.DuckDBPyConnection, split: str, path: Path) -> None:
    query = QRELS_SQL.format(split=split)
    if any_row(connection, query):
        copy(connection, query, path, TSV_WITHOUT_HEADER)


KIND = Format(("chunks", "queries", "qrels", "rankings"), trec, test_labels=True)
