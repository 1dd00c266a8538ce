"""Documents from JSON lines, CSV, Parquet and BEIR."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import InputError, TooManyRejects
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.schemas.settings import IngestSettings
from helpers.ingesting import documents_of, lines, write


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


def test_csv_with_quotes_and_bad_rows(tmp_path: Path) -> None:
    data = (
        b'id,title,text\r\n1,"a, ""b""","two\nlines"\r\n\r\n2,only two\r\n3,5" pipe,good\r\n4,a,b,c\r\n'
        b"5,caf\xe9,x\r\n6,n\0l,x\r\n7,t,\r\n1,t,again\r\n8,\xc3\xa9,last"
    )
    got = documents_of(write(tmp_path / "d.csv", data), tmp_path / "run")
    assert [(row["doc_id"], row["title"], row["text"]) for row in got.rows] == [
        ("1", 'a, "b"', "two\nlines"),
        ("3", '5" pipe', "good"),
        ("8", "é", "last"),
    ]
    assert sorted(got.reasons, key=str) == [
        ("NUL byte", 9),
        ("duplicate id", 11),
        ("empty text", 10),
        ("not UTF-8", 8),
        ("wrong number of fields", 5),
        ("wrong number of fields", 7),
    ]


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path: Path) -> None:
    rows = ["id,text", "1,good", '2,"open', *(f"{n},good" for n in range(3, 200))]
    got = documents_of(write(tmp_path / "d.csv", "\n".join(rows)), tmp_path / "run")
    assert (len(got.rows), got.reasons) == (198, [("quote never closed", 3)])


def test_a_lone_carriage_return_in_csv_spoils_its_own_row_only(tmp_path: Path) -> None:
    got = documents_of(write(tmp_path / "d.csv", "id,text\n1,a\n2,b\rc\n3,d\n"), tmp_path / "run")
    assert ([row["doc_id"] for row in got.rows], got.reasons) == (["1", "3"], [("wrong number of fields", 3)])


def test_quoted_rows_across_blocks(tmp_path: Path) -> None:
    rows = "".join(f'{n},"{"line" * 300}\n{n}"\n' for n in range(2500))
    got = documents_of(write(tmp_path / "d.csv", "id,text\n" + rows + "bad\n"), tmp_path / "run")
    assert [row["doc_id"] for row in got.rows] == [str(n) for n in range(2500)]
    assert got.rows[-1]["text"].endswith("line\n2499")
    assert got.reasons == [("wrong number of fields", 5002)]


def test_tsv_and_gzip(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.tsv.gz", gzip.compress(b"docid\tcontents\n1\tx, y\n"))
    write(docs / "b.jsonl.gz", gzip.compress(b'{"docid": 2, "contents": "z"}\n'))
    write(docs / "notes.pdf", b"%PDF")
    got = documents_of(docs, tmp_path / "run")
    assert [(row["doc_id"], row["text"]) for row in got.rows] == [("1", "x, y"), ("2", "z")]
    assert [(row["file"], row["reason"]) for row in got.rejects] == [("notes.pdf", "not a document format")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["d.csv", "d.jsonl"])
def test_byte_order_marks(tmp_path: Path, name: str, encoding: str) -> None:
    text = "id,text\n1,Straße\n" if name == "d.csv" else lines({"id": 1, "text": "Straße"})
    (row,) = documents_of(write(tmp_path / name, text.encode(encoding)), tmp_path / "run").rows
    assert (row["doc_id"], row["text"]) == ("1", "Straße")


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    rows = lines(*({"id": n, "text": f"word {n * n}"} for n in range(5000)))
    cut = write(tmp_path / "d.jsonl.gz", gzip.compress(rows.encode())[:-100])
    with pytest.raises(InputError, match="not a whole gzip file"):
        documents_of(cut, tmp_path / "run")
    with pytest.raises(InputError, match="not a Parquet file"):
        documents_of(write(tmp_path / "d.parquet", b"PAR1 no"), tmp_path / "run")
    with pytest.raises(InputError, match="UTF-16"):
        documents_of(write(tmp_path / "d.csv", b"\xff\xfei\0d"), tmp_path / "run")
    with pytest.raises(InputError, match="header"):
        documents_of(write(tmp_path / "e.csv", b"id,te\xffxt\n1,a"), tmp_path / "run")


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3, 4, None], pa.int32()),
            "text": pa.array(["a", None, "b\0", b"\xff", "e"], pa.binary()),
            "title": pa.array(["x", "y", "z", "x", "y"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "d.parquet")
    got = documents_of(tmp_path / "d.parquet", tmp_path / "run")
    assert [(row["doc_id"], row["title"], row["text"]) for row in got.rows] == [("1", "x", "a")]
    assert sorted(got.reasons) == [("NUL byte", 3), ("empty text", 2), ("missing id", 5), ("not UTF-8", 4)]


def test_a_parquet_column_of_another_kind_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "text": [["b"]]}), tmp_path / "d.parquet")
    with pytest.raises(InputError, match=r"column 'text' holds list<.*>, not text"):
        documents_of(tmp_path / "d.parquet", tmp_path / "run")


def test_a_long_text_in_parquet_is_rejected(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["x" * 11, "y" * 10]}), tmp_path / "d.parquet")
    got = documents_of(tmp_path / "d.parquet", tmp_path / "run", max_row_bytes=10)
    assert ([row["doc_id"] for row in got.rows], got.reasons) == (["b"], [("row longer than 10 bytes", 1)])


