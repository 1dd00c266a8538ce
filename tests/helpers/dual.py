"""A build whose documents have titles and topics, for both towers to learn from."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.tables import TABLES
from helpers.adapted import build_to_adapt
from helpers.runs import put

TOPICAL = "train-004-0"
"""One of two documents with a topic; the other is a test query's answer."""


def build_with_documents(folder: Path) -> Run:
    """`build_to_adapt`, whose chunks have titles but one, with a hard negative in each triplet but one."""
    run = build_to_adapt(folder)
    chunks = run.tables("chunks").read("chunks")
    titles = pc.if_else(pc.equal(chunks["doc_id"], "train-002-0"), None, pc.utf8_slice_codeunits(chunks["text"], 0, 8))
    put(run, "chunks", chunks.set_column(chunks.column_names.index("title"), chunks.schema.field("title"), titles))
    ids = chunks["doc_id"].to_pylist()
    topics = ["a subject" if one in (TOPICAL, "test-005-0") else None for one in ids]
    columns = {"tenant": chunks["tenant"], "doc_id": ids, "title": titles, "topic": topics, "text": chunks["text"]}
    columns |= {"source": pa.repeat("docs", len(ids)), "content_hash": chunks["content_hash"]}
    put(run, "documents", TABLES["documents"].rows(columns))
    rows = run.tables("triplets").read("triplets").to_pylist()
    for row in rows:
        if row["query_id"] != "train-001":
            row |= {"negative_ids": [f"{row['query_id']}#1"], "negatives": [""], "negative_scores": [0.5]}
    put(run, "triplets", pa.Table.from_pylist(rows, schema=TABLES["triplets"].schema))
    return run
