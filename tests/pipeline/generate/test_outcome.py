"""What became of each query, and how like real ones those are that stay."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.generate.outcome import OUTCOME, TOLD_APART, compared, outcome, told_apart
from darklode.pipeline.generate.round_trip import ROUND_TRIP, round_trip
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read

WRITTEN = ("sieved", "lost", "refused", "unlikely", "silent", "kept")
ONE = {"tenant": "t", "text": "how", "self_contained": None, "error": None}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Six queries, each with another end."""
    run = Run(str(tmp_path))

    def given(name: str, rows: list[dict[str, object]]) -> None:
        put(run, name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))

    given("real_queries", [])
    given("written_queries", [ONE | {"query_id": one, "chunk_id": f"of {one}"} for one in WRITTEN])
    given(
        "sieved_queries",
        [{"tenant": "t", "query_id": one, "reason": "unreadable" if one == "sieved" else None} for one in WRITTEN],
    )
    asked = [one for one in WRITTEN if one != "sieved"]
    query = {"tenant": "t", "text": "how", "n_words": 1, "language": "en", "language_score": 1.0, "cluster_id": 0}
    given("queries", [query | {"query_id": one, "n_represented": 1, "split": "train"} for one in asked])
    ranked = [
        {"tenant": "t", "query_id": one, "retriever": name, "rank": rank, "chunk_id": f"of {one}", "score": 1.0}
        for one in asked
        for name, rank in (("bm25", 40), ("dense", 5 if one != "lost" else 30))
    ]
    given("rankings", ranked)
    execute(run, ROUND_TRIP, lambda tables, output: round_trip(tables, output, depth=20))
    said = {"refused": False, "unlikely": True, "silent": None, "kept": True}
    verdict = {"tenant": "t", "judge_id": "j"}
    given(
        "verdicts",
        [verdict | {"query_id": one, "chunk_id": f"of {one}", "relevant": what} for one, what in said.items()],
    )
    triplet = {
        "tenant": "t", "triplet_id": "1", "query_id": "kept", "query": "how", "positive_id": "of kept", "positive": "",
        "negative_ids": [], "negatives": [], "negative_scores": [], "source": "generated", "split": "train",
    }  # fmt: skip
    given("triplets", [triplet])
    execute(run, OUTCOME, lambda tables, output: outcome(tables, output, source="ict", generator_id="g", seed=1))
    return run


def test_each_query_has_an_end_and_a_reason(run: Run) -> None:
    found = {
        row["query_id"]: (row["kept"], row["round_trip_rank"], row["reason"]) for row in read(run, "generated_queries")
    }
    assert found == {
        "sieved": (False, None, "unreadable"),
        "lost": (False, 30, "its own text is not found"),
        "refused": (False, 5, "judged not relevant"),
        "unlikely": (False, 5, "less likely than triplets.min_probability"),
        "silent": (False, 5, "the judge could not be read"),
        "kept": (True, 5, None),
    }


ALIKE = [f"how to {verb} the {thing}" for verb in ("reset", "renew", "open", "close", "find") for thing in "abcdefgh"]


def test_what_is_alike_cannot_be_told_apart() -> None:
    halves = [[one for place, one in enumerate(ALIKE) if (place + place // 8) % 2 == odd] for odd in (0, 1)]
    same = told_apart(*halves, 1)
    other = told_apart(halves[0], [f"please {one} now" for one in halves[1]], 1)
    assert same is not None
    assert other is not None
    assert same < 0.7 < 0.95 < other
    assert told_apart(ALIKE[:5], ALIKE, 1) is None, "too few to say"


def test_lengths_and_questions_are_compared() -> None:
    rows = compared(pa.chunked_array([["a b", "how a"]]), pa.chunked_array([["a b c", "a b c d?"]]), 1)
    found = {row["measure"]: (row["real"], row["generated"]) for row in rows}
    assert found["queries"] == (2.0, 2.0)
    assert found["words, percentile 50"] == (2.0, 3.5)
    assert found["share that asks (how, what, …, ?)"] == (0.5, 0.5)
    assert found[TOLD_APART] == (None, None)
    nothing = compared(pa.chunked_array([["a b"]]), pa.chunked_array([pa.array([], pa.string())]), 1)
    assert nothing[1]["generated"] is None
