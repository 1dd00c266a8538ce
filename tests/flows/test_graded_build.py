"""Grades of a language-model judge, from the server's reply to every table, measure, export and page."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs.evaluate_systems import steps
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.browse.catalogue import open_catalogue
from darklode.pipeline.export.kinds.beir import beir
from darklode.pipeline.export.kinds.msmarco import msmarco
from darklode.pipeline.export.kinds.mteb import mteb
from darklode.pipeline.export.kinds.trec import trec
from darklode.pipeline.report.card import card
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import build_without_prefect
from helpers.fake_chat import FakeChat
from helpers.subjects import write_subjects

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_subjects(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def server() -> Iterator[FakeChat]:
    with FakeChat(labels=("3", "2", "1", "0")) as server:
        yield server


def graded_settings(server: FakeChat, cache: Path, *assignments: str) -> Settings:
    chosen = {"kind": "llm", "model": server.model, "base_url": server.url, "prompt": "graded", "retry_timeout": 5}
    return load_settings(
        assignments=[
            "clean.keep_all=true",
            "pool.retrievers=[bm25, ppmi]",
            "pool.depth=12",
            "split.test_share=0.4",
            "labels.test_precision=0",  # the server's probabilities are by chance
            "labels.training_precision=0",
            "evaluate.n_resamples=20",
            "evaluate.permutations=100",
            f"cache.root={cache}",
            *(f"judge.{name}={value}" for name, value in chosen.items()),
            *assignments,
        ]
    )


def build(out: Path, source: Path, settings: Settings) -> Run:
    docs, queries = source / "docs", source / "queries.txt"
    build_without_prefect(out, docs, queries, settings)
    run = Run(str(out))
    write_run(run, BenchmarkInputs(docs=str(docs), queries=str(queries)), settings)
    return run


@pytest.fixture(scope="module")
def graded(server: FakeChat, source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Settings]:
    folder = tmp_path_factory.mktemp("graded")
    settings = graded_settings(server, folder / "cache")
    return build(folder / "run", source, settings), settings


def labels_of(run: Run) -> dict[tuple[str, str], int]:
    rows = run.tables("qrels").read("qrels").to_pylist()
    return {(row["query_id"], row["chunk_id"]): row["relevance"] for row in rows}


def split_of(run: Run) -> dict[str, str]:
    return {row["query_id"]: row["split"] for row in run.tables("queries").read("queries").to_pylist()}


def test_grades_of_the_replies_are_the_labels_from_the_first_relevant_one(graded: tuple[Run, Settings]) -> None:
    run, _ = graded
    verdicts = run.tables("verdicts").read("verdicts").to_pylist()
    assert {row["grade"] for row in verdicts} == {0, 1, 2, 3}
    assert {(row["grade"], row["relevant"]) for row in verdicts} == {(0, False), (1, False), (2, True), (3, True)}
    expected = {(row["query_id"], row["chunk_id"]): row["grade"] if row["grade"] > 1 else 0 for row in verdicts}
    assert labels_of(run) == expected
    likely = [row for row in verdicts if row["expected_grade"] is not None]
    assert all(0 <= row["expected_grade"] <= 3 for row in likely)


def test_ndcg_takes_grades_as_gains_and_recall_counts_every_relevant_one(graded: tuple[Run, Settings]) -> None:
    run, settings = graded
    for step in steps(settings):
        if step.enabled:
            run.execute(step.plan(run), step.execute)
    tables = all_tables(run)
    lists: dict[str, list[str]] = defaultdict(list)
    for row in tables.sql("FROM test_rankings WHERE system = 'bm25' ORDER BY query_id, rank").to_pylist():
        lists[row["query_id"]].append(row["text_id"])
    found = {
        (row["query_id"], row["measure"]): row["value"]
        for row in tables.sql("FROM evaluation_queries WHERE system = 'bm25'").to_pylist()
    }
    labels: dict[str, dict[str, int]] = defaultdict(dict)
    for (query, chunk), relevance in labels_of(run).items():
        labels[query][chunk] = relevance

    def gain(grades: list[int]) -> float:
        return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades[:10]))

    for query, ranking in lists.items():
        own = labels[query]
        grades = [own.get(text, 0) for text in ranking]
        assert found[query, "nDCG@10"] == pytest.approx(gain(grades) / gain(sorted(own.values(), reverse=True)))
        relevant = [grade for grade in own.values() if grade > 0]
        assert found[query, "R@10"] == pytest.approx(sum(grade > 0 for grade in grades[:10]) / len(relevant))
    assert any({2, 3} <= set(own.values()) for query, own in labels.items() if query in lists)


def test_training_sources_and_exports_have_the_grades(graded: tuple[Run, Settings], tmp_path: Path) -> None:
    run, _ = graded
    labels, splits = labels_of(run), split_of(run)
    rows = TrainingSource(run, 0, mined=False, text_characters=0).labels("default").to_pylist()
    plausible = {(row["query_id"], row["text_id"]) for row in rows if row["relevance"] is None}
    assert {labels[pair] for pair in plausible} == {0}
    certain = {(row["query_id"], row["text_id"]): row["relevance"] for row in rows if row["relevance"] is not None}
    assert certain == {pair: grade for pair, grade in labels.items() if pair not in plausible}

    tables = run.tables("chunks", "queries", "qrels", "rankings", "triplets")
    for kind in (trec, beir, mteb, msmarco):
        (tmp_path / kind.__name__).mkdir()
        kind(tables, tmp_path / kind.__name__)
    test = {pair: relevance for pair, relevance in labels.items() if splits[pair[0]] == "test"}
    positives = {pair: relevance for pair, relevance in test.items() if relevance}
    lines = [line.split() for line in (tmp_path / "trec" / "qrels.test.txt").read_text().splitlines()]
    assert {(query, chunk): int(grade) for query, _, chunk, grade in lines} == test
    _, *lines = [line.split() for line in (tmp_path / "beir" / "qrels" / "test.tsv").read_text().splitlines()]
    assert {(query, chunk): int(grade) for query, chunk, grade in lines} == positives
    lines = [line.split() for line in (tmp_path / "msmarco" / "qrels.test.tsv").read_text().splitlines()]
    assert {(query, chunk): int(grade) for query, _, chunk, grade in lines} == positives
    rows = pq.read_table(tmp_path / "mteb" / "default" / "test.parquet").to_pylist()
    assert {(row["query-id"], row["corpus-id"]): row["score"] for row in rows} == positives


def test_card_and_pages_show_the_grades(graded: tuple[Run, Settings]) -> None:
    run, settings = graded
    text = card(run, settings)
    assert "## Labels by grade" in text
    with open_catalogue(run) as catalogue:
        pairs = catalogue.rows("SELECT DISTINCT grade, outcome, relevance FROM pairs")
        assert {(row["grade"], row["outcome"], row["relevance"]) for row in pairs} == {
            (3, "relevant", 3), (2, "relevant", 2), (1, "not relevant", 0), (0, "not relevant", 0),
        }  # fmt: skip
        assert {row["grade"] for row in catalogue.rows("SELECT DISTINCT grade FROM all_triplets")} == {2, 3}


def test_binary_labels_are_a_setting_and_cost_no_call(
    graded: tuple[Run, Settings], server: FakeChat, source: Path, tmp_path: Path
) -> None:
    run, settings = graded
    asked = server.requests
    binary_settings = settings.model_copy(update={"labels": settings.labels.model_copy(update={"binary": True})})
    binary = build(tmp_path / "run", source, binary_settings)
    assert server.requests == asked
    assert labels_of(binary) == {pair: min(relevance, 1) for pair, relevance in labels_of(run).items()}
    assert {row["grade"] for row in binary.tables("verdicts").read("verdicts").to_pylist()} == {0, 1, 2, 3}


@pytest.mark.slow
def test_a_graded_panel_keeps_the_grades(server: FakeChat, source: Path, tmp_path: Path) -> None:
    with FakeChat(labels=server.labels, model="second") as second:
        other = {"kind": "llm", "model": "second", "base_url": second.url, "prompt": "graded", "retry_timeout": 5}
        panel: list[dict[str, Any]] = [other, {"kind": "embedded"}]
        settings = graded_settings(server, tmp_path / "cache", f"judge.panel={json.dumps(panel)}")
        labels = labels_of(build(tmp_path / "run", source, settings))
    assert {2, 3} <= set(labels.values()) <= {0, 2, 3}
