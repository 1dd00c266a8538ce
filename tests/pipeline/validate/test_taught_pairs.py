from datetime import UTC, datetime

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.taught_pairs import taught_pairs
from helpers.judge_tables import chunks, queries
from helpers.runs import put, written

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
KEY = {"tenant": "a", "query_id": "q1"}


def small(run: Run) -> None:
    put(run, "queries", queries("a", {"q1": "how"}))
    put(run, "chunks", chunks("a", {name: f"text {name}" for name in ("c1", "c2", "c3", "c4")}))
    verdict = KEY | {"chunk_id": "c1", "judge_id": "j", "relevant": True, "probability": 0.75}
    written(run, "verdicts", [verdict])


def review(chunk: str, reviewer: str, relevance: int | None, rationale: str | None = None, *, shown: bool = False):  # type: ignore[no-untyped-def]
    answer = {"reviewer": reviewer, "relevance": relevance, "rationale": rationale, "judge_shown": shown}
    return KEY | {"chunk_id": chunk, "answered_at": WHEN} | answer


def test_majorities_with_texts_verdicts_and_the_first_reason(run: Run) -> None:
    small(run)
    answers = [
        review("c1", "ann", 0, " "),
        review("c1", "bob", 0, "off topic"),
        review("c1", "eve", 1, "late"),
        review("c2", "ann", 2),
        review("c3", "ann", None, "skipped"),
        review("c4", "ann", 1, shown=True),
    ]
    written(run, "reviews", answers)
    pairs = taught_pairs(run.tables())
    assert [(pair.chunk_id, pair.relevance, pair.relevant, pair.probability, pair.reason) for pair in pairs] == [
        ("c1", 0, True, 0.75, "off topic"),
        ("c2", 2, None, None, ""),
    ]
    assert (pairs[0].query, pairs[0].chunk) == ("how", "text c1")


def test_given_labels_count_without_reviews(run: Run) -> None:
    small(run)
    assert taught_pairs(run.tables()) == []
    written(run, "human_labels", [KEY | {"chunk_id": "c2", "relevance": 1}])
    assert [(pair.chunk_id, pair.relevance, pair.reason) for pair in taught_pairs(run.tables())] == [("c2", 1, "")]
