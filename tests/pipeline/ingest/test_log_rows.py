"""Rows of search logs: columns, values, ids, masking, and what is turned away."""

import gzip
import hashlib
import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError, TooManyRejects
from helpers.ingesting import lines, write
from helpers.log_ingesting import FULL, HEADER, at, logs_of

EXPECTED = FULL | {
    "timestamp": at(10),
    "query": "How To Log in",
    "query_id": hashlib.sha256(b"how to log in").hexdigest()[:16],
}


def csv_of(**columns: str) -> str:
    """A CSV log of one row: a good one but for these columns."""
    row = {
        "session_id": "s",
        "timestamp": "2026-03-01T10:00:00Z",
        "query": "a",
        "doc_id": "d",
        "clicked": "1",
    } | columns
    return ",".join(row) + "\n" + ",".join(row.values()) + "\n"


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "jsonl.gz", "parquet", "bom.csv"])
def test_a_row_is_the_same_in_every_format(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"log.{form}"
    texts = {name: str(value) for name, value in FULL.items()} | {"query": "How  To Log in"}
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([FULL]), path)
    elif form.startswith("jsonl"):
        data = lines(FULL).encode()
        path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    else:
        mark = "\ufeff" if form.startswith("bom") else ""
        mid = "\t" if form == "tsv" else ","
        write(path, mark + mid.join(texts) + "\r\n" + mid.join(texts.values()) + "\r\n")
    got = logs_of(path, tmp_path / "run")
    assert got.rows == [EXPECTED]
    assert got.rejects == []


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts": pa.array([at(10), at(11)], pa.timestamp("ns", tz="Asia/Tokyo")),
            "query": pa.array(["a", "a"]).dictionary_encode(),
            "doc_id": pa.array([7, 8], pa.int64()),
            "position": pa.array([1.0, float("nan")]),
            "clicks": pa.array([3, None], pa.int16()),
            "dwell_seconds": pa.array([1.5, float("nan")]),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    rows = logs_of(tmp_path / "log.parquet", tmp_path / "run", columns={"timestamp": "ts", "clicked": "clicks"}).rows
    keys = ("timestamp", "doc_id", "position", "clicked", "dwell_seconds")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        (at(10), "7", 1, True, 1.5),
        (at(11), "8", None, False, None),
    ]


def test_json_lines_may_omit_what_their_neighbours_have(tmp_path: Path) -> None:
    row = {"timestamp": 1772359200, "query": "a", "doc_id": 5, "clicked": False}
    late = row | {"dwell_seconds": 2, "position": 4, "session_id": "s", "clicked": True}
    got = logs_of(write(tmp_path / "log.jsonl", lines(*[row] * 1500, late)), tmp_path / "run")
    assert len(got.rows) == 1501
    assert [row for row in got.rows if row["position"]] == [
        got.rows[0]
        | {key: late[key] for key in ("dwell_seconds", "position", "session_id", "clicked")}
        | {key: row[key] for row in got.rows if row["position"] for key in ("event_id", "search_id")}
    ]
    assert got.rejects == []


def test_columns_are_mapped(tmp_path: Path) -> None:
    data = "who,person,when,q,what,nth,hit,stay,org,run,n\ns,u,2026-03-01T10:00:00Z,a,d,1,yes,2,acme,r,1\n"
    columns = {
        "session_id": "who", "timestamp": "when", "query": "q", "doc_id": "what", "position": "nth", "clicked": "hit",
        "dwell_seconds": "stay", "tenant": "org", "search_id": "run", "event_id": "n", "user_id": "person",
    }  # fmt: skip
    path = write(tmp_path / "log.csv", data)
    (row,) = logs_of(path, tmp_path / "run", columns=columns).rows
    assert (row["tenant"], row["search_id"], row["event_id"], row["clicked"]) == ("acme", "r", "1", True)
    assert (row["session_id"], row["user_id"]) == ("s", "u")
    with pytest.raises(InputError, match=r"no column 'wat' \(logs\.columns\.doc_id\); it has who,.*doc_id=what\?$"):
        logs_of(path, tmp_path / "other", columns=columns | {"doc_id": "wat"})


@pytest.mark.parametrize("name", ["timestamp", "query", "doc_id", "clicked"])
def test_a_log_without_a_needed_column_is_an_error(tmp_path: Path, name: str) -> None:
    row = {key: str(value) for key, value in FULL.items() if key != name}
    path = write(tmp_path / "log.csv", ",".join(row) + "\n" + ",".join(row.values()) + "\n")
    with pytest.raises(InputError, match=rf"no column for the {name}.*it has event_id,.*logs\.columns\.{name}"):
        logs_of(path, tmp_path / "run")


