"""The walk from a first build over people's labels to a judge that learned from them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.report.caveats import favored_retrievers
from darklode.schemas.settings import Settings
from helpers.commands import build_without_prefect, mine_without_prefect
from helpers.subjects import write_subjects

LABELS = """
    SELECT query_id, chunk_id, CAST(q.text LIKE '%' || replace(c.doc_id, '.md', '') AS INT) AS relevance
    FROM pool p JOIN queries q USING (query_id) JOIN chunks c USING (chunk_id) ORDER BY ALL
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_subjects(tmp_path_factory.mktemp("source"))


def chosen(*assignments: str) -> Settings:
    return load_settings(
        assignments=["clean.keep_all=true", "pool.retrievers=[bm25, ppmi]", "pool.depth=12", *assignments]
    )


def learned(file: Path, *assignments: str) -> Settings:
    return chosen("judge.kind=learned", f"judge.human_labels={json.dumps(str(file))}", *assignments)


def build(out: Path, source: Path, settings: Settings) -> list[str]:
    return build_without_prefect(out, source / "docs", source / "queries.txt", settings)


def rows(out: Path, question: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = all_tables(Run(str(out))).sql(question).to_pylist()
    return found


def write(file: Path, labels: Sequence[dict[str, Any]]) -> Path:
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, ["query_id", "chunk_id", "relevance"])
        writer.writeheader()
        writer.writerows(labels)
    return file


@pytest.fixture(scope="module")
def first(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("first") / "run"
    build(out, source, chosen())
    return out


@pytest.fixture(scope="module")
def labels(first: Path) -> list[dict[str, Any]]:
    return rows(first, LABELS)


@pytest.mark.slow
def test_labels_of_a_first_build_teach_a_judge_of_the_same_run(
    first: Path, source: Path, labels: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = write(tmp_path / "labels.csv", labels)
    out = tmp_path / "run"
    build(out, source, learned(file))
    (compared,) = rows(out, "FROM calibration")
    assert compared["kappa"] > 0.9, "on queries whose labels it did not see"
    wrong = rows(
        out, f"SELECT * FROM verdicts JOIN ({LABELS}) USING (query_id, chunk_id) WHERE relevant <> (relevance > 0)"
    )
    assert len(wrong) <= 2
    (judge_id,) = {row["judge_id"] for row in rows(out, "FROM verdicts")}
    assert judge_id.rpartition(":")[0] == compared["judge_id"].rpartition(":")[0]
    assert judge_id.startswith("learned-2:")
    assert build(out, source, learned(file)) == []
    assert "favour these retrievers" in favored_retrievers(all_tables(Run(str(out))), learned(file))

    twin = tmp_path / "twin"
    build(twin, source, learned(file))
    assert rows(twin, "FROM verdicts ORDER BY ALL") == rows(out, "FROM verdicts ORDER BY ALL")

    write(file, [row | {"relevance": 1 - row["relevance"]} for row in labels])
    assert {"calibrate", "judge"} <= set(build(out, source, learned(file)))
    assert rows(out, "FROM verdicts")[0]["judge_id"] != judge_id


@pytest.mark.slow
def test_human_grades_that_follow_the_scores_become_grades_of_the_judge(
    first: Path, source: Path, tmp_path: Path
) -> None:
    grades = LABELS.replace("AS relevance", "* 2 AS answers").removesuffix("ORDER BY ALL")
    graded = f"SELECT query_id, chunk_id, greatest(answers, CAST(best_rank <= 2 AS INT)) AS relevance FROM ({grades})"
    labels = rows(first, f"{graded} JOIN pool USING (query_id, chunk_id) ORDER BY ALL")
    file, out = write(tmp_path / "labels.csv", labels), tmp_path / "run"
    build(out, source, learned(file))
    (compared,) = rows(out, "FROM calibration")
    assert compared["grades"] == [1, 2]
    assert compared["grade_kappa"] > 0.5, "on queries whose labels it did not see"
    (threshold,) = compared["grade_thresholds"]
    verdicts = rows(out, "FROM verdicts")
    expected = [row["relevant"] + (row["relevant"] and row["probability"] >= threshold) for row in verdicts]
    assert [row["grade"] for row in verdicts] == expected
    assert {row["relevance"] for row in rows(out, "FROM qrels")} == {0, 1, 2}
    assert build(out, source, learned(file)) == []
    write(file, [row | {"relevance": min(row["relevance"], 1)} for row in labels])
    assert {"calibrate", "judge", "label"} <= set(build(out, source, learned(file)))
    assert {row["grade"] for row in rows(out, "FROM verdicts")} == {None}


@pytest.mark.slow
def test_it_judges_in_rounds_too(first: Path, source: Path, labels: list[dict[str, Any]], tmp_path: Path) -> None:
    file = write(tmp_path / "labels.csv", labels)
    build(tmp_path / "run", source, learned(file, "judge.strategy=adaptive"))
    (compared,) = rows(tmp_path / "run", "FROM calibration")
    assert compared["threshold"] == compared["fitted_threshold"]
    assert rows(tmp_path / "run", "FROM stopping")


def test_too_few_labels_are_a_clear_error(source: Path, labels: list[dict[str, Any]], tmp_path: Path) -> None:
    file = write(tmp_path / "labels.csv", labels[:99])
    with pytest.raises(
        SettingsError,
        match=r"is untrained: provide at least 100 human labels of the pool, 10 of them relevant and 10 not",
    ):
        build(tmp_path / "run", source, learned(file))


def test_with_a_panel_it_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"kind learned cannot have a judge\.panel"):
        learned(tmp_path / "labels.csv", "judge.panel=[{kind: embedded}]", "judge.vote=mean")


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("judge.kind=learned", "kind learned needs judge.human_labels"),
        ("judge.panel=[{kind: learned}]", "cannot be a panel member"),
    ],
)
def test_without_a_teacher_it_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        chosen(assignment)


@pytest.mark.slow
def test_a_mined_log_has_no_lists_to_learn_from(tmp_path: Path) -> None:
    file = write(tmp_path / "labels.csv", [])
    with pytest.raises(SettingsError, match="a mined log does not have"):
        mine_without_prefect(tmp_path / "run", learned(file))
