"""Fetching sources: all rows, only new days, and only what changed."""

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from darklode.pipeline.base.errors import DarklodeError, InputError, MissingColumns, NotWritable
from darklode.pipeline.base.types import Rows
from darklode.pipeline.ingest.files import files_fingerprint, list_files
from darklode.pipeline.ingest.sources import fetch as module
from darklode.pipeline.ingest.sources.database import DatabaseTable
from darklode.pipeline.ingest.sources.fetch import Fetched, Source, fetch, is_fetched, name_source, preview
from darklode.pipeline.ingest.sources.rows import DayRange
from darklode.pipeline.ingest.sources.snapshot import PartWriter, Snapshot
from helpers.fake_indexes import FakeIndexes

DAYS = [date(2026, 3, number) for number in range(1, 7)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE docs (doc_id TEXT PRIMARY KEY, text TEXT)")
    connection.execute("CREATE TABLE log (timestamp TEXT, query TEXT, doc_id TEXT, clicked INT)")
    connection.executemany("INSERT INTO docs VALUES (?, ?)", [(f"d{number}", "text") for number in range(9)])
    add_days(connection, DAYS[:4])
    yield connection
    connection.close()


def add_days(connection: sqlite3.Connection, days: list[date], query: str = "q") -> None:
    rows = [(f"{day} 1{hour}:00:00", query, f"d{hour}", hour % 2) for day in days for hour in range(3)]
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)


def log(tmp_path: Path, **settings: Any) -> Source:
    return Source("logs", f"sqlite:///{tmp_path}/shop.db?table=log", late_days=1, **settings)


def rows_by_file(folder: Path) -> dict[str, Rows]:
    return {
        file.name: [json.loads(line) for line in file.path.read_text().splitlines()] for file in list_files(str(folder))
    }


def fingerprint(folder: Path) -> str:
    return files_fingerprint(list_files(str(folder)))


