"""Rows of databases: SQLite and DuckDB everywhere, PostgreSQL where it is installed."""

import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from darklode.pipeline.base.errors import DarklodeError, InputError, MissingPart
from darklode.pipeline.base.types import Rows
from darklode.pipeline.ingest.sources import database as module
from darklode.pipeline.ingest.sources.database import DatabaseTable, parse_database
from darklode.pipeline.ingest.sources.rows import ALL_DAYS, BATCH_ROWS, DayRange
from helpers.postgres import BINARIES, NOT_INSTALLED, PASSWORD, Postgres

SETTING = "ingest.documents.statement"
N_DOCS = 2 * BATCH_ROWS + 1
DOCS = [(f"d{number:05}", f"text: {number}") for number in range(N_DOCS)]
TIMES = [f"2026-03-0{day} 1{hour}:00:00" for day in (3, 1, 2) for hour in (1, 0)]


def insert(rows: list[tuple[str, ...]], table: str) -> str:
    values = ", ".join("({})".format(", ".join(f"'{value}'" for value in row)) for row in rows)
    return f"INSERT INTO {table} VALUES {values}"


TABLES = [
    "CREATE TABLE docs (doc_id varchar(9) PRIMARY KEY, body text)",
    insert(DOCS[::-1], "docs"),
    'CREATE TABLE log ("at" timestamp, query text)',
    insert([(time, "q") for time in TIMES], "log"),
    "INSERT INTO log VALUES (NULL, 'no time')",
]


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("sqlite") / "a #shop %41.db"
    with sqlite3.connect(file) as database:
        for statement in TABLES:
            database.execute(statement)
    database.close()
    return f"sqlite:///{file}?"


