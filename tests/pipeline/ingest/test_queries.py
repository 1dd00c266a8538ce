"""Raw queries from text, JSON lines, CSV, Parquet and BEIR."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError
from helpers.ingesting import queries_of, write

DAY = datetime(2024, 3, 1, 12, 30, tzinfo=UTC)


def test_a_text_file_holds_one_query_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "q.txt", 'how to "install\r\n\n  \nstraße, größe\nno end')
    got = queries_of(path, tmp_path / "run")
    assert [row["text"] for row in got.rows] == ['how to "install', "straße, größe", "no end"]
    assert got.reasons == [("empty text", 3)]
    assert {(row["tenant"], row["count"], row["timestamp"]) for row in got.rows} == {("default", 1, None)}


def test_ids_are_made_of_file_and_line(tmp_path: Path) -> None:
    first = queries_of(write(tmp_path / "q.txt", "a\na\nb"), tmp_path / "run")
    again = queries_of(write(tmp_path / "q.txt", "a\nchanged\nb\nc"), tmp_path / "other")
    ids = [row["query_id"] for row in first.rows]
    assert ids == [row["query_id"] for row in again.rows][:3]
    assert len(set(ids)) == 3
    assert all(len(name) == 18 and name.startswith("q-") for name in ids)


def test_csv(tmp_path: Path) -> None:
    data = "qid,query,timestamp,count,tenant\n1,a,2024-03-01T12:30:00Z,3,acme\n2,b,,,\n1,again,,,acme\n1,other,,2,\n"
    got = queries_of(write(tmp_path / "q.csv", data), tmp_path / "run")
    keys = ("tenant", "query_id", "text", "timestamp", "count")
    assert [tuple(row[key] for key in keys) for row in got.rows] == [
        ("acme", "1", "a", DAY, 3),
        ("default", "2", "b", None, 1),
        ("default", "1", "other", None, 2),
    ]
    assert [(row["reason"], row["line"], row["represented_by"]) for row in got.rejects] == [("duplicate id", 4, "1")]
    assert got.rejects[0]["stage"] == "ingest.queries"


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-01T12:30:00Z",
        "2024-03-01 12:30:00",
        "2024-03-01T14:30:00+02:00",
        "2024-03-01 07:30:00.000-0500",
        "2024-03-01 12:30:00 UTC",
        "1709296200",
        "1709296200000",
    ],
)
@pytest.mark.parametrize("beside", ["2024-03-01T12:30:00Z", "2024-03-01 12:30:00", "no time", "2024-13-01"])
def test_times_are_read_in_utc_whatever_stands_beside_them(tmp_path: Path, text: str, beside: str) -> None:
    got = queries_of(write(tmp_path / "q.csv", f"text,timestamp\na,{text}\nb,{beside}\n"), tmp_path / "run")
    assert got.rows[0]["timestamp"] == DAY
    if beside[:10] == "2024-03-01":
        assert got.rows[1]["timestamp"] == DAY
    else:
        assert got.reasons == [("unreadable timestamp", 3)]


def test_counts_are_positive_whole_numbers(tmp_path: Path) -> None:
    given = ["1", "+2", "3.0", "", " 4 ", "0", "-1", "1.5", "x", "9" * 30]
    rows = "".join(f"{n},q{n},{count}\n" for n, count in enumerate(given))
    got = queries_of(write(tmp_path / "q.csv", "id,text,count\n" + rows), tmp_path / "run")
    assert [row["count"] for row in got.rows] == [1, 2, 3, 1, 4]
    assert got.reasons == [("count is not a positive whole number", line) for line in range(7, 12)]


def test_json_numbers(tmp_path: Path) -> None:
    data = '{"id": 1, "text": "a", "count": 2, "timestamp": 1709296200}\n{"id": 2, "text": "b", "count": 2.5}\n'
    got = queries_of(write(tmp_path / "q.jsonl", data), tmp_path / "run")
    assert [(row["query_id"], row["count"], row["timestamp"]) for row in got.rows] == [("1", 2, DAY)]
    assert got.reasons == [("count is not a positive whole number", 2)]


def test_parquet_with_real_types(tmp_path: Path) -> None:
    berlin = timezone(timedelta(hours=1))
    table = pa.table(
        {
            "query": ["a", "b"],
            "timestamp": pa.array([DAY.astimezone(berlin), None], pa.timestamp("ms", tz="Europe/Berlin")),
            "count": pa.array([2.0, None], pa.float64()),
        }
    )
    pq.write_table(table, tmp_path / "q.parquet")
    got = queries_of(tmp_path / "q.parquet", tmp_path / "run")
    assert [(row["text"], row["timestamp"], row["count"]) for row in got.rows] == [("a", DAY, 2), ("b", None, 1)]


def test_columns_are_mapped(tmp_path: Path) -> None:
    path = write(tmp_path / "q.tsv", "n\tsearch\twhen\thits\torg\n7\ta\t2024-03-01 12:30:00\t2\tacme\n")
    columns = {"query_id": "n", "text": "search", "timestamp": "when", "count": "hits", "tenant": "org"}
    (row,) = queries_of(path, tmp_path / "run", queries={"columns": columns}).rows
    assert (row["query_id"], row["text"], row["timestamp"], row["count"], row["tenant"]) == ("7", "a", DAY, 2, "acme")
    with pytest.raises(InputError, match=r"no column 'serch' \(ingest\.queries\.columns\.text\).*text=search\?$"):
        queries_of(path, tmp_path / "run", queries={"columns": {"text": "serch"}})


def test_in_a_folder_the_file_named_queries_wins(tmp_path: Path) -> None:
    write(tmp_path / "in/queries.csv", "text\na\n")
    write(tmp_path / "in/documents/a.md", "# no query")
    write(tmp_path / "in/impressions/day.csv", "query\nb\n")
    got = queries_of(tmp_path / "in", tmp_path / "run")
    assert ([row["text"] for row in got.rows], got.rejects) == (["a"], [])
    write(tmp_path / "in/queries.txt", "c")
    with pytest.raises(InputError, match=r"several query files \(queries\.csv, queries\.txt\)"):
        queries_of(tmp_path / "in", tmp_path / "run")


def test_a_folder_of_logs(tmp_path: Path) -> None:
    write(tmp_path / "in/2024/a.csv", "text\nsame\n")
    write(tmp_path / "in/b.txt", "same\n")
    write(tmp_path / "in/notes.md", "no query")
    got = queries_of(tmp_path / "in", tmp_path / "run", max_reject_share=0)
    assert [row["text"] for row in got.rows] == ["same", "same"]
    assert len({row["query_id"] for row in got.rows}) == 2
    assert [(row["file"], row["reason"]) for row in got.rejects] == [("notes.md", "not a query format")]


def test_a_beir_folder(tmp_path: Path) -> None:
    write(tmp_path / "beir/corpus.jsonl", '{"_id": "d", "text": "no query"}\n')
    write(tmp_path / "beir/queries.jsonl", '{"_id": "q1", "text": "a", "metadata": {}}\n')
    for form in ("auto", "beir"):
        got = queries_of(tmp_path / "beir", tmp_path / form, queries={"format": form})
        assert [(row["query_id"], row["text"]) for row in got.rows] == [("q1", "a")]


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", "text\na, b")
    got = queries_of(path, tmp_path / "run", queries={"format": "text"})
    assert [row["text"] for row in got.rows] == ["text", "a, b"]


@pytest.mark.parametrize("name", ["missing", "empty.txt", "folder", "a.png"])
def test_nothing_to_read_is_an_error(tmp_path: Path, name: str) -> None:
    write(tmp_path / "empty.txt", "")
    write(tmp_path / "folder/notes.md", "no query")
    write(tmp_path / "a.png", "x")
    with pytest.raises(InputError, match=name):
        queries_of(tmp_path / name, tmp_path / "run")
