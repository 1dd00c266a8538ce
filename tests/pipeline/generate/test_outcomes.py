"""What became of each query, and how like real ones those are that stay."""

from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.generate.outcomes import OUTCOME_STAGE, write_outcome
from darklode.pipeline.generate.realism import COVERAGE_MEASURE
from darklode.pipeline.generate.round_trip import ROUND_TRIP_STAGE, round_trip
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

    real = {"tenant": "t", "text": "how", "split": "train"}
    given("real_queries", [real | {"query_id": one, "group": one} for one in ("one", "other")])
    given("written_queries", [ONE | {"query_id": one, "chunk_id": f"of {one}"} for one in WRITTEN])
    given(
        "filtered_queries",
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
    execute(run, ROUND_TRIP_STAGE, lambda tables, output: round_trip(tables, output, depth=20))
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
    execute(
        run, OUTCOME_STAGE, lambda tables, output: write_outcome(tables, output, source="ict", generator_id="g", seed=1)
    )
    return run


def test_each_query_has_an_end_and_a_reason(run: Run) -> None:
    found = {
        row["query_id"]: (row["kept"], row["round_trip_rank"], row["reason"]) for row in read(run, "generated_queries")
    }
    assert found == {
        "sieved": (False, None, "unreadable"),
        "lost": (False, 30, "its own text is not retrieved"),
        "refused": (False, 5, "judged not relevant"),
        "unlikely": (False, 5, "uncertain by labels.training_precision"),
        "silent": (False, 5, "unreadable verdict"),
        "kept": (True, 5, None),
    }


def test_what_is_kept_is_held_against_real_queries(run: Run) -> None:
    assert [row["covered"] for row in read(run, "generation_clusters")] == [True, True]
    check = {row["measure"]: (row["real"], row["generated"]) for row in read(run, "generation_check")}
    assert check["queries"] == (2.0, 1.0)
    assert check[COVERAGE_MEASURE] == (1.0, 1.0)


def test_what_the_sieve_let_pass_and_is_not_kept_is_a_reject(run: Run) -> None:
    found = {row["id"]: row["reason"] for row in read(run, "rejects") if row["stage"] == OUTCOME_STAGE.name}
    assert found == {
        "lost": "its own text is not retrieved",
        "refused": "judged not relevant",
        "unlikely": "uncertain by labels.training_precision",
        "silent": "unreadable verdict",
    }