@pytest.mark.parametrize(
    ("text", "clicked"),
    [(text, True) for text in "true T YES 1 17 2.0".split()]
    + [(text, False) for text in "false F No 0 0.0".split()]
    + [(text, None) for text in "maybe -1 1e3 truefalse".split()],
)
def test_clicks(tmp_path: Path, text: str, clicked: bool | None) -> None:
    got = logs_of(write(tmp_path / "log.csv", csv_of(clicked=text) + "s,2026-03-01T10:00:00Z,a,d,\n"), tmp_path / "run")
    assert len(got.rows) == (1 if clicked is None else 2)
    if clicked is None:
        assert got.reasons == [("clicked is neither a boolean nor a count", 2)]
    else:
        assert sorted(got.column("clicked")) == sorted([clicked, False])


@pytest.mark.parametrize(
    ("first", "given", "positions", "lost"),
    [
        ("auto", ["1", "2", ""], [None, 1, 2], []),
        ("auto", ["0", "2", " 1 "], [1, 2, 3], []),
        ("auto", ["0", "-1", "1.0", "+3"], [1, 2, 4], ["below the first position"]),
        (0, ["1", "2"], [2, 3], []),
        (1, ["1", "0", "2"], [1, 2], ["below the first position"]),
        ("auto", ["1", "1.5", "x", "9999999999", "1e2"], [1], ["not a whole number"] * 4),
    ],
)
def test_positions_count_from_one(
    tmp_path: Path, first: str | int, given: list[str], positions: list[int | None], lost: list[str]
) -> None:
    rows = "".join(f"s,2026-03-01T10:00:00Z,a,d,{place},0\n" for place in given)
    got = logs_of(write(tmp_path / "log.csv", HEADER + rows), tmp_path / "run", first_position=first)
    assert got.column("position") == positions
    assert [reason.removeprefix("position is ") for reason, _ in got.reasons] == lost


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"query": ""}, "empty query"),
        ({"query": " \u00a0 "}, "empty query"),
        ({"doc_id": " "}, "empty doc_id"),
        ({"timestamp": ""}, "missing timestamp"),
        ({"timestamp": "yesterday"}, "unreadable timestamp"),
        ({"dwell_seconds": "-1"}, "dwell_seconds is not a non-negative number"),
        ({"dwell_seconds": "long"}, "dwell_seconds is not a non-negative number"),
        ({"dwell_seconds": "1e99"}, "dwell_seconds is not a non-negative number"),
        ({"session_id": "s,t"}, "wrong number of fields"),
        ({"session_id": '"s'}, "quote never closed"),
        ({"session_id": "s" * 2000}, "row longer than 1000 bytes"),
        ({"session_id": "s\0"}, "NUL byte"),
    ],
)
def test_a_bad_row_is_rejected_with_its_place(tmp_path: Path, columns: dict[str, str], reason: str) -> None:
    write(tmp_path / "log/bad.csv", csv_of(**columns))
    write(tmp_path / "log/good.csv", csv_of())
    got = logs_of(tmp_path / "log", tmp_path / "run", ingest={"max_row_bytes": 1000})
    assert (len(got.rows), got.reasons) == (1, [(reason, 2)])
    assert (got.rejects[0]["file"], got.rejects[0]["stage"]) == ("bad.csv", "ingest.impressions")
    assert (got.rejects[0]["table"], got.manifest.funnel[0].dropped) == ("impressions", {reason: 1})


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    good = json.dumps(FULL).encode()
    rows = [
        good,
        good.replace(b"a.md", b"caf\xe9"),
        good.replace(b"a.md", b"\\ud800"),
        good.replace(b"a.md", b"\\u0000"),
    ]
    got = logs_of(
        write(tmp_path / "log.jsonl", b"\n".join([*rows, b'{"query": [1]}', b"\x00\xff", b""])), tmp_path / "run"
    )
    assert got.rows == [EXPECTED]
    assert sorted(got.reasons, key=lambda reason: reason[1] or 0) == [
        ("not UTF-8", 2), ("not UTF-8", 3), ("NUL byte", 4), ("wrong type", 5), ("NUL byte", 6),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_a_binary_file_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name):
        logs_of(write(tmp_path / name, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 50), tmp_path / "run")


