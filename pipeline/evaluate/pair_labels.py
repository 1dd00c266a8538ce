"""Human labels of pairs (satisfaction, relevance) from a file, with the texts of their documents."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.errors import InputError
from darklode.pipeline.base.types import Mask
from darklode.pipeline.ingest.columns import ColumnMapping
from darklode.pipeline.ingest.files import list_files
from darklode.pipeline.ingest.log_rows import FALSE_TEXTS, TRUE_TEXTS
from darklode.pipeline.ingest.readers.tabular import read_tabular
from darklode.pipeline.ingest.rejects import Intake
from darklode.pipeline.ingest.rows import (
    RowBlock,
    SeenKeys,
    blank_to_null,
    common_faults,
    drop_faulty,
    is_blank,
    keys_of,
    mask,
)
from darklode.schemas.settings import IngestSettings
from darklode.schemas.tables import TABLES

MANUAL_LABELS_STAGE = Stage("manual_labels", 1, ("documents",), ("manual_labels", "manual_texts"))

LABEL_COLUMNS = ("satisfaction", "relevance")
"""Columns that hold labels; a row needs at least one of them."""

USUAL_COLUMN_NAMES = {
    "query": ("query", "query_text"),
    "document": ("document", "doc_id", "document_id", "text"),
    "satisfaction": ("satisfaction",),
    "relevance": ("relevance",),
    "tenant": ("tenant",),
}
"""Column names that are recognized in a file, by their meaning."""

COLUMN_MAPPING = ColumnMapping(
    "evaluate.human_labels", {}, USUAL_COLUMN_NAMES, ("query", "document"), "query", events=True
)

# `usable_labels` are the rows of `manual_labels`; `text` is null if the document is one of the run.
DOCUMENT_TEXTS_SQL = """
    WITH labelled_documents AS (SELECT DISTINCT tenant, text_id, text FROM usable_labels), document_texts AS (
        SELECT l.tenant, l.text_id, d.title, coalesce(l.text, left(d.text, $characters)) AS text
        FROM labelled_documents l
        LEFT JOIN documents d ON l.text IS NULL AND d.tenant = l.tenant AND d.doc_id = l.text_id
    )
    SELECT tenant, text_id AS chunk_id, text_id AS doc_id, CAST(0 AS INTEGER) AS position, CAST(0 AS INTEGER) AS start,
           CAST(length(text) AS INTEGER) AS end, text, title, CAST(NULL AS VARCHAR) AS heading,
           left(sha256(concat(coalesce(title, ''), chr(0), chr(0), text)), 32) AS content_hash
    FROM document_texts ORDER BY tenant, text_id
