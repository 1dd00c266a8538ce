"""The small tables of `evaluate`, for the screen and the report."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.evaluations import CORRECTED_TITLE, corrected_figures, log_summary_tables, summary_tables
from darklode.schemas.tables import TABLES
from helpers.runs import put

ENDS = {"low": 0.1, "high": 0.3}


def pair(measure: str, part: str) -> dict[str, object]:
    row = {"tenant": None, "system": "b", "other": "a", "measure": measure, "part": part, "difference": 0.2}
    row |= {"queries": 3, "clusters": 3}
    return row | ENDS | {"p": 0.01, "p_holm": 0.02, "detectable": None, "wins": None, "losses": None}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made, measures = Run(str(tmp_path)), [("AUC-SAT", "labelled"), ("nDCG@10", "counted"), ("R@10", "counted")]
    means = [
        {
            "tenant": tenant,
            "system": system,
            "measure": measure,
            "part": part,
            "value": 0.25,
            "ceiling": 0.5,
            "queries": 3,
        }
        | ENDS
        for tenant in (None, "acme")
        for system in ("a", "b")
        for measure, part in measures
    ]
    log = {
        "tenant": None,
        "variant": None,
        "measure": "click-through",
        "value": 0.2,
        "counted": 9,
        "sessions": 4,
    } | ENDS
    given = {
        "evaluation": means,
        "evaluation_pairs": [pair(*one) for one in measures],
        "online": [log],
        "online_pairs": [],
    }
    for name, rows in given.items():
        put(made, name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))
    return made


def test_measures_stand_side_by_side_with_what_can_be_reached(run: Run) -> None:
    found = summary_tables(run.tables())
    assert list(found) == [
        "counted: 3 queries",
        "labelled: 3 queries",
        "Differences in nDCG@10 to the best system (95 % intervals, Holm-corrected p)",
        "Differences in AUC-SAT to the best system (95 % intervals, Holm-corrected p)",
    ]
    assert found["counted: 3 queries"].to_pylist() == [
        {"system": "a", "nDCG@10": 0.25, "R@10": 0.25},
        {"system": "b", "nDCG@10": 0.25, "R@10": 0.25},
        {"system": "(maximum)", "nDCG@10": 0.5, "R@10": 0.5},
    ]
    (row,) = found["Differences in nDCG@10 to the best system (95 % intervals, Holm-corrected p)"].to_pylist()
    assert row == {
        "system": "b",
        "against": "a",
        "part": "counted",
        "difference": 0.2,
        "interval": "+0.1000 to +0.3000",
        "p_holm": 0.02,
    }


def test_a_log_without_arms_has_shares_alone(run: Run) -> None:
    (rows,) = log_summary_tables(run.tables()).values()
    assert rows.to_pylist() == [
        {"measure": "click-through", "variant": "(all)", "share": 0.2, "interval": "0.1000 to 0.3000", "of": 9}
    ]


def test_a_weak_judge_is_called_so(run: Run) -> None:
    measured = {"measure": "irrelevant among the first 4", "value": 0.2, "counted": 9, "sessions": 4} | ENDS
    put(run, "online", pa.Table.from_pylist([{"tenant": None, "variant": "x"} | measured], TABLES["online"].schema))
    said = {"tenant": ["a"], "date": [date(2026, 3, 1)], "position": [1], "judge_id": ["embedded-2:0123"]}
    texts = {name: ["one"] for name in ("search_id", "session", "query_id", "query", "doc_id")}
    put(run, "online_verdicts", TABLES["online_verdicts"].rows(said | texts))
    (title,) = log_summary_tables(run.tables())
    assert title.endswith("; irrelevant according to embedded-2 (weak)")


def test_a_difference_of_one_session_has_no_interval(run: Run) -> None:
    row = {"tenant": None, "variant": "b", "other": "a", "measure": "interleaved", "difference": 1.0}
    row |= {"low": None, "high": None, "p": 1.0, "p_holm": 1.0}
    put(run, "online_pairs", pa.Table.from_pylist([row], schema=TABLES["online_pairs"].schema))
    (shown,) = log_summary_tables(run.tables())["Differences between variants"].to_pylist()
    assert shown["interval"] == "–"


def test_corrected_figures_stand_beside_those_of_the_judge(run: Run) -> None:
    figures = {"measure": "nDCG@10", "labels": 1200, "effective_labels": 40.0, "label_clusters": 30}
    unknown = {"value": None, "low": None, "high": None, "reason": "all labels are equal"}
    rows = [
        figures | {"system": "a", "other": None, "judge_only": 0.5, "value": 0.4, "low": 0.35, "high": 0.45},
        figures | {"system": "b", "other": None, "judge_only": 0.6, "value": 0.45, "low": 0.4, "high": 0.5},
        figures | {"system": "c", "other": None, "judge_only": 0.9} | unknown,
        figures | {"system": "d", "other": None, "judge_only": 0.3, "value": 0.2, "low": 0.1, "high": 0.3},
        figures | {"system": "b", "other": "a", "judge_only": 0.1, "value": 0.05, "low": -0.01, "high": 0.11},
        figures | {"system": "c", "other": "b", "judge_only": 0.3} | unknown,
        figures | {"system": "d", "other": "a", "judge_only": -0.2, "value": -0.2, "low": -0.3, "high": -0.1},
        figures | {"system": "d", "other": "b", "judge_only": -0.3, "value": -0.25, "low": -0.35, "high": -0.15},
        figures | {"tenant": "x", "system": "a", "other": None, "judge_only": 0.7, "value": 0.7},
    ]
    put(run, "corrected_evaluation", pa.Table.from_pylist(rows, schema=TABLES["corrected_evaluation"].schema))
    found = summary_tables(run.tables())[CORRECTED_TITLE].to_pylist()
    assert [tuple(row.values())[1:] for row in found] == [
        ("a", 0.5, "0.4000", "0.3500 to 0.4500"),
        ("b", 0.6, "0.4500", "0.4000 to 0.5000"),
        ("c", 0.9, "unknown", "all labels are equal"),
        ("d", 0.3, "0.2000", "0.1000 to 0.3000"),
        ("b − a", 0.1, "0.0500", "-0.0100 to +0.1100"),
        ("d − b", -0.3, "-0.2500", "-0.3500 to -0.1500"),
    ]
    assert corrected_figures(run.tables(), "corrected_audit").num_rows == 0, "nobody reviewed anything"