def test_a_binary_file_of_json_lines_is_all_rejects(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" * 50)
    with pytest.raises(TooManyRejects, match=r"rows of .*NUL byte.*check logs\.columns"):
        logs_of(path, tmp_path / "run")


def test_spellings_of_a_query_are_one_query(tmp_path: Path) -> None:
    queries = ["c++ crash", "C++ crash?", "“C++”  Crash", "c crash", "C++ CRASH!"]
    rows = [FULL | {"query": query, "position": place} for place, query in enumerate(queries, 1)]
    got = logs_of(write(tmp_path / "log.jsonl", lines(*rows)), tmp_path / "run")
    assert got.column("query") == ["c++ crash", "C++ crash?", "“C++” Crash", "c crash", "C++ CRASH!"]
    ids = got.column("query_id")
    assert set(ids) == {hashlib.sha256(text).hexdigest()[:16] for text in (b"c++ crash", b"c crash")}
    assert ids[0] == ids[1] == ids[2] == ids[4] != ids[3]


def test_queries_are_kept_as_spelled_and_masked(tmp_path: Path) -> None:
    queries = [
        "Cafe\u0301 \u00a0 MENU",
        "mail Bob@Example.com NOW",
        "call +49 (0)30\u00a01234567",
        "key AKIAIOSFODNN7EXAMPLE",
    ]
    rows = [FULL | {"query": query, "position": place} for place, query in enumerate(queries, 1)]
    path = write(tmp_path / "log.jsonl", lines(*rows))
    assert logs_of(path, tmp_path / "run").column("query") == [
        "Café MENU", "mail [email] NOW", "call [phone]", "key [token]",
    ]  # fmt: skip
    plain = logs_of(path, tmp_path / "other", mask_personal_data=False).column("query")
    assert plain == ["Café MENU", "mail Bob@Example.com NOW", "call +49 (0)30 1234567", "key AKIAIOSFODNN7EXAMPLE"]


def test_ids_are_made_of_what_they_name(tmp_path: Path) -> None:
    rows = ["s,2026-03-01T10:00:00Z,a,d,1,0", "s,2026-03-01T10:00:00Z,A ,e,2,1", "t,2026-03-01T10:00:00Z,a,d,1,0"]
    got = logs_of(write(tmp_path / "log.csv", HEADER + "\n".join([*rows, rows[0]])), tmp_path / "run")
    by_session = {name: {row["search_id"] for row in got.rows if row["session_id"] == name} for name in "st"}
    assert [len(ids) for ids in by_session.values()] == [1, 1]
    assert by_session["s"] != by_session["t"]
    assert len({row["event_id"] for row in got.rows}) == 3
    assert len(got.rows) == 4, "a repeated row is there again"
    other = logs_of(tmp_path / "log.csv", tmp_path / "other", ingest={"tenant": "acme"})
    assert not {row["event_id"] for row in got.rows} & {row["event_id"] for row in other.rows}
    assert set(other.column("tenant")) == {"acme"}


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "empty.csv", "")
    write(tmp_path / "folder/notes.md", "no log")
    for name in ("missing", "empty.csv", "folder"):
        with pytest.raises(InputError, match=name):
            logs_of(tmp_path / name, tmp_path / "run")
    write(tmp_path / "undated/log.csv", "query,doc_id")
    with pytest.raises(InputError, match="no partition for 2026-03-02; nearest: none with a date"):
        logs_of(tmp_path / "undated", tmp_path / "run", dates=[date(2026, 3, 2)])


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    path = write(tmp_path / "log.txt", csv_of())
    assert len(logs_of(path, tmp_path / "run", format="csv").rows) == 1
    with pytest.raises(InputError):
        logs_of(path, tmp_path / "other")


def test_files_that_are_no_log_are_told(tmp_path: Path) -> None:
    write(tmp_path / "log/2026-03-01/notes.md", "#")
    write(tmp_path / "log/2026-03-01/_SUCCESS", "")
    write(tmp_path / "log/2026-03-01/a.csv", csv_of())
    write(tmp_path / "log/readme.md", "#")
    got = logs_of(tmp_path / "log", tmp_path / "run", ingest={"max_reject_share": 0})
    assert [(row["file"], row["reason"]) for row in got.rejects] == [
        ("2026-03-01/notes.md", "not a log format"),
        ("readme.md", "not a log format"),
    ]