@pytest.mark.parametrize("packed", [False, True])
def test_a_beir_folder(tmp_path: Path, packed: bool) -> None:
    corpus = lines({"_id": "1", "title": "T", "text": "a", "metadata": {}}).encode()
    beir = tmp_path / "beir"
    write(beir / ("corpus.jsonl.gz" if packed else "corpus.jsonl"), gzip.compress(corpus) if packed else corpus)
    write(beir / "queries.jsonl", lines({"_id": "q", "text": "query"}))
    write(beir / "README.md", "about")
    got = documents_of(beir, tmp_path / "run")
    assert [(row["doc_id"], row["title"]) for row in got.rows] == [("1", "T")]
    assert got.rejects == []


def test_a_format_can_be_forced(tmp_path: Path) -> None:
    write(tmp_path / "in" / "part-0", lines({"id": 1, "text": "a"}))
    write(tmp_path / "in" / "readme.md", "about")
    forced: dict[str, Any] = {"documents": {"format": "jsonl"}}
    (row,) = documents_of(tmp_path / "in" / "part-0", tmp_path / "run", **forced).rows
    assert row["doc_id"] == "1"
    with pytest.raises(InputError, match=r"has no corpus\.jsonl"):
        documents_of(tmp_path / "in", tmp_path / "run", documents={"format": "beir"})
    got = documents_of(tmp_path / "in", tmp_path / "run", documents={"format": "folder"})
    assert [row["doc_id"] for row in got.rows] == ["readme.md"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": "contnt"}, r"no column 'contnt' \(ingest\.documents\.columns\.text\).*has key, content.*'content'"),
        ({"tenant": "org"}, r"no column 'org'.*name one of them or none"),
    ],
)
@pytest.mark.parametrize("name", ["d.csv", "d.jsonl", "d.parquet"])
def test_a_mapped_column_must_exist(tmp_path: Path, name: str, columns: dict[str, str], message: str) -> None:
    if name == "d.parquet":
        pq.write_table(pa.table({"key": ["1"], "content": ["a"]}), tmp_path / name)
    else:
        write(tmp_path / name, "key,content\n1,a\n" if name == "d.csv" else lines({"key": 1, "content": "a"}))
    with pytest.raises(InputError, match=message):
        documents_of(tmp_path / name, tmp_path / "run", documents={"columns": columns})


def test_a_source_without_a_text_column_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column for the text .*it has id, words; name it in .*columns\.text"):
        documents_of(write(tmp_path / "d.csv", "id,words\n1,a\n"), tmp_path / "run")


def test_mapped_columns_are_used(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "key,content,org,text\n1,a,acme,no\n")
    columns = {"doc_id": "key", "text": "content", "tenant": "org"}
    (row,) = documents_of(path, tmp_path / "run", documents={"columns": columns}).rows
    assert (row["doc_id"], row["text"], row["tenant"]) == ("1", "a", "acme")


@pytest.mark.parametrize("content", ["", "id,text\n", "\n\n", "id,text\n1,\n2,\n"])
def test_nothing_to_read_is_an_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"d\.csv.*check"):
        documents_of(write(tmp_path / "d.csv", content), tmp_path / "run")


def test_the_share_of_rejects_is_bounded(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", lines({"id": 1, "text": "a"}, "x", "y", {"id": 2, "text": "b"}, {"id": 3}))
    with pytest.raises(TooManyRejects, match=r"3 of 5 rows.*more than 59%.*JSON syntax error: 2, such as d\.jsonl:2"):
        documents_of(path, tmp_path / "run", max_reject_share=0.59)
    assert len(documents_of(path, tmp_path / "run", max_reject_share=0.6).rows) == 2


def test_ids_may_repeat_in_other_tenants_only(tmp_path: Path) -> None:
    rows = lines(*({"id": n, "text": f"{n}", "tenant": t} for t in ("a", "b", "a") for n in range(3)))
    got = documents_of(write(tmp_path / "d.jsonl", rows), tmp_path / "run")
    assert [(row["tenant"], row["doc_id"]) for row in got.rows] == [(t, str(n)) for t in "ab" for n in range(3)]
    assert [(row["tenant"], row["represented_by"]) for row in got.rejects] == [("a", "0"), ("a", "1"), ("a", "2")]


def test_a_new_and_a_changed_document_change_their_own_parts_only(tmp_path: Path) -> None:
    rows = [json.dumps({"id": n, "text": f"{n} " + "word " * 1000}) for n in range(4000)]
    path = write(tmp_path / "d.jsonl", "\n".join(rows))
    before = documents_of(path, tmp_path / "run").run.parts()["documents"]
    rows[1500] = json.dumps({"id": 1500, "text": "changed " * 3000})
    rows.insert(0, json.dumps({"id": "new", "text": "word " * 5000}))
    after = documents_of(write(path, "\n".join(rows)), tmp_path / "run").run.parts()["documents"]
    assert len(before) == len(after) >= 5
    assert len({part.sha256 for part in after} - {part.sha256 for part in before}) == 2


def test_an_id_may_come_back_much_later(tmp_path: Path) -> None:
    rows = [json.dumps({"id": n % 1999, "text": f"{n} " + "word " * 500}) for n in range(2000)]
    got = documents_of(write(tmp_path / "d.jsonl", "\n".join(rows)), tmp_path / "run")
    assert (len(got.rows), got.reasons, got.rejects[0]["id"]) == (1999, [("duplicate id", 2000)], "0")


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", lines(*({"id": n, "text": "word " * 500} for n in range(1000))))
    run, told = Run(str(tmp_path / "run")), []
    work = lambda _tables, output: ingest_documents(str(path), output, IngestSettings())  # noqa: E731
    run.execute(run.plan(INGEST_DOCUMENTS, {}), work, lambda done, total, _note: told.append((done, total)))
    size = path.stat().st_size
    assert told == sorted(told)
    assert len(told) >= 3
    assert told[-1] == (size, size)
