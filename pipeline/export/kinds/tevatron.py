"""Tevatron's two layouts: v1 with the passages in each row, v2 with their ids and a corpus."""

from pathlib import Path

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.export.grouped_triplets import group_triplets, n_without_negative
from darklode.pipeline.export.kinds import Format
from darklode.pipeline.export.writers import (
    JSON_LINES,
    TRIPLET_IDS_SQL,
    append,
    copy,
    define_ids,
    require_negatives,
    write_id_map,
)

_PASSAGE_LIST_SQL = "list_transform({of}, lambda p: {{'docid': exported(tenant, p.id), 'title': '', 'text': p.text}})"
_ID_LIST_SQL = "list_transform({of}, lambda p: exported(tenant, p.id))"

V1_ROWS_SQL = f"""
    SELECT exported(tenant, query_id) AS query_id, query,
           {_PASSAGE_LIST_SQL.format(of="positives")} AS positive_passages,
           {_PASSAGE_LIST_SQL.format(of="negatives")} AS negative_passages
    FROM grouped_queries WHERE len(negatives) > 0 ORDER BY tenant, query_id
"""

V2_ROWS_SQL = f"""
    SELECT exported(tenant, query_id) AS query_id, query AS query_text,
           {_ID_LIST_SQL.format(of="positives")} AS positive_document_ids,
           {_ID_LIST_SQL.format(of="negatives")} AS negative_document_ids
    FROM grouped_queries WHERE len(negatives) > 0 ORDER BY tenant, query_id
"""

# The text of each passage in its latest triplet: a document's text may have changed between the days of a log.
CORPUS_SQL = """
    WITH places AS (
        SELECT tenant, unnest([positive_id] || negative_ids) AS id, triplet_id,
               coalesce(date, DATE '1970-01-01') AS date,
               generate_subscripts([positive_id] || negative_ids, 1) AS place
        FROM triplets
    ), latest_places AS (
        SELECT tenant, id, max({'date': date, 'triplet': triplet_id, 'place': place}) AS latest_place
        FROM places GROUP BY tenant, id
    ), texts AS (SELECT tenant, triplet_id, [positive] || negatives AS texts FROM triplets)
    SELECT exported(tenant, id) AS docid, texts[latest_place.place] AS text
    FROM (SELECT tenant, id, latest_place, latest_place.triplet AS triplet_id FROM latest_places)
    JOIN texts USING (tenant, triplet_id)
    ORDER BY tenant, id
"""

README = """\
# Training data for Tevatron

- `v1/<split>.jsonl`: query_id, query, positive_passages, negative_passages (docid, title, text).
- `v2/<split>.jsonl`: query_id, query_text, positive_document_ids, negative_document_ids; `v2/corpus.jsonl`: docid, text
  of every passage of the triplets.

One row per query; {n_omitted} queries have no negative and are omitted.
"""


def tevatron(tables: Tables, folder: Path) -> None:
    """Write `v1/<split>.jsonl`, `v2/<split>.jsonl`, `v2/corpus.jsonl` and a README.md.

    Titles are "", because the trainer must read the triplet's text and nothing else. The corpus has only the passages
    of the triplets. The README counts the queries that are omitted because they have no negative. Source: the rows that
    `tevatron.retriever.dataset.TrainDataset` reads, those of its legacy format (v1) and of its new one (v2).

    Raises:
        ExportError: no triplet has a negative.
    """
    require_negatives(tables)
    n_omitted = 0
    with tables.connect() as connection:
        define_ids(connection, TRIPLET_IDS_SQL)
        for split in group_triplets(connection):
            append(connection, V1_ROWS_SQL, folder / "v1" / f"{split}.jsonl", JSON_LINES)
            append(connection, V2_ROWS_SQL, folder / "v2" / f"{split}.jsonl", JSON_LINES)
            n_omitted += n_without_negative(connection)
        copy(connection, CORPUS_SQL, folder / "v2" / "corpus.jsonl", JSON_LINES)
        write_id_map(connection, folder)
    (folder / "README.md").write_text(README.format(n_omitted=n_omitted), encoding="utf-8")


KIND = Format(("triplets",), tevatron)
