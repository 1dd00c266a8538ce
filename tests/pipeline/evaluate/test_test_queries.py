"""The test queries of builds and of logs, their labels and their texts."""

import hashlib
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.evaluate.test_queries import BUILD_STAGE, LOG_STAGE, of_a_build, of_a_log
from darklode.pipeline.triplets.held_out import HELD_OUT, held_out
from darklode.schemas.tables import TABLES
from helpers.evaluated import TENANTS, TOPICS, build_of
from helpers.runs import documents, execute, put, read


def test_a_build_gives_its_test_split_with_labels_and_shared_positives(tmp_path: Path) -> None:
    run = build_of(tmp_path / "run")
    rows = read(run, "test_queries")
    assert [(row["tenant"], row["query_id"]) for row in rows] == sorted(
        (tenant, f"test {topic}") for tenant in TENANTS for topic in TOPICS[:7]
    )
    shared = {str(row["query_id"]) for row in rows if row["shares_positive"]}
    assert shared == {f"test {topic}" for topic in TOPICS[:2]}
    assert {row["query_id"]: row["group"] for row in rows}["test login"] == "2"
    labels = read(run, "test_labels")
    assert len(labels) == 2 * 2 * 7  # those not relevant, too: they are judged
    assert not read(run, "test_texts")
    (step,) = run.manifests()["test_queries"].funnel
    assert (step.rows_in, step.rows_out, step.dropped) == (16, 14, {"no positive found": 2})


def test_a_build_without_positives_in_its_test_split_is_refused(tmp_path: Path) -> None:
    run = build_of(tmp_path / "run")
    put(run, "qrels", TABLES["qrels"].empty())
    execute(run, HELD_OUT.reading("queries", "qrels", "training_labels", "chunks"), held_out)
    with pytest.raises(ArtifactError, match="no test query with a positive"):
        execute(run, BUILD_STAGE, of_a_build)


def log_run(folder: Path) -> Run:
    run = Run(str(folder))
    put(
        run,
        "documents",
        documents(doc_id=["b", "a", "c"], text=["b" * 9, "long text of a", "outside"], title=["B", None, "C"]),
    )
    pairs = [("q1", "a", "click_one_hop"), ("q1", "b", "relevance_one_hop"), ("q2", "b", "click_one_hop")]
    given = {"kind": "unseen", "shares_positive": False, "date": date(2026, 3, 9), "tenant": "default"}
    schema = TABLES["mined_test"].schema
    rows = [
        given | {"query_id": q, "query": f"text of {q}", "doc_id": doc, "source": source} for q, doc, source in pairs
    ]
    known = [{name: row[name] for name in schema.names} for row in rows]
    put(run, "mined_test", pa.Table.from_pylist(known, schema=schema))
    clusters = [
        {"tenant": "default", "query_id": q, "date": date(2026, 3, 9), "cluster_id": "q0", "side": "test"}
        for q in ("q1", "q2")
    ]
    known_clusters = [{name: row.get(name) for name in TABLES["query_clusters"].schema.names} for row in clusters]
    put(run, "query_clusters", pa.Table.from_pylist(known_clusters, schema=TABLES["query_clusters"].schema))
    pool = [{"tenant": "default", "doc_id": doc, "paired": True} for doc in ("a", "b")]
    put(run, "mined_test_pool", pa.Table.from_pylist(pool, schema=TABLES["mined_test_pool"].schema))
    return run


def test_a_log_gives_the_later_periods_queries_and_the_pools_documents_as_triplets_show_them(tmp_path: Path) -> None:
    run = log_run(tmp_path / "run")
    execute(run, LOG_STAGE, lambda tables, output: of_a_log(tables, output, text_characters=4))
    rows = [tuple(row.values()) for row in read(run, "test_queries")]
    assert rows == [
        ("default", "q1", "text of q1", "q0", "unseen", False),
        ("default", "q2", "text of q2", "q0", "unseen", False),
    ]
    labels = [(row["query_id"], row["text_id"], row["relevance"]) for row in read(run, "test_labels")]
    assert labels == [("q1", "a", 1), ("q1", "b", 1), ("q2", "b", 1)]
    texts = read(run, "test_texts")
    assert [(row["chunk_id"], row["title"], row["text"]) for row in texts] == [("a", None, "long"), ("b", "B", "bbbb")]
    assert texts[1]["content_hash"] == hashlib.sha256(b"B\0\0bbbb").hexdigest()[:32]


def test_a_log_without_a_later_period_is_refused(tmp_path: Path) -> None:
    run = log_run(tmp_path / "run")
    put(run, "mined_test", TABLES["mined_test"].empty())
    with pytest.raises(ArtifactError, match="--test-from"):
        execute(run, LOG_STAGE, lambda tables, output: of_a_log(tables, output, text_characters=4))
