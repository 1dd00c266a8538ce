"""Which column plays which part: named by the settings, by its usual name, within another, or missing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.ingest.columns import Values, names_in, query_columns, value_at
from darklode.schemas.settings import QueryColumns
from helpers.ingesting import documents_of, ingest, lines, write
from helpers.log_ingesting import FULL, logs_of


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"text": "contnt"},
            r"no column 'contnt' \(ingest\.documents\.columns\.text\).*has key, content;.*columns\.text=content\?$",
        ),
        ({"tenant": "org"}, r"no column 'org'.*set one of them, or leave it unset"),
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
    with pytest.raises(
        InputError, match=r"no column for the text .*it has id, words; is it --set .*columns\.text=words\?$"
    ):
        documents_of(write(tmp_path / "d.csv", "id,words\n1,a\n"), tmp_path / "run")


def test_mapped_columns_are_used(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "key,content,org,text\n1,a,acme,no\n")
    columns = {"doc_id": "key", "text": "content", "tenant": "org"}
    (row,) = documents_of(path, tmp_path / "run", documents={"columns": columns}).rows
    assert (row["doc_id"], row["text"], row["tenant"]) == ("1", "a", "acme")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_column_may_lie_within_another(tmp_path: Path, form: str) -> None:
    row = {"at": FULL["timestamp"], "q": {"text": "a", "by": {"session": "s"}}, "hit": {"id": "d", "clicked": True}}
    path = tmp_path / f"log.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([row, row | {"hit": None}]), path)
    else:
        write(path, lines(row, row | {"hit": None}, row | {"hit": {"id": {"no": 1}}}))
    names = {"timestamp": "at", "query": "q.text", "session_id": "q.by.session", "doc_id": "hit.id"}
    got = logs_of(path, tmp_path / "run", columns=names | {"clicked": "hit.clicked"})
    assert [(row["query"], row["session_id"], row["doc_id"], row["clicked"]) for row in got.rows] == [
        ("a", "s", "d", True)
    ]
    assert sorted(got.reasons) == [("empty doc_id", 2), ("wrong type", 3)][: 1 if form == "parquet" else 2]


def test_a_name_with_a_dot_may_be_a_whole_one(tmp_path: Path) -> None:
    row = FULL | {"hit.id": "whole", "hit": {"id": "inner"}}
    got = logs_of(write(tmp_path / "log.jsonl", lines(row)), tmp_path / "run", columns={"doc_id": "hit.id"})
    assert got.column("doc_id") == ["whole"]


def test_settings_map_front_matter_keys(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"a.md": "---\nslug: start\nname: Begin\n---\ntext", "b.md": "no front matter"}
    got = ingest(tmp_path, files, documents={"columns": {"doc_id": "slug", "title": "name"}})
    assert [(row["doc_id"], row["title"]) for row in got.rows] == [("start", "Begin"), ("b.md", None)]


def test_a_mapped_key_that_no_document_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no column 'titel'.*is it --set ingest\.documents\.columns\.title=title\?"):
        ingest(tmp_path, {"a.md": "---\ntitle: A\n---\ntext"}, documents={"columns": {"title": "titel"}})


def test_a_name_of_the_settings_goes_before_the_usual_ones_and_those_in_their_order() -> None:
    usual = query_columns(QueryColumns())
    assert usual.find("f", ["query", "text", "qid", "id"]) == {"query_id": "id", "text": "text"}
    named = query_columns(QueryColumns(text="query"))
    assert named.find("f", ["query", "text"]) == {"text": "query"}


def test_objects_in_objects_are_named_by_their_path() -> None:
    row: Values = {"a": {"b": {"c": 1}}, "a.b": 2, "d": None}
    assert names_in([row], nested=True) == ["a", "a.b", "a.b.c", "d"]
    assert names_in([row], nested=False) == ["a", "a.b", "d"]
    assert (value_at(row, "a.b"), value_at({"a": {"b": 3}}, "a.b"), value_at(row, "d.e")) == (2, 3, None)
