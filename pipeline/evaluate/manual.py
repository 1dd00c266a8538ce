"""People's labels of pairs, satisfaction and relevance: read from a file, with the texts of their documents."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.columns import Columns
from darklode.pipeline.ingest.files import listing
from darklode.pipeline.ingest.log_rows import FALSE, TRUE
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import Block, Mask, Seen, blank, common_faults, emptied, keys_of, mask, weed
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES

MANUAL = Stage("manual_labels", 1, ("documents",), ("manual_labels", "manual_texts"))

SAID = ("satisfaction", "relevance")
USUAL = {
    "query": ("query", "query_text"),
    "document": ("document", "doc_id", "document_id", "text"),
    "satisfaction": ("satisfaction",),
    "relevance": ("relevance",),
    "tenant": ("tenant",),
}
COLUMNS = Columns("evaluate.labels", {}, USUAL, ("query", "document"), "query", events=True)

TEXTS = """
    WITH labelled AS (SELECT DISTINCT tenant, text_id, text FROM given), shown AS (
        SELECT l.tenant, l.text_id, d.title, coalesce(l.text, left(d.text, $characters)) AS text
        FROM labelled l LEFT JOIN documents d ON l.text IS NULL AND d.tenant = l.tenant AND d.doc_id = l.text_id
    )
    SELECT tenant, text_id AS chunk_id, text_id AS doc_id, CAST(0 AS INTEGER) AS position, CAST(0 AS INTEGER) AS start,
           CAST(length(text) AS INTEGER) AS end, text, title, CAST(NULL AS VARCHAR) AS heading,
           left(sha256(concat(coalesce(title, ''), chr(0), chr(0), text)), 32) AS content_hash
    FROM shown ORDER BY tenant, text_id
"""


def manual_labels(tables: Tables, output: Output, settings: IngestSettings, *, file: str, text_characters: int) -> None:
    """Read labels; a row that cannot be used is a reject with its line.

    A document is named by an id of the run's, or is itself the text. Labels are 1 and 0, yes and no, true and false;
    one of the two may be missing. Of a pair that is there again the first row counts.

    Args:
        tables: holds `documents`.
        output: takes `manual_labels`, by its key, `manual_texts` and the rejects.
        settings: tenant of rows that name none, the longest row, and how many rows may be turned away.
        file: CSV or TSV with a header, JSON lines or Parquet, or a folder of these.
        text_characters: so much of a document's text stands for it, after its title.

    Raises:
        InputError: the file cannot be read, or lacks a column.
        TooManyRejects: more than `settings.max_reject_share` of the rows cannot be used.
    """
    files, seen, rows = listing(file), Seen(), [TABLES["manual_labels"].empty()]
    intake = Intake(output, "labels", file, files)
    known = tables.read("documents", ["tenant", "doc_id"])
    ids = pc.binary_join_element_wise(known["tenant"], known["doc_id"], "\x1f").combine_chunks()
    for one in files:
        for block in read_tabular(one, None, COLUMNS, intake, settings.max_row_bytes):
            if not set(SAID) & block.columns.keys():
                raise InputError(f"{file} has neither a column satisfaction nor one relevance; see docs/evaluate.md")
            rows.append(_usable(block, ids, seen, intake, settings))
    intake.close(settings.max_reject_share)
    order = [(name, "ascending") for name in TABLES["manual_labels"].key]
    labels = pa.concat_tables(rows).sort_by(order).combine_chunks()
    with tables.connect() as connection:
        connection.register("given", labels)
        texts = connection.sql(TEXTS, params={"characters": text_characters}).to_arrow_table()
    output.write("manual_labels", labels)
    output.write("manual_texts", texts.cast(TABLES["manual_texts"].schema))


def _usable(block: Block, known: pa.Array, seen: Seen, intake: Intake, settings: IngestSettings) -> pa.Table:
    """Rows of `manual_labels` in the file's order."""
    faults = common_faults(block, "", settings, "query")
    faults.append(("no document", blank(block.columns["document"])))
    whole = weed(block, faults, intake).completed(settings)
    said = {name: _said(whole.columns.get(name, whole.nulls())) for name in SAID}
    names = pc.binary_join_element_wise(whole.columns["tenant"], emptied(whole.columns["document"]), "\x1f")
    ours = mask(pc.is_in(names, value_set=known))
    wordy = mask(pc.match_substring_regex(pc.utf8_trim_whitespace(whole.columns["document"]), r"\s"))
    bad: list[tuple[str, Mask]] = [(f"{name} is neither 0 nor 1", wrong) for name, (_, wrong) in said.items()]
    bad.append(("no label", np.logical_and.reduce([mask(values.is_null()) for values, _ in said.values()])))
    bad.append(("document is neither an id of the run nor a text", ~ours & ~wordy))
    fine = ~np.logical_or.reduce([hit for _, hit in bad])
    left = weed(whole, bad, intake)
    rows = _rows(left, ours[fine]).append_column("at", pa.array(np.flatnonzero(fine)))
    keys = keys_of(*(rows[name].to_pylist() for name in ("tenant", "pair")))
    again = seen.repeated(keys)
    weed(left, [("pair repeated", again)], intake)
    kept = rows.filter(pa.array(~again))
    columns = {name: kept[name] for name in ("tenant", "query_id", "query", "text_id", "text")}
    return TABLES["manual_labels"].rows(columns | {name: values.take(kept["at"]) for name, (values, _) in said.items()})


def _rows(block: Block, ours: NDArray[np.bool_]) -> pa.Table:
    """The pairs with their ids, and the text of those documents that the run does not have."""
    import hashlib

    queries, documents = emptied(block.columns["query"]), emptied(block.columns["document"])
    hashed = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in queries.to_pylist()]
    own = [f"text-{hashlib.sha256(text.encode()).hexdigest()[:16]}" for text in documents.to_pylist()]
    query_id, text_id = pa.array(hashed, pa.string()), pc.if_else(pa.array(ours), documents, pa.array(own, pa.string()))
    return pa.table(
        {
            "tenant": block.columns["tenant"],
            "query_id": query_id,
            "query": queries,
            "text_id": text_id,
            "text": pc.if_else(pa.array(ours), pa.scalar(None, pa.string()), documents),
            "pair": pc.binary_join_element_wise(query_id, text_id, "\x1f"),
        }
    )


def _said(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Labels, null where there is none; and where a text is none."""
    given = pc.utf8_lower(emptied(texts))
    number = pc.replace_substring_regex(given, r"\.0*$", "")
    yes = pc.or_(pc.is_in(given, pa.array(TRUE)), pc.equal(number, "1"))
    no = pc.or_(pc.is_in(given, pa.array(FALSE)), pc.equal(number, "0"))
    values = pc.if_else(pc.fill_null(yes, False), True, pc.if_else(pc.fill_null(no, False), False, None))
    return values, mask(pc.and_(values.is_null(), given.is_valid()))
