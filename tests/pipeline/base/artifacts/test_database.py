"""One database for all queries of a block: each connection has a catalogue of its own, and nothing is left over."""

from pathlib import Path

import duckdb
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.artifacts.database import scratch, shared_database
from darklode.schemas.label_tables import QRELS
from helpers.runs import put

DATABASES_SQL = "SELECT database_name FROM duckdb_databases() WHERE NOT internal"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The databases that were opened."""
    databases: list[object] = []
    connect = duckdb.connect

    def counted(**options: object) -> duckdb.DuckDBPyConnection:
        databases.append(options)
        return connect(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(duckdb, "connect", counted)
    return databases


def test_a_block_opens_one_database(opened: list[object], run: Run) -> None:
    put(
        run,
        "qrels",
        QRELS.rows({"tenant": ["t"], "query_id": ["q"], "chunk_id": ["c"], "relevance": [1], "source": ["judge"]}),
    )
    query = "SELECT count(*) AS n FROM qrels"
    with shared_database(), shared_database():
        assert [run.tables().sql(query)["n"].to_pylist() for _ in range(5)] == [[1]] * 5
    assert len(opened) == 1
    run.tables().sql(query)
    assert len(opened) == 2, "outside the block each query has a database"


def test_connections_do_not_see_one_another() -> None:
    with shared_database(), scratch() as first, scratch() as second:
        first.execute("CREATE TABLE numbers AS SELECT 1 AS n")
        first.execute("CREATE TEMP TABLE others AS SELECT 1 AS n")
        second.execute("CREATE VIEW numbers AS SELECT 2 AS n")
        assert first.sql("FROM numbers").fetchall() == [(1,)]
        assert second.sql("FROM numbers").fetchall() == [(2,)]
        with pytest.raises(duckdb.CatalogException):
            second.sql("FROM others")


def test_a_catalogue_ends_with_its_block_even_if_a_reader_is_left_open() -> None:
    with shared_database():
        with scratch() as connection:
            connection.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(100000)")
            assert len(connection.sql(DATABASES_SQL).fetchall()) == 2
            reader = connection.sql("SELECT n FROM numbers ORDER BY n").to_arrow_reader(1000)
            next(iter(reader))
        with pytest.raises(ZeroDivisionError), scratch() as connection:
            raise ZeroDivisionError
        with scratch() as connection:
            assert len(connection.sql(DATABASES_SQL).fetchall()) == 2


def test_settings_are_changed_in_a_database_of_ones_own() -> None:
    with shared_database():
        with scratch(own=True) as connection:
            connection.execute("SET lock_configuration = true")
        with scratch() as connection:
            connection.execute("SET threads = 1")


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with shared_database(), scratch() as connection:
        connection.execute("CREATE TABLE numbers AS SELECT 1 AS n")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
