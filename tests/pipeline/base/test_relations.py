"""Intermediate results in DuckDB: names of their own, rows that stay, and memory given back."""

import duckdb
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.database import scratch
from darklode.pipeline.base.relations import drop, materialize, view
from helpers.runs import documents, put


def test_rows_are_handed_on_under_names_of_their_own() -> None:
    with scratch() as connection:
        numbers = materialize(connection, "SELECT unnest([1, 2, 3]) AS n")
        others = materialize(connection, "SELECT n * $times AS n FROM {numbers}", {"times": 10}, numbers=numbers)
        assert numbers.name != others.name
        both = materialize(connection, "FROM {one} UNION ALL FROM {other}", one=numbers, other=others)
        assert connection.sql(f"SELECT n FROM {both} ORDER BY n").fetchall() == [(1,), (2,), (3,), (10,), (20,), (30,)]


def test_what_is_dropped_is_gone_and_what_was_made_of_it_stays() -> None:
    with scratch() as connection:
        numbers = materialize(connection, "SELECT 7 AS n")
        made = materialize(connection, "FROM {numbers}", numbers=numbers)
        drop(connection, numbers)
        assert connection.sql(f"FROM {made}").fetchall() == [(7,)]
        with pytest.raises(duckdb.CatalogException):
            connection.sql(f"FROM {numbers}")


def test_a_table_of_a_run_is_a_relation(run: Run) -> None:
    put(run, "documents", documents(doc_id=["a", "b"], text=["one", "two"]))
    with scratch() as connection:
        found = view(connection, run.tables("documents"), "documents")
        assert connection.sql(f"SELECT doc_id FROM {found} ORDER BY doc_id").fetchall() == [("a",), ("b",)]
