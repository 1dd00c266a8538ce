"""A statistic is computed once for the same tables, and again for others."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report import statistic
from darklode.pipeline.report.statistic import Statistic
from helpers.judge_tables import queries
from helpers.runs import put

COUNT = Statistic("SELECT count(*) FILTER (text <> $1) AS n FROM queries")


def counted(run: Run, text: str = "") -> pa.Table:
    return COUNT(all_tables(run), text)


def test_equal_tables_and_parameters_give_the_cached_result(run: Run) -> None:
    put(run, "queries", queries("t", {"a": "one", "b": "two"}))
    first = counted(run)
    assert counted(run) is first
    assert (first["n"].to_pylist(), counted(run, "one")["n"].to_pylist()) == ([2], [1])


def test_a_changed_table_is_counted_again(run: Run) -> None:
    put(run, "queries", queries("t", {"a": "one", "b": "two"}))
    assert counted(run)["n"].to_pylist() == [2]
    put(run, "queries", queries("t", {"a": "one"}))
    assert counted(run)["n"].to_pylist() == [1]


def test_the_oldest_result_is_dropped_first(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistic, "_CACHE", {})
    monkeypatch.setattr(statistic, "MAX_CACHED", 2)
    put(run, "queries", queries("t", {"a": "one"}))
    first, second, _ = (counted(run, text) for text in "xyz")
    assert counted(run, "y") is second
    assert counted(run, "x") is not first
