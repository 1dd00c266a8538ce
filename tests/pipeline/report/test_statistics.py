"""What the dataset card says of validation, and of labels that people gave."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import duckdb
import pyarrow as pa
import pytest
from scipy.stats import binomtest

from darklode.pipeline import browse, report
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.export.formats import export
from darklode.pipeline.report import statistics
from darklode.pipeline.report.card import card
from darklode.pipeline.report.caveats import caveats
from darklode.pipeline.report.statistic import Statistic
from darklode.pipeline.validate.gate import GATE_STAGE, gate
from darklode.pipeline.validate.stage import is_stale
from darklode.schemas.label_tables import QRELS, VERDICTS
from darklode.schemas.settings import Settings, ValidationSettings
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.reviewed_run import answer, answered, honest, key_of, pairs, put_run, sampled
from helpers.reviewed_run import validated as validate_run
from helpers.runs import execute, put


@pytest.mark.parametrize("package", [report, browse], ids=["report", "browse"])
def test_every_query_reads_columns_that_the_tables_have(package: ModuleType) -> None:
    """A figure of a table that few runs have fails nowhere else."""
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            connection.register("schema_rows", table.empty())
            connection.execute(f'CREATE TABLE "{name}" AS FROM schema_rows')
        modules = [
            importlib.import_module(module.name)
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        ]
        queries = {
            f"{module.__name__}.{name}": getattr(value, "query", value)
            for module in modules
            for name, value in vars(module).items()
            if name.endswith("_SQL") or isinstance(value, Statistic)
        }
        errors = {}
        for place, query in queries.items():
            if isinstance(query, str) and "{" not in query:
                try:
                    connection.execute(f"EXPLAIN {re.sub(r'[$][a-z0-9_]+', 'NULL', query)}")
                except duckdb.Error as error:
                    errors[place] = str(error)
        assert len(queries) > 20
        assert not {place: error for place, error in errors.items() if "Referenced column" in error}


@pytest.fixture
def reviewed(run: Run) -> Run:
    made = pairs({"a": 60, "b": 30})
    sample = sampled(put_run(run, made), max_pairs=300, query_share=0.3)
    answered(run, [*honest(made, [key_of(row) for row in sample]), answer(key_of(sample[0]), 1, "bob")])
    validate_run(run, {"a": 0.5, "b": 0.5})
    return run


def decide(run: Run, **asked: float) -> None:
    settings = ValidationSettings.model_validate(asked)
    execute(run, GATE_STAGE, lambda tables, output: gate(tables, output, settings))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "No release requirement is set."),
        ({"min_kappa": 0.1}, "may be published"),
        ({"min_kappa": 1.0}, "**Held back:**"),
    ],
)
def test_the_card_shows_the_figures_and_the_outcome(reviewed: Run, asked: dict[str, float], said: str) -> None:
    decide(reviewed, **asked)
    text = card(reviewed, Settings())
    assert "## Judge against reviewers\n" in text
    assert "## Judge against reviewers, by tenant\n" in text
    assert "| bm25 |" in text.split("by retriever\n")[1]
    assert "| ann | bob | 1 |" in text
    assert said in text.split("## Release\n")[1].split("##")[0]
    assert "Warning" not in text


def test_held_out_queries_that_share_a_positive_are_counted(tmp_path: Path) -> None:
    run = finished_run(str(tmp_path), ("a",))
    rows = statistics.held_out(all_tables(run)).to_pylist()
    one = {"kind": None, "queries": 1, "share_a_positive": 1, "share": 1.0}
    assert rows == [{"split": "test"} | one, {"split": "validation"} | one]
    assert "| test |  | 1 | 1 | 1 |" in card(run, Settings()).split("## Held-out queries\n")[1]


def test_figures_carry_their_intervals(reviewed: Run) -> None:
    (row,) = statistics.validated(all_tables(reviewed)).to_pylist()
    (raw,) = all_tables(reviewed).sql("FROM validation WHERE tenant IS NULL AND retriever IS NULL").to_pylist()
    assert row["recall"] == f"{raw['recall']:.3f} ({raw['recall_low']:.3f}–{raw['recall_high']:.3f})"
    assert row["missed"] == f"{raw['missed']:.0f} ({raw['missed_low']:.0f}–{raw['missed_high']:.0f})"
    assert row["weighted_kappa"] is None
    assert [row["tenant"] for row in statistics.validated_by_tenant(all_tables(reviewed)).to_pylist()] == ["a", "b"]
    judge = {row["judge"]: row for row in statistics.confusion(all_tables(reviewed)).to_pylist()}
    assert judge["relevant"]["not_relevant"] == raw["false_positives"]
    assert judge["no verdict"]["relevant"] == raw["unread_relevant"]


def test_a_validation_of_other_verdicts_is_not_shown(reviewed: Run) -> None:
    assert not is_stale(reviewed)
    rows = reviewed.tables("verdicts").read("verdicts").to_pylist()
    rows[0]["relevant"] = not rows[0]["relevant"]
    put(reviewed, "verdicts", pa.Table.from_pylist(rows, schema=VERDICTS.schema))
    assert is_stale(reviewed)
    text = card(reviewed, Settings())
    assert "> **Warning:** The human review refers to other verdicts than these." in text
    assert "## Judge against reviewers" not in text


def test_a_run_that_nobody_reviewed_says_nothing(run: Run) -> None:
    put_run(run, pairs({"a": 3}))
    text = card(run, Settings())
    assert "reviewers" not in text
    assert "Release" not in text
    assert "Label sources" not in text


def test_reviewers_who_saw_the_verdict_are_a_caveat(run: Run) -> None:
    made = pairs({"a": 10})
    sample = sampled(put_run(run, made), max_pairs=20)
    answered(run, [answer(key_of(row), 1, judge_shown=place < 7) for place, row in enumerate(sample)])
    validate_run(run)
    said = [one for one in caveats(all_tables(run), Settings()) if "biased" in one]
    assert said == [
        "Reviewers saw the judge's verdict for 7 of 20 pairs; their agreement with the judge is biased upwards."
    ]


def overruled(run: Run) -> Run:
    rows = run.tables("qrels").read("qrels").to_pylist()
    for row in rows[:3]:
        row["source"] = "human"
    put(run, "qrels", pa.Table.from_pylist(rows, schema=QRELS.schema))
    return run


def test_labels_that_people_gave_are_counted(tmp_path: Path) -> None:
    given = finished_run(str(tmp_path / "given"))
    run = Run(str(tmp_path / "run"))
    for table in ("documents", "chunks", "raw_queries", "queries", "verdicts", "qrels"):
        put(run, table, given.tables(table).read(table))
    assert "no LLM and no human has judged this dataset" in card(run, Settings())
    text = card(overruled(run), Settings())
    assert "| human | 3 |" in text.split("## Label sources\n")[1]
    assert "no LLM has judged this dataset, and people have labelled only a part of it" in text
    for form in ("mteb", "devrev"):
        export(run, form, tmp_path / form)
        assert (
            "3 of 32 labels are human labels that replace the judge's." in (tmp_path / form / "README.md").read_text()
        )
    export(given, "mteb", tmp_path / "judged")
    assert "human labels" not in (tmp_path / "judged" / "README.md").read_text()


def test_wilson_intervals_are_scipys() -> None:
    counts = [(0, 5), (1, 1), (3, 10), (50, 200), (999, 1000)]
    with duckdb.connect() as connection:
        values = ", ".join(map(str, counts))
        rows = connection.sql(f"SELECT {statistics._wilson('hits', 'n')} FROM (VALUES {values}) t(hits, n)").fetchall()
    intervals = [binomtest(*pair).proportion_ci(method="wilson") for pair in counts]
    assert [row[1:] for row in rows] == [(round(each.low, 3), round(each.high, 3)) for each in intervals]
