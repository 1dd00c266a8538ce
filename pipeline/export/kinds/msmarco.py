"""MS MARCO's passage-ranking files: tab-separated, one row per line, without headers."""

from pathlib import Path

import duckdb

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.chunk_texts import TEXT_FORMS_SQL
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.kinds.beir import SPLITS
from darklode.pipeline.export.writers import (
    TSV_WITHOUT_HEADER,
    any_row,
    copy,
    define_ids,
    require_positives,
    write_id_map,
)

COLLECTION_SQL = "SELECT exported(tenant, chunk_id), one_line({passage}) FROM chunks ORDER BY tenant, chunk_id"

# The collection holds the passages of the triples.
TEXT_ONLY_TRIPLETS_SQL = """
    FROM triplets t JOIN chunks c ON c.tenant = t.tenant AND c.chunk_id = t.positive_id
    WHERE source = 'pooled' AND positive = text AND coalesce(title, heading) IS NOT NULL
"""

QUERIES_SQL = """
    SELECT exported(tenant, query_id), one_line(text) FROM queries WHERE split = '{split}' ORDER BY tenant, query_id
"""

QRELS_SQL = """
    SELECT exported(tenant, query_id), 0, exported(tenant, chunk_id), relevance
    FROM qrels JOIN queries USING (tenant, query_id)
    WHERE split = '{split}' AND relevance > 0 ORDER BY tenant, query_id, chunk_id
"""

# Mined triplets name documents, which the collection does not have.
TRIPLES_SQL = """
    SELECT {columns} FROM (
        SELECT tenant, query_id, triplet_id, query, positive_id, positive, unnest(negative_ids) AS negative_id,
               unnest(negatives) AS negative, generate_subscripts(negatives, 1) AS place
        FROM triplets WHERE split = 'train' AND source = 'pooled'
    )
    ORDER BY tenant, query_id, triplet_id, place
"""

TEXT_COLUMNS = "one_line(query), one_line(positive), one_line(negative)"
ID_COLUMNS = "exported(tenant, query_id), exported(tenant, positive_id), exported(tenant, negative_id)"


def msmarco(tables: Tables, folder: Path) -> None:
    """Write the collection, the queries and positives of each split, and the training triples as texts and as ids.

    The files are `collection.tsv` (id, text), `queries.<split>.tsv` (id, text), `qrels.<split>.tsv` (query, 0, passage,
    relevance), `triples.train.tsv` (query, positive, negative) and `qidpidtriples.train.tsv` (their ids), one triple
    per negative. A passage is title, heading and text, or the text alone where the triplets hold that. Splits are
    train, dev and test; one without rows has no file. White space in a text becomes single spaces.

    Source: the files of MS MARCO's passage ranking task.

    Raises:
        ExportError: no chunk is relevant to any query.
    """
    require_positives(tables)
    with tables.connect() as connection:
        define_ids(connection)
        form = TEXT_FORMS_SQL["text" if any_row(connection, TEXT_ONLY_TRIPLETS_SQL) else "title_heading_text"]
        _lines(connection, COLLECTION_SQL.format(passage=form.format(of="")), folder / "collection.tsv")
        for split, name in SPLITS.items():
            _lines(connection, QUERIES_SQL.format(split=split), folder / f"queries.{name}.tsv")
            _lines(connection, QRELS_SQL.format(split=split), folder / f"qrels.{name}.tsv")
        _lines(connection, TRIPLES_SQL.format(columns=TEXT_COLUMNS), folder / "triples.train.tsv")
        _lines(connection, TRIPLES_SQL.format(columns=ID_COLUMNS), folder / "qidpidtriples.train.tsv")
        write_id_map(connection, folder)


def _lines(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    if any_row(connection, query):
        copy(connection, query, path, TSV_WITHOUT_HEADER)


KIND = Format(("chunks", "queries", "qrels", "triplets"), msmarco, test_labels=True)