def test_documents_are_fetched_again_and_stay_unless_a_row_changed(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    source, folder = Source("docs", f"sqlite:///{tmp_path}/shop.db?table=docs"), tmp_path / "docs"
    assert fetch(source, folder) == Fetched(9)
    before = fingerprint(folder)
    assert rows_by_file(folder) == {
        "docs-00000.jsonl": [{"doc_id": f"d{number}", "text": "text"} for number in range(9)]
    }
    assert fetch(source, folder) == Fetched(9)
    assert fingerprint(folder) == before
    database.execute("UPDATE docs SET text = 'new' WHERE doc_id = 'd3'")
    fetch(source, folder)
    assert fingerprint(folder) != before
    database.execute("DELETE FROM docs")
    assert fetch(source, folder) == Fetched(0)
    assert rows_by_file(folder) == {}


def test_a_log_has_a_folder_per_day_and_only_new_days_are_read_again(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asked = tmp_path / "log", list[DayRange]()
    batches = DatabaseTable.batches
    monkeypatch.setattr(DatabaseTable, "batches", lambda self, days: asked.append(days) or batches(self, days))
    assert fetch(log(tmp_path), folder) == Fetched(12, tuple(DAYS[:4]))
    assert list(rows_by_file(folder)) == [f"date={day}/logs-00000.jsonl" for day in DAYS[:4]]
    assert fetch(log(tmp_path), folder) == Fetched(6)
    add_days(database, [DAYS[1], DAYS[3], DAYS[4]], "late")
    assert fetch(log(tmp_path), folder) == Fetched(12, (DAYS[3], DAYS[4]))
    assert asked == [DayRange(), DayRange(DAYS[2]), DayRange(DAYS[2])]
    assert [len(rows) for rows in rows_by_file(folder).values()] == [3, 3, 3, 6, 3]


def test_days_asked_for_are_read_again_and_deleted_rows_go(tmp_path: Path, database: sqlite3.Connection) -> None:
    folder = tmp_path / "log"
    fetch(log(tmp_path), folder)
    add_days(database, [DAYS[1]], "late")
    database.execute(f"DELETE FROM log WHERE timestamp LIKE '{DAYS[0]}%'")
    assert fetch(log(tmp_path), folder, DAYS[:2]) == Fetched(6, (DAYS[0], DAYS[1]))
    assert [len(rows) for rows in rows_by_file(folder).values()] == [6, 3, 3]


def test_days_fetched_alone_do_not_hide_those_before_them(tmp_path: Path, database: sqlite3.Connection) -> None:
    folder = tmp_path / "log"
    assert fetch(log(tmp_path), folder, [DAYS[2]]) == Fetched(3, (DAYS[2],))
    assert fetch(log(tmp_path), folder) == Fetched(12, (DAYS[0], DAYS[1], DAYS[3]))
    add_days(database, DAYS[4:])
    assert fetch(log(tmp_path), folder, [DAYS[4]]) == Fetched(3, (DAYS[4],))
    assert fetch(log(tmp_path), folder) == Fetched(9, (DAYS[5],))


def test_a_killed_fetch_keeps_its_complete_days_and_continues(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, batches = tmp_path / "log", DatabaseTable.batches

    def dies(self: DatabaseTable, days: DayRange, limit: int | None = None) -> Iterator[Rows]:
        for batch in batches(self, days, limit):
            yield batch[:11]
            raise DarklodeError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(DatabaseTable, "batches", dies)
        with pytest.raises(DarklodeError, match="connection lost"):
            fetch(log(tmp_path), folder)
    assert [len(rows) for rows in rows_by_file(folder).values()] == [3, 3]
    assert Snapshot(folder, log(tmp_path).key).state.last_day("logs") == DAYS[1]
    assert fetch(log(tmp_path), folder) == Fetched(12, (DAYS[2], DAYS[3]))
    assert [len(rows) for rows in rows_by_file(folder).values()] == [3, 3, 3, 3]


def test_days_whose_fetch_was_killed_are_read_again(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log"
    fetch(log(tmp_path), folder)
    add_days(database, [DAYS[0]], "late")

    def dies(self: PartWriter) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PartWriter, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            fetch(log(tmp_path), folder, DAYS[:2])
    assert fetch(log(tmp_path), folder) == Fetched(15, (DAYS[0],))
    assert fetch(log(tmp_path), folder, DAYS[:2]) == Fetched(9)
    assert Snapshot(folder, log(tmp_path).key).state.last_day("logs") == DAYS[3]


def test_times_with_a_zone_in_text_lose_no_row_at_midnight(tmp_path: Path, database: sqlite3.Connection) -> None:
    times = ["2026-03-01T22:00:00-05:00", "2026-03-01T23:00:00+00:00", "2026-03-01T12:00:00+00:00"]
    database.execute("DELETE FROM log")
    database.executemany("INSERT INTO log VALUES (?, 'q', 'd1', 0)", [(text,) for text in times])
    assert fetch(log(tmp_path), tmp_path / "log") == Fetched(3, tuple(DAYS[:2]))
    assert [len(rows) for rows in rows_by_file(tmp_path / "log").values()] == [2, 1]


def test_times_that_do_not_sort_by_day_are_an_error(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO log VALUES (1772323200, 'q', 'd1', 0), (1772496000, 'q', 'd1', 0)")
    with pytest.raises(InputError, match=r"rows of 2026-03-01 follow later days .* logs\.statement"):
        fetch(log(tmp_path, setting="logs.statement"), tmp_path / "log")


def test_a_clock_that_is_ahead_hides_no_days(tmp_path: Path, database: sqlite3.Connection) -> None:
    folder = tmp_path / "log"
    add_days(database, [date(2099, 1, 1)])
    assert fetch(log(tmp_path), folder) == Fetched(15, (*DAYS[:4], date(2099, 1, 1)))
    today = datetime.now(UTC).date()
    add_days(database, [today])
    assert fetch(log(tmp_path), folder) == Fetched(6, (today,))


def test_a_killed_fetch_of_documents_leaves_the_former_ones(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = Source("docs", f"sqlite:///{tmp_path}/shop.db?table=docs"), tmp_path / "docs"
    fetch(source, folder)
    before = rows_by_file(folder)
    database.execute("UPDATE docs SET text = 'new'")

    def dies(self: DatabaseTable, days: DayRange, limit: int | None = None) -> Iterator[Rows]:
        yield [{"doc_id": "new"}]
        raise DarklodeError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(DatabaseTable, "batches", dies)
        with pytest.raises(DarklodeError, match="connection lost"):
            fetch(source, folder)
    assert rows_by_file(folder) == before
    assert fetch(source, folder) == Fetched(9)
    assert rows_by_file(folder) != before


def test_rows_without_a_time_go_with_the_last_day_and_another_statement_starts_again(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    folder = tmp_path / "log"
    database.execute("INSERT INTO log VALUES (NULL, 'q', 'd1', 0)")
    fetch(log(tmp_path), folder)
    assert [len(rows) for rows in rows_by_file(folder).values()] == [3, 3, 3, 4]
    address = f"sqlite:///{tmp_path}/shop.db"
    other = Source("logs", address, f"SELECT * FROM log WHERE timestamp > '{DAYS[2]}'", "logs.statement")
    assert fetch(other, folder) == Fetched(6, (DAYS[2], DAYS[3]))
    assert len(rows_by_file(folder)) == 2
    undated = Source("logs", address, "SELECT query FROM log", "logs.statement")
    assert fetch(undated, folder) == Fetched(13)
    assert list(rows_by_file(folder)) == ["logs-00000.jsonl"]


def test_an_index_is_not_read_again_unless_it_was_written_to(tmp_path: Path) -> None:
    with FakeIndexes({"docs": {"a": {"text": "x"}}}) as engine:
        source = Source("docs", f"opensearch+{engine.url}/docs")
        assert fetch(source, tmp_path / "docs") == Fetched(1)
        assert fetch(source, tmp_path / "docs") == Fetched(None)
        engine.indexes["docs"]["b"] = {"text": "y"}
        assert fetch(source, tmp_path / "docs") == Fetched(2)
        engine.has_stats = False
        assert fetch(source, tmp_path / "docs") == Fetched(2)


def test_a_log_of_ubi_has_both_indexes_by_day(tmp_path: Path) -> None:
    events = {str(day): {"timestamp": f"{day}T10:00:00Z", "action_name": "click"} for day in DAYS[:3]}
    queries = {str(day): {"timestamp": f"{day}T09:00:00Z", "query_id": "q", "user_query": "reset"} for day in DAYS[:2]}
    with FakeIndexes({"shop_ubi_events": events, "shop_ubi_queries": queries}) as engine:
        source = Source("logs", f"opensearch+{engine.url}/shop_ubi_events", late_days=1)
        assert fetch(source, tmp_path / "log") == Fetched(5, tuple(DAYS[:3]))
        assert list(rows_by_file(tmp_path / "log")) == [
            f"date={DAYS[0]}/ubi_events-00000.jsonl",
            f"date={DAYS[0]}/ubi_queries-00000.jsonl",
            f"date={DAYS[1]}/ubi_events-00000.jsonl",
            f"date={DAYS[1]}/ubi_queries-00000.jsonl",
            f"date={DAYS[2]}/ubi_events-00000.jsonl",
        ]
        n_requests = len(engine.searches)
        assert fetch(source, tmp_path / "log") == Fetched(4)
        ranges = [body["query"]["range"]["timestamp"]["gte"] for body in engine.searches[n_requests:]]
        assert set(ranges) == {f"{DAYS[0]}T00:00:00Z", "2026-02-28T00:00:00Z"}


def test_a_preview_has_the_first_rows(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PREVIEW_ROWS", 5)
    preview(log(tmp_path), tmp_path / "preview")
    assert [len(rows) for rows in rows_by_file(tmp_path / "preview").values()] == [5]
    with pytest.raises(InputError, match="nothing to read"):
        preview(Source("qrels", f"sqlite:///{tmp_path}/shop.db", setting="?table=NAME"), tmp_path / "none")


def test_errors_name_the_address_and_keep_what_else_they_say(tmp_path: Path) -> None:
    error = MissingColumns(f"{tmp_path}/docs-00000.jsonl has no column for the text", guesses={"text": "body"})
    shown = r"^sqlite:///a\.db/docs-00000\.jsonl has no column"
    with pytest.raises(MissingColumns, match=shown) as caught, name_source(tmp_path, "sqlite:///a.db"):
        raise error
    assert caught.value.guesses == {"text": "body"}
    assert caught.value.each == [str(error)]


def test_a_snapshot_that_cannot_be_written_is_named_itself(tmp_path: Path, database: sqlite3.Connection) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "log"
    with pytest.raises(NotWritable, match=f"^{folder}"), name_source(folder, "sqlite:///a.db"):
        fetch(log(tmp_path), folder)


def test_what_is_fetched() -> None:
    assert [is_fetched("s3://bucket/x", role) for role in ("docs", "queries", "qrels", "logs")] == [
        True,
        True,
        True,
        False,
    ]
    assert is_fetched("postgresql://host/db?table=log", "logs")
    assert not is_fetched("docs/", "docs")
