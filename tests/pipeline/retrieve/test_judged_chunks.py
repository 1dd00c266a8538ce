"""The stage `judged_chunks`: which chunk a judgment of a document is about."""

from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Run
from darklode.pipeline.retrieve.judged_chunks import JUDGED_CHUNKS_STAGE, judged_chunks
from darklode.schemas.label_tables import JUDGMENTS
from darklode.schemas.tables import CHUNKS
from helpers.judge_tables import queries
from helpers.runs import execute, put, read

TEXTS = {
    "cable-0": "Return a red cable within thirty days.",
    "cable-1": "A red cable for the usb hub costs ten euros.",
    "hub-0": "The usb hub has four ports.",
    "lamp-0": "The lamp is not a hub.",
    "lamp-1": "Lamps get warm.",
}


def given(run: Run, tenant: str, judgments: list[tuple[str, str, str, int]]) -> Run:
    chunks = [
        {"tenant": tenant, "chunk_id": name, "doc_id": name.partition("-")[0], "position": 0, "start": 0, "end": 1}
        | {"text": text, "content_hash": name}
        for name, text in TEXTS.items()
    ]
    put(run, "chunks", pa.Table.from_pylist(chunks, schema=CHUNKS.schema))
    put(run, "queries", queries(tenant, {"q1": "what costs a usb hub cable", "q2": "warm lamps"}))
    names = ("query_id", "item_id", "level", "relevance")
    rows = [dict(zip(names, row, strict=True)) | {"tenant": tenant} for row in judgments]
    put(run, "judgments", pa.Table.from_pylist(rows, schema=JUDGMENTS.schema))
    return run


def test_the_best_chunk_of_a_relevant_document_and_all_of_one_that_is_not(tmp_path: Path) -> None:
    judgments = [
        ("q1", "cable", "document", 3),
        ("q1", "lamp", "document", 0),
        ("q2", "lamp", "document", 1),
        ("q2", "lamp-0", "chunk", 2),
        ("dropped", "hub", "document", 1),
    ]
    run = given(Run(str(tmp_path)), "t", judgments)
    manifest = execute(run, JUDGED_CHUNKS_STAGE, judged_chunks)
    assert [(row["query_id"], row["chunk_id"], row["relevance"]) for row in read(run, "judged_chunks")] == [
        ("q1", "cable-0", None),
        ("q1", "cable-1", 3),
        ("q1", "lamp-0", 0),
        ("q1", "lamp-1", 0),
        ("q2", "lamp-0", 2),
        ("q2", "lamp-1", 1),
    ]
    assert manifest.funnel == [FunnelStep("judged_chunks", "judgments", 5, "chunks", 6, {"the query was dropped": 1})]
    assert manifest.facts == {"unknown": 1}


def test_no_judgment_is_no_row(tmp_path: Path) -> None:
    run = given(Run(str(tmp_path)), "t", [])
    execute(run, JUDGED_CHUNKS_STAGE, judged_chunks)
    assert read(run, "judged_chunks") == []
