"""A build with judged lists to plan by: two clusters of queries with labels, one without, and one that is disputed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.laws.fit_stage import CHANCE_LOSSES, RESAMPLES
from darklode.pipeline.laws.points import LawKey, groups, points_of
from darklode.pipeline.laws.verdict import LawResult, find_law
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from darklode.schemas.tables import TABLES
from helpers.runs import put
from helpers.training_labels import put_training_labels

TENANT = "acme"
TOPICS = ("password reset email", "invoice payment overdue", "kubernetes cluster upgrade", "holiday calendar import")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
SEARCHED, JUDGED, POSITIVES = 8, 4, 2
"""Ranks of a list, those that are judged, and the first of them that are relevant."""


def built(folder: Path) -> Run:
    """Six queries of each of the first two topics, the last of each held out; lists of the second differ."""
    run, rows = Run(str(folder)), dict[str, list[dict[str, Any]]]()

    def add(name: str, /, **row: object) -> None:
        rows.setdefault(name, []).append({"tenant": TENANT} | row)

    for topic, words in enumerate(TOPICS[:2]):
        for number in range(6):
            name = f"q{topic}{number}"
            asked = {"query_id": name, "text": f"{words} {COLOURS[number]}", "n_words": 4, "language": "en"}
            asked |= {"language_score": 1.0, "cluster_id": topic, "n_represented": 1}
            add("queries", **asked, split="test" if number == 5 else "train")
            for retriever in ("bm25", "dense"):
                for rank in range(1, SEARCHED + 1):
                    chunk = f"{name} {rank} {retriever if topic else ''}"
                    add("rankings", query_id=name, retriever=retriever, rank=rank, chunk_id=chunk, score=1.0)
                    if rank <= JUDGED and (topic or retriever == "bm25"):
                        _judge(add, name, chunk, rank)
    for number, (words, count) in enumerate(zip(TOPICS, (1, 1, 9, 5), strict=True)):
        text = f"{words} tomorrow"
        add("raw_queries", query_id=f"left{number}", text=text, timestamp=None, count=count)
        lost = {"id": f"left{number}", "stage": "clean.diversity", "reason": "cluster sampling", "payload": text}
        add("rejects", table="queries", **lost)
    add("raw_queries", query_id="copied", text="password reset email red!", timestamp=None, count=99)
    add("rejects", table="queries", id="copied", stage="clean.diversity", reason="cluster sampling", payload="")
    for table in ("queries", "rankings", "pool", "verdicts", "qrels", "raw_queries", "rejects", "panel_verdicts"):
        put(run, table, pa.Table.from_pylist(rows.get(table, []), schema=TABLES[table].schema))
    put_training_labels(run)
    return run


def _judge(add: Any, name: str, chunk: str, rank: int) -> None:
    right = rank <= POSITIVES
    add("pool", query_id=name, chunk_id=chunk, retrievers=["bm25"], best_rank=rank, fused_score=1.0)
    said = {"relevant": right, "probability": 1.0 if right else 0.0, "prompt_tokens": 100, "completion_tokens": 10}
    add("verdicts", query_id=name, chunk_id=chunk, judge_id="j", **said)
    add("qrels", query_id=name, chunk_id=chunk, relevance=int(right), source="judge")


def found_of(rows: pa.Table) -> dict[LawKey, LawResult]:
    """What is found of points, by law."""
    return {key: find_law(points_of(rows, key), CHANCE_LOSSES.get(key.measure), RESAMPLES, 0) for key in groups(rows)}


def reviewed(run: Run, seconds: int = 30) -> None:
    """Two reviewers answer six pairs each, a pair every so many seconds, with one long pause."""
    journal, at = AnswerJournal(run.store), datetime(2026, 1, 1, tzinfo=UTC)
    for who in ("ada", "bo"):
        for number in range(6):
            at += timedelta(seconds=seconds if number != 3 else 5000)
            journal.append(ReviewAnswer(TENANT, f"q0{number}", "c", who, 1, at))