"""


def manual_labels(tables: Tables, output: Output, settings: IngestSettings, *, file: str, text_characters: int) -> None:
    """Read labels; unusable rows are rejects with their line.

    A document is an id of the run, or a text. Labels are 1 and 0, yes and no, true and false; one of the two may be
    missing. Of repeated pairs the first row counts.

    Args:
        tables: must contain `documents`.
        output: receives `manual_labels`, sorted by key, `manual_texts` and the rejects.
        settings: default tenant, maximum row length and maximum share of rejects.
        file: CSV or TSV with a header, JSON lines or Parquet, or a folder of these.
        text_characters: length of a document's text after its title.

    Raises:
        InputError: the file cannot be read, or a column is missing.
        TooManyRejects: more than `settings.max_reject_share` of the rows are unusable.
    """
    files = list_files(file)
    seen_keys = SeenKeys()
    rows = [TABLES["manual_labels"].empty()]
    intake = Intake(output, "labels", file, files)
    known_documents = tables.read("documents", ["tenant", "doc_id"])
    ids = pc.binary_join_element_wise(known_documents["tenant"], known_documents["doc_id"], "\x1f").combine_chunks()
    for label_file in files:
        for block in read_tabular(label_file, None, COLUMN_MAPPING, intake, settings.max_row_bytes):
            if not set(LABEL_COLUMNS) & block.columns.keys():
                raise InputError(f"{file} needs a column satisfaction or relevance; see docs/guides/evaluate.md")
            rows.append(_select_usable(block, ids, seen_keys, intake, settings))
    intake.close(settings.max_reject_share)
    order = [(name, "ascending") for name in TABLES["manual_labels"].key]
    labels = pa.concat_tables(rows).sort_by(order).combine_chunks()
    with tables.connect() as connection:
        connection.register("usable_labels", labels)
        texts = connection.sql(DOCUMENT_TEXTS_SQL, params={"characters": text_characters}).to_arrow_table()
    output.write("manual_labels", labels)
    output.write("manual_texts", texts.cast(TABLES["manual_texts"].schema))


def _select_usable(
    block: RowBlock, known_documents: pa.Array, seen_keys: SeenKeys, intake: Intake, settings: IngestSettings
) -> pa.Table:
    """Convert usable rows to rows of `manual_labels`, in the order of the file; the others become rejects."""
    faults = common_faults(block, "", settings, "query")
    faults.append(("no document", is_blank(block.columns["document"])))
    complete = drop_faulty(block, faults, intake).complete(settings)
    labels_by_column = {name: _parse_labels(complete.columns.get(name, complete.nulls())) for name in LABEL_COLUMNS}
    document_keys = pc.binary_join_element_wise(
        complete.columns["tenant"], blank_to_null(complete.columns["document"]), "\x1f"
    )
    is_known = mask(pc.is_in(document_keys, value_set=known_documents))
    has_spaces = mask(pc.match_substring_regex(pc.utf8_trim_whitespace(complete.columns["document"]), r"\s"))
    label_faults: list[tuple[str, Mask]] = [
        (f"{name} is neither 0 nor 1", is_invalid) for name, (_, is_invalid) in labels_by_column.items()
    ]
    label_faults.append(
        ("no label", np.logical_and.reduce([mask(values.is_null()) for values, _ in labels_by_column.values()]))
    )
    label_faults.append(("document is neither a known id nor a text", ~is_known & ~has_spaces))
    is_usable = ~np.logical_or.reduce([is_faulty for _, is_faulty in label_faults])
    usable = drop_faulty(complete, label_faults, intake)
    rows = _rows(usable, is_known[is_usable]).append_column("at", pa.array(np.flatnonzero(is_usable)))
    keys = keys_of(*(rows[name].to_pylist() for name in ("tenant", "pair")))
    is_repeated = seen_keys.find_repeated(keys)
    drop_faulty(usable, [("pair repeated", is_repeated)], intake)
    new_rows = rows.filter(pa.array(~is_repeated))
    columns = {name: new_rows[name] for name in ("tenant", "query_id", "query", "text_id", "text")}
    return TABLES["manual_labels"].rows(
        columns | {name: values.take(new_rows["at"]) for name, (values, _) in labels_by_column.items()}
    )


def _rows(block: RowBlock, is_of_run: NDArray[np.bool_]) -> pa.Table:
    """Build the pairs with their ids, and the texts of documents that the run does not have.

    Args:
        block: usable rows.
        is_of_run: whether each row names a document of the run by its id.
    """
    queries = blank_to_null(block.columns["query"])
    documents = blank_to_null(block.columns["document"])
    query_ids = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in queries.to_pylist()]
    ids_of_texts = [f"text-{hashlib.sha256(text.encode()).hexdigest()[:16]}" for text in documents.to_pylist()]
    query_id = pa.array(query_ids, pa.string())
    text_id = pc.if_else(pa.array(is_of_run), documents, pa.array(ids_of_texts, pa.string()))
    return pa.table(
        {
            "tenant": block.columns["tenant"],
            "query_id": query_id,
            "query": queries,
            "text_id": text_id,
            "text": pc.if_else(pa.array(is_of_run), pa.scalar(None, pa.string()), documents),
            "pair": pc.binary_join_element_wise(query_id, text_id, "\x1f"),
        }
    )


def _parse_labels(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Parse labels: true, false, or null if empty; also returns a mask of invalid texts."""
    lowercase = pc.utf8_lower(blank_to_null(texts))
    number = pc.replace_substring_regex(lowercase, r"\.0*$", "")
    is_yes = pc.or_(pc.is_in(lowercase, pa.array(TRUE_TEXTS)), pc.equal(number, "1"))
    is_no = pc.or_(pc.is_in(lowercase, pa.array(FALSE_TEXTS)), pc.equal(number, "0"))
    values = pc.if_else(pc.fill_null(is_yes, False), True, pc.if_else(pc.fill_null(is_no, False), False, None))
    return values, mask(pc.and_(values.is_null(), lowercase.is_valid()))
