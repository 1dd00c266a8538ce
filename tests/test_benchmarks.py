"""Benchmarks: the page is made from the results, and a missing collection skips a benchmark."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import report
from benchmarks.report import ResultTable

WITH_COLLECTIONS = (
    "quality",
    "fusion",
    "judge_quality",
    "label_sets",
    "judge_learning",
    "judge_probe",
    "bm25",
    "adapt",
    "adapt_ablation",
    "term_vectors",
    "students",
    "reranker",
    "index",
    "scaling",
)
TABLE = ResultTable(
    "Speed", {"system": "", "calls": ",d", "ratio": ".2f"}, [["ours", 1200, 1.256789], ["other", None, 1.0]]
)


def test_the_page_is_made_from_the_results() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.make_page(), "run python -m benchmarks.report"


@pytest.mark.parametrize("name", report.ALL)
def test_results_say_when_and_where_they_were_measured(name: str) -> None:
    for table in report.read_result(name):
        assert {"title", "date", "machine", "versions", "columns", "rows", "note", "load"} == set(table)
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_every_result_and_script_is_of_a_benchmark() -> None:
    assert {path.name for path in report.RESULTS.iterdir()} <= {f"{name}.json" for name in report.ALL}
    assert all((report.FOLDER / f"{name}.py").exists() for name in report.ALL)


def test_a_new_table_replaces_the_one_of_its_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    other = ResultTable("Memory", {"MB": ".0f"}, [[1]])
    report.publish("speed", [TABLE, other])
    report.publish("speed", [ResultTable("Speed", TABLE.columns, [["ours", 5, 2.0]])])
    saved = json.loads((tmp_path / "speed.json").read_text(encoding="utf-8"))
    assert saved["benchmark"] == "speed"
    assert [(table["title"], table["rows"]) for table in saved["tables"]] == [
        ("Speed", [["ours", 5, 2.0]]),
        ("Memory", [[1]]),
    ]


def test_a_quick_run_prints_and_saves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    report.publish("speed", [TABLE], quick=True)
    assert not list(tmp_path.iterdir())
    assert "| ours | 1,200 | 1.26 |\n| other | – | 1.00 |" in capsys.readouterr().out


def test_a_benchmark_without_results_is_not_measured_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert report.make_page().count("Not measured yet.") == len(report.ALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_COLLECTIONS)
def test_a_missing_collection_skips_the_benchmark(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", [name, "--collections", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 0
    assert f"Skipped: {tmp_path / 'none'}" in capsys.readouterr().out
    assert not (tmp_path / "results").exists(), "no result is written"


def test_one_missing_collection_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.collections_io import present

    (tmp_path / "cisi").mkdir()
    assert present(["cranfield", "cisi"], tmp_path) == ["cisi"]
    assert capsys.readouterr().out == f"Skipped collection cranfield: {tmp_path / 'cranfield'} is missing.\n"


def test_tau_of_the_upper_half_is_that_of_the_systems_that_the_reference_ranks_best() -> None:
    from benchmarks.judge_quality import tau, tau_of_halves, tau_of_upper_half

    people = np.repeat([[0.9], [0.8], [0.7], [0.3], [0.2], [0.1]], 8, axis=1)
    judge = np.repeat([[0.7], [0.8], [0.9], [0.3], [0.2], [0.1]], 8, axis=1)
    assert tau_of_upper_half(judge, people) == pytest.approx(-1)
    assert tau(judge, people) == pytest.approx(1 - 2 * 3 / 15)
    assert tau_of_upper_half(people, people) == pytest.approx(1)
    worse_below = judge[[2, 1, 0, 5, 4, 3]]
    assert tau_of_upper_half(worse_below, people) == pytest.approx(1), "the order below does not count"
    assert tau_of_halves(judge, people, tau_of_upper_half) == pytest.approx(-1)


@pytest.mark.parametrize(("systems", "is_known"), [(4, False), (5, True)])
def test_fewer_than_three_systems_have_no_tau(systems: int, is_known: bool) -> None:
    from benchmarks.judge_quality import tau_of_halves, tau_of_upper_half

    values = np.random.default_rng(1).random((systems, 10))
    assert (tau_of_upper_half(values, values) is not None) is is_known
    assert (tau_of_halves(values, values, tau_of_upper_half) is not None) is is_known
