"""Runs in one form: a mined run gives queries, labels and texts as a build does."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.sources import TrainingSource, resolve_tenant
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put, read

DAY = date(2026, 3, 1)
QUERIES = {
    "q1": ("reset badge", "train"),
    "q2": ("paint wall", "train"),
    "q3": ("cut glass", "validation"),
    "q4": ("bend pipe", "test"),
    "q5": ("badge reset", "test"),
}
ANSWERS = {"q1": "d1", "q2": "d2", "q3": "d3", "q4": "d2", "q5": "d5"}
SKIPPED = {"q1": "d2", "q2": "d3", "q3": "d1"}


@pytest.fixture
def mined(tmp_path: Path) -> TrainingSource:
    """q5 is near to q1; q4 shares its document with q2, and d3 answers q2 by another source although it was skipped."""
    run = Run(str(tmp_path / "mined"))
    documents = {"tenant": ["t"] * 5, "doc_id": [f"d{n}" for n in range(1, 6)], "text": [f"{n} text" for n in range(5)]}
    documents |= {"source": ["x"] * 5, "content_hash": ["x"] * 5, "title": [None, "one", None, None, None]}
    known = [(query, ANSWERS[query], "click_one_hop") for query in ("q1", "q2", "q3")] + [
        ("q2", "d3", "click_multi_hop")
    ]
    triplets = [
        {
            "tenant": "t", "triplet_id": f"{query}{found}", "query_id": query, "query": QUERIES[query][0],
            "split": QUERIES[query][1], "positive_id": found, "positive": "", "source": source,
            "negative_ids": [SKIPPED[query]], "negatives": [""], "negative_scores": [None], "date": DAY,
        }
        for query, found, source in known
    ]  # fmt: skip
    held = [
        {
            "tenant": "t", "query_id": query, "query": QUERIES[query][0], "kind": "unseen", "shares_positive": False,
            "doc_id": ANSWERS[query], "source": "click_one_hop", "date": DAY,
        }
        for query in ("q4", "q5")
    ]  # fmt: skip
    clusters = [
        {"tenant": "t", "query_id": query, "date": DAY, "cluster_id": f"c-{query}", "split": split}
        for query, (_, split) in QUERIES.items()
    ]
    put(run, "documents", TABLES["documents"].rows(documents))
    for name, rows in (("triplets", triplets), ("mined_test", held), ("query_clusters", clusters)):
        put(run, name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))
    return TrainingSource(run, 0, mined=True, text_characters=5)


def gathered(out: Path, source: TrainingSource, **given: object) -> Run:
    run, settings = Run(str(out)), AdaptSettings.model_validate(given)
    execute(run, PAIRS_STAGE, lambda _tables, output: adaptation_pairs([source], output, settings))
    return run


def test_a_mined_run_gives_sides_clusters_and_what_is_shared(mined: TrainingSource, tmp_path: Path) -> None:
    rows = {row["query_id"]: row for row in read(gathered(tmp_path / "out", mined), "adaptation_queries")}
    assert {name: (row["split"], row["group"], row["shares_positive"]) for name, row in rows.items()} == {
        "q2": ("train", "c-q2", True),
        "q3": ("validation", "c-q3", True),
        "q4": ("test", "c-q4", True),
        "q5": ("test", "c-q5", False),
    }
    assert {row["kind"] for row in rows.values() if row["split"] == "test"} == {"unseen"}


def test_what_was_skipped_is_a_negative_unless_another_source_has_it(mined: TrainingSource, tmp_path: Path) -> None:
    rows = read(gathered(tmp_path / "out", mined), "adaptation_labels")
    found = {(row["query_id"], row["text_id"]): (row["relevance"], row["learned"]) for row in rows}
    assert found == {
        ("q2", "d2"): (1, True),
        ("q2", "d3"): (1, True),
        ("q3", "d1"): (0, False),
        ("q3", "d3"): (1, False),
        ("q4", "d2"): (1, False),
        ("q5", "d5"): (1, False),
    }


def test_one_source_is_learned_from_and_the_others_stay_known(mined: TrainingSource, tmp_path: Path) -> None:
    rows = read(gathered(tmp_path / "out", mined, sources=["click_multi_hop"]), "adaptation_labels")
    assert {row["text_id"] for row in rows if row["query_id"] == "q2" and row["relevance"]} == {"d2", "d3"}
    assert [row["text_id"] for row in rows if row["learned"]] == ["d3"]


def test_documents_are_cut_as_triplets_show_them(mined: TrainingSource) -> None:
    (rows,) = mined.texts("t")
    assert rows["text"].to_pylist() == [f"{n} tex" for n in range(5)]
    assert len(set(rows["content_hash"].to_pylist())) == 5


def test_an_adapter_is_one_tenants(mined: TrainingSource) -> None:
    assert resolve_tenant([mined], None) == resolve_tenant([mined], "t") == "t"
