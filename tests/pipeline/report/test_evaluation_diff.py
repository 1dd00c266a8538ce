"""Two evaluated runs: means over the shared test queries, paired differences, and changed labels."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.report.evaluation_diff import compare_evaluations
from helpers.runs import written

CHANCE = ResamplingSettings(resamples=200, flips=1000)
QUERIES = [f"q{n:02}" for n in range(12)]
OLD = {"bm25": [n / 20 for n in range(12)], "gone": [0.5] * 12}
NEW = {"bm25": [n / 20 + 0.1 + n % 3 / 50 for n in range(12)], "added": [0.25] * 12}


def evaluated(
    folder: Path, systems: dict[str, list[float]], *, queries: list[str] = QUERIES, relevance: int = 1
) -> Tables:
    run = Run(str(folder))
    ids = [{"tenant": "t", "query_id": query} for query in queries]
    groups = [key | {"text": key["query_id"], "group": str(n // 2)} for n, key in enumerate(ids)]
    written(run, "test_queries", groups)
    written(run, "test_labels", [key | {"text_id": "c", "relevance": relevance} for key in ids])
    values = [
        key | {"system": system, "measure": measure, "value": value}
        for system, numbers in systems.items()
        for measure in ("nDCG@10", "R@10")
        for key, value in zip(ids, numbers, strict=True)
    ]
    written(run, "evaluation_queries", values)
    means = [
        {"system": system, "measure": measure, "part": "counted"}
        for system in systems
        for measure in ("nDCG@10", "R@10")
    ]
    written(run, "evaluation", means)
    return all_tables(run)


def test_systems_of_both_runs_are_compared_by_query(tmp_path: Path) -> None:
    old, new = evaluated(tmp_path / "old", OLD), evaluated(tmp_path / "new", NEW)
    diff = compare_evaluations(old, new, CHANCE)
    rows = {row["system"]: row for row in diff.rows.to_pylist()}
    assert (diff.queries, diff.relabelled, list(rows)) == (12, 0, ["bm25", "gone", "added"])
    first, other = (np.array(values["bm25"])[:, None] for values in (NEW, OLD))
    expected = compare_paired(first, other, np.arange(12) // 2, CHANCE).row(0)
    assert rows["bm25"]["before"] == pytest.approx(np.mean(OLD["bm25"]))
    assert rows["bm25"]["after"] == pytest.approx(np.mean(NEW["bm25"]))
    assert {name: rows["bm25"][name] for name in ("difference", "low", "high")} == pytest.approx(
        {name: expected[name] for name in ("difference", "low", "high")}
    )
    assert rows["bm25"]["p_holm"] == pytest.approx(expected["p"])
    assert (rows["gone"]["before"], rows["gone"]["after"], rows["gone"]["difference"]) == (0.5, None, None)
    assert (rows["added"]["before"], rows["added"]["after"], rows["added"]["p_holm"]) == (None, 0.25, None)


def test_all_measures_are_corrected_together(tmp_path: Path) -> None:
    old, new = evaluated(tmp_path / "old", OLD), evaluated(tmp_path / "new", NEW)
    (first,) = [row for row in compare_evaluations(old, new, CHANCE).rows.to_pylist() if row["system"] == "bm25"]
    rows = [row for row in compare_evaluations(old, new, CHANCE, 5).rows.to_pylist() if row["system"] == "bm25"]
    assert [row["measure"] for row in rows] == ["nDCG@10", "R@10"]
    assert [row["p_holm"] for row in rows] == pytest.approx([2 * first["p_holm"]] * 2)


def test_only_shared_queries_count_and_changed_labels_are_counted(tmp_path: Path) -> None:
    old = evaluated(tmp_path / "old", OLD)
    fewer = {system: values[:4] for system, values in NEW.items()}
    new = evaluated(tmp_path / "new", fewer, queries=[*QUERIES[:3], "other"], relevance=2)
    diff = compare_evaluations(old, new, CHANCE)
    assert (diff.queries, diff.relabelled) == (3, 3)
    row = next(row for row in diff.rows.to_pylist() if row["system"] == "bm25")
    assert (row["before"], row["queries"]) == (pytest.approx(np.mean(OLD["bm25"][:3])), 3)


def test_an_uncertain_label_that_came_or_went_counts_as_changed(tmp_path: Path) -> None:
    old, new = evaluated(tmp_path / "old", OLD), evaluated(tmp_path / "new", NEW)
    labels = new.read("test_labels").to_pylist()
    uncertain = {"tenant": "t", "query_id": QUERIES[0], "text_id": "d", "relevance": None}
    written(Run(str(tmp_path / "new")), "test_labels", [*labels, uncertain])
    assert compare_evaluations(old, all_tables(Run(str(tmp_path / "new"))), CHANCE).relabelled == 1


def test_runs_without_a_shared_query(tmp_path: Path) -> None:
    old = evaluated(tmp_path / "old", OLD)
    new = evaluated(tmp_path / "new", NEW, queries=[f"other {query}" for query in QUERIES])
    diff = compare_evaluations(old, new, CHANCE)
    assert (diff.rows.num_rows, diff.queries, diff.relabelled) == (0, 0, 0)
