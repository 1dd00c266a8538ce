"""JSON lines: which lines are rows, and why the others are none."""

import json
from pathlib import Path

import pytest

from helpers.ingesting import documents_of, lines, queries_of, write


def test_json_lines(tmp_path: Path) -> None:
    rows = lines(
        {"_id": "a", "title": "T", "text": "2024-01-01", "url": "u", "tenant": "acme", "more": {"x": [1]}},
        {"_id": "b", "title": "", "text": "two\nlines", "tenant": ""},
    )
    got = documents_of(write(tmp_path / "d.jsonl", rows), tmp_path / "run")
    keys = ("tenant", "doc_id", "title", "text", "url", "source")
    assert [tuple(row[key] for key in keys) for row in got.rows] == [
        ("acme", "a", "T", "2024-01-01", "u", "d.jsonl"),
        ("default", "b", None, "two\nlines", None, "d.jsonl"),
    ]
    assert len({row["content_hash"] for row in got.rows} | {"x" * 32}) == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"_id": "x", "text": "a"', "JSON syntax error"),
        ('{"_id": "x", "text": "a"} {"_id": "y", "text": "b"}', "JSON syntax error"),
        ("[" * 100_000, "JSON syntax error"),
        ('["a"]', "not an object"),
        ("null", "not an object"),
        ('{"_id": "x", "text": 5}', "wrong type"),
        ('{"_id": "x", "text": ["a"]}', "wrong type"),
        ('{"_id": true, "text": "a"}', "wrong type"),
        ('{"_id": {"$oid": "x"}, "text": "a"}', "wrong type"),
        ('{"_id": "x", "text": ""}', "empty text"),
        ('{"_id": "x", "text": null}', "empty text"),
        ('{"_id": "x"}', "empty text"),
        ('{"_id": "x", "text": " \\n\\t"}', "empty text"),
        ('{"text": "a"}', "missing id"),
        ('{"_id": "", "text": "a"}', "missing id"),
        ('{"_id": "x", "text": "a\\u0000b"}', "NUL byte"),
        ('{"_id": "x", "text": "a\0b"}', "NUL byte"),
        (b'{"_id": "x", "text": "caf\xe9"}', "not UTF-8"),
        ('{"_id": "x", "text": "\\ud800"}', "not UTF-8"),
        ('{"_id": "good0", "text": "again"}', "duplicate id"),
        ('{"_id": "x", "text": "' + "a" * 200_000 + '"}', "row longer than 150000 bytes"),
    ],
)
def test_a_bad_line_is_rejected_and_the_others_stay(tmp_path: Path, line: str | bytes, reason: str) -> None:
    good = [lines({"_id": f"good{n}", "text": "fine"}).encode() for n in range(300)]
    bad = line.encode() if isinstance(line, str) else line
    data = b"".join([*good[:200], bad, b"\n", b"\n", *good[200:]])
    got = documents_of(write(tmp_path / "d.jsonl", data), tmp_path / "run", max_row_bytes=150_000)
    assert [row["doc_id"] for row in got.rows] == [f"good{n}" for n in range(300)]
    (reject,) = got.rejects
    assert (reject["reason"], reject["file"], reject["line"]) == (reason, "d.jsonl", 201)
    assert 0 < len(reject["payload"]) <= 500
    assert got.funnel.dropped == {reason: 1}


def test_null_comes_first(tmp_path: Path) -> None:
    got = documents_of(write(tmp_path / "d.jsonl", 'null\n{"id": 1, "text": "a"}'), tmp_path / "run")
    assert got.reasons == [("not an object", 1)]
    assert got.rows[0]["doc_id"] == "1"


def test_numbers_become_their_decimal_text(tmp_path: Path) -> None:
    rows = lines(
        {"id": 7, "text": "a"}, {"id": "x", "text": "b"}, {"id": 2.5, "text": "c"}, {"id": 10**20, "text": "d"}
    )
    got = documents_of(write(tmp_path / "d.ndjson", rows), tmp_path / "run")
    assert [row["doc_id"] for row in got.rows] == ["7", "x", "2.5", "100000000000000000000"]


def test_lines_are_counted_across_blocks(tmp_path: Path) -> None:
    rows = [json.dumps({"_id": str(n), "text": "word " * 500}) for n in range(2000)]
    rows[1234] = "broken"
    got = documents_of(write(tmp_path / "d.jsonl", "\r\n".join(rows)), tmp_path / "run")
    assert (len(got.rows), got.reasons) == (1999, [("JSON syntax error", 1235)])


def test_rows_without_ids_are_named_by_their_place(tmp_path: Path) -> None:
    got = documents_of(write(tmp_path / "d.jsonl", lines({"body": "a"}, "", {"body": "b"})), tmp_path / "run")
    assert [row["doc_id"] for row in got.rows] == ["d.jsonl:1", "d.jsonl:3"]


@pytest.mark.parametrize("late", [200, 60_000])
def test_what_the_first_lines_omit_counts_in_later_ones(tmp_path: Path, late: int) -> None:
    rows = lines(*({"text": f"text {n}"} for n in range(late)), {"text": "secret", "tenant": "acme", "title": "T"})
    got = documents_of(write(tmp_path / "d.jsonl", rows), tmp_path / "run")
    assert [row["tenant"] for row in got.rows] == ["default"] * late + ["acme"]
    assert got.rows[-1]["title"] == "T"
    assert got.rows[-1]["doc_id"] == f"d.jsonl:{late + 1}"


@pytest.mark.parametrize("row", [{}, {"x": 1}, {"query": None}])
@pytest.mark.parametrize("first", [True, False])
def test_a_row_of_nothing_is_a_reject(tmp_path: Path, row: dict[str, object], first: bool) -> None:
    rows = [row, {"query": "reset"}] if first else [{"query": "reset"}, row]
    got = queries_of(write(tmp_path / "q.jsonl", lines(*rows)), tmp_path / "run")
    assert [row["text"] for row in got.rows] == ["reset"]
    assert got.reasons == [("empty text", 1 if first else 2)]
    assert got.rejects[0]["payload"] == "{}"