@pytest.fixture(scope="module")
def duck(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("duckdb") / "shop.duckdb"
    with duckdb.connect(str(file)) as database:
        for statement in TABLES:
            database.execute(statement)
    return f"duckdb:///{file}?"


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if BINARIES is None:
        pytest.skip(NOT_INSTALLED)
    with tempfile.TemporaryDirectory(prefix="darklode-") as folder:
        server = Postgres(Path(folder), "reader", "shop")
        with server.serving():
            for statement in TABLES:
                server.ask(statement)
            yield f"postgres://reader@127.0.0.1:{server.port}/shop?password_env=SHOP_PASSWORD&"


@pytest.fixture(params=["sqlite", "duck", "postgres"])
def shop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same tables in each database."""
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    return str(request.getfixturevalue(request.param))


def table(address: str, statement: str = "", *time_names: str) -> DatabaseTable:
    return DatabaseTable(parse_database(address, statement, SETTING), time_names)


def rows(source: DatabaseTable, days: DayRange = ALL_DAYS, limit: int | None = None) -> Rows:
    batches = list(source.batches(days, limit))
    assert all(0 < len(batch) <= BATCH_ROWS for batch in batches)
    return [row for batch in batches for row in batch]


def test_a_table_is_read_in_a_stable_order(shop: str) -> None:
    """That of its primary key; DuckDB keeps the order of insertion."""
    read = rows(table(f"{shop}table=docs"))
    expected = [{"doc_id": name, "body": body} for name, body in DOCS]
    assert read == (expected[::-1] if shop.startswith("duckdb") else expected)
    assert len(rows(table(f"{shop}table=docs"), limit=7)) == 7
    assert table(f"{shop}table=docs").time_column is None


def test_a_statement_is_read_in_its_own_order_and_its_colons_are_text(shop: str) -> None:
    statement = "SELECT doc_id AS id, 'a:b :c' AS body FROM docs WHERE doc_id < 'd00003' ORDER BY doc_id DESC;  "
    read = rows(table(shop, statement))
    assert read == [{"id": name, "body": "a:b :c"} for name in ("d00002", "d00001", "d00000")]
    assert len(rows(table(shop, statement), limit=2)) == 2


def test_a_log_is_read_by_time_and_only_around_the_days_asked_for(shop: str) -> None:
    for source in (table(f"{shop}table=log", "", "timestamp", "AT"), table(shop, "SELECT * FROM log", "at")):
        assert source.time_column == "at"
        read = rows(source)
        assert [str(row["at"]) for row in read] == [*sorted(TIMES), "None"]
        last = rows(source, DayRange(date(2026, 3, 4)))
        assert [str(row["at"]) for row in last] == [time for time in sorted(TIMES) if time >= "2026-03-03"]
        first = rows(source, DayRange(None, date(2026, 2, 28)))
        assert [str(row["at"]) for row in first] == [time for time in sorted(TIMES) if time < "2026-03-02"]


def test_nothing_can_be_written(shop: str) -> None:
    for statement in ("DELETE FROM docs", "INSERT INTO docs VALUES ('x', 'y')", "DROP TABLE log"):
        with pytest.raises(DarklodeError):
            rows(table(shop, statement))
    assert len(rows(table(f"{shop}table=docs"))) == N_DOCS


def test_errors_name_the_database_without_its_secrets(shop: str) -> None:
    for source in (table(f"{shop}table=missing"), table(shop, "SELECT nothing FROM docs")):
        shown = r"^(postgresql|sqlite|duckdb)://.*(table missing|statement): "
        with pytest.raises(DarklodeError, match=shown) as caught:
            rows(source)
        assert PASSWORD not in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="several columns named 'doc_id'"):
        rows(table(shop, "SELECT doc_id, body AS doc_id FROM docs"))


def test_a_name_in_the_address_is_no_sql(shop: str) -> None:
    with pytest.raises(DarklodeError, match="docs; DROP"):
        rows(table(f"{shop}table=docs; DROP TABLE log"))
    assert len(rows(table(f"{shop}table=log"))) == len(TIMES) + 1


def test_duckdb_reads_no_other_file(duck: str, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(DarklodeError, match="disabled"):
        rows(table(duck, f"SELECT * FROM read_csv('{tmp_path}/secret.csv')"))


def test_a_missing_file_or_table_or_driver_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; an absolute path begins with four slashes"):
        parse_database(f"sqlite:///{tmp_path}/none.db?table=docs", "", SETTING)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=f"add \\?table=NAME to the address, or set {SETTING}"):
        parse_database("postgresql://host/db", "", SETTING)
    with pytest.raises(MissingPart, match=r"mysql\+nodriver"):
        parse_database("mysql+nodriver://host/db?table=docs", "", SETTING)
    with pytest.raises(InputError, match="must not contain a password"):
        parse_database("postgresql://user:hunter2@host/db?table=docs", "", SETTING)


def test_a_password_is_missing_or_wrong(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    with pytest.raises(MissingPart, match="set the environment variable SHOP_PASSWORD"):
        table(f"{postgres}table=docs")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    with pytest.raises(DarklodeError, match="password authentication failed") as caught:
        rows(table(f"{postgres}table=docs"))
    assert "hunter2" not in str(caught.value)


def test_a_server_that_is_down_is_named() -> None:
    with pytest.raises(DarklodeError, match=r"postgresql://127\.0\.0\.1:1/db, table docs: .*Connect call failed"):
        rows(table("postgresql://127.0.0.1:1/db?table=docs"))


@pytest.mark.parametrize(
    ("sample", "bound"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        (datetime(2026, 1, 1), datetime(2026, 3, 1)),
        (date(2026, 1, 1), date(2026, 3, 1)),
        (1767225600, 1772323200),
        (Decimal(1767225600000), 1772323200000),
        ("2026-01-01T00:00:00Z", "2026-03-01"),
        ("01/02/2026", None),
        (None, None),
        (True, None),
    ],
)
def test_a_day_is_compared_as_a_value_of_the_columns_type(sample: Any, bound: Any) -> None:
    assert module._bound(date(2026, 3, 1), sample) == bound
