"""Held-out queries and the positives that they share with training, of a judged run and of a mined one."""

from datetime import date
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.triplets.held_out import HELD_OUT, held_out
from darklode.schemas.label_tables import QRELS, TRAINING_LABELS
from darklode.schemas.tables import CHUNKS, MINED_TABLES, QUERIES, TRIPLETS
from helpers.runs import execute, put, read

MINED_TEST = next(table for table in MINED_TABLES if table.name == "mined_test")


def triplet(query: str, positive: str, text: str, split: str, tenant: str = "t") -> dict[str, Any]:
    named = {"triplet_id": f"{tenant}{query}{positive}", "tenant": tenant, "query_id": query, "query": query}
    texts = {"positive_id": positive, "positive": text, "source": "pooled", "split": split}
    return named | texts | {"negative_ids": [], "negatives": [], "negative_scores": []}


def rows(table: Any, given: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(given, schema=table.schema)


def told(run: Run) -> set[tuple[object, ...]]:
    return {tuple(row.values()) for row in read(run, "held_out")}


def test_a_judged_query_shares_a_positive_or_a_copy_of_one(run: Run) -> None:
    texts = {"c1": "one", "c2": "two", "copy": "one", "c3": "three"}
    placed = {"doc_id": "d", "position": 0, "start": 0, "end": 1, "content_hash": "h", "tenant": "t"}
    put(run, "chunks", rows(CHUNKS, [placed | {"chunk_id": name, "text": text} for name, text in texts.items()]))
    sides = {"train": "train", "val": "validation", "copies": "test", "free": "test", "none": "test"}
    about = {"n_words": 1, "language": "en", "language_score": 1.0, "cluster_id": 0, "n_represented": 1, "tenant": "t"}
    put(run, "queries", rows(QUERIES, [about | {"query_id": q, "text": q, "split": s} for q, s in sides.items()]))
    labels = [("train", "c1", 1), ("val", "c1", 2), ("copies", "copy", 1), ("free", "c2", 1), ("none", "c1", 0)]
    base = {"tenant": "t", "source": "judge"}
    given = [base | {"query_id": q, "chunk_id": c, "relevance": label} for q, c, label in labels]
    put(run, "qrels", rows(QRELS, given))
    put(run, "training_labels", rows(TRAINING_LABELS, [row for row in given if row["query_id"] in ("train", "val")]))
    put(
        run,
        "triplets",
        rows(TRIPLETS, [triplet("train", "c1", "Guide\none", "train"), triplet("val", "c1", "one", "val")]),
    )
    execute(run, HELD_OUT.reading("queries", "qrels", "training_labels", "chunks"), held_out)
    assert told(run) == {
        ("t", "val", "validation", True),
        ("t", "copies", "test", True),
        ("t", "free", "test", False),
    }


def test_a_mined_query_shares_a_document_within_its_tenant(run: Run) -> None:
    given = [
        triplet("a", "d1", "x", "train"),
        triplet("b", "d1", "x", "validation"),
        triplet("c", "d2", "x", "validation"),
        triplet("b", "d1", "x", "validation", "u"),
    ]
    put(run, "triplets", rows(TRIPLETS, given))
    base = {"tenant": "t", "kind": "unseen", "shares_positive": True, "source": "clicks", "date": date(2026, 3, 8)}
    tested = [("b", "d2"), ("e", "d3"), ("e", "d1")]
    put(run, "mined_test", rows(MINED_TEST, [base | {"query_id": q, "query": q, "doc_id": d} for q, d in tested]))
    execute(run, HELD_OUT.reading("mined_test"), held_out)
    assert told(run) == {
        ("t", "b", "validation", True),
        ("t", "c", "validation", False),
        ("u", "b", "validation", False),
        ("t", "b", "test", False),
        ("t", "e", "test", True),
    }


def test_nobody_held_out_no_rows(run: Run) -> None:
    put(run, "triplets", rows(TRIPLETS, [triplet("a", "d1", "x", "train")]))
    put(run, "mined_test", MINED_TEST.empty())
    execute(run, HELD_OUT.reading("mined_test"), held_out)
    assert told(run) == set()
