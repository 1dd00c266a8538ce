"""An array is read as JSON lines are: the same rows, wherever the pieces break."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darklode.pipeline.ingest.readers.json_array import elements, is_array, is_pretty_printed, objects
from helpers.ingesting import documents_of, queries_of, write

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"\\,[]{}\n é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from('ab"\\'), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 1, "\t"]), st.integers(1, 7), st.booleans())
def test_the_lines_are_the_elements(
    values: list[object], indent: int | str | None, size: int, ascii_only: bool
) -> None:
    data = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    assert is_array(data)
    made = b"".join(elements(iter(data[at : at + size] for at in range(0, len(data), size))))
    assert [json.loads(line) for line in made.splitlines() if line] == values


def test_an_array_of_documents_and_of_queries(tmp_path: Path) -> None:
    rows = [{"id": f"d{n}", "text": f'text, {n} "[" \\'} for n in range(3000)]
    file = write(tmp_path / "docs.json", json.dumps(rows, indent=2))
    found = documents_of(file, tmp_path / "run")
    assert [(row["doc_id"], row["text"]) for row in found.rows] == [(row["id"], row["text"]) for row in rows]
    assert found.rejects == []
    assert len(queries_of(file, tmp_path / "other").rows) == 3000


def test_elements_that_are_no_rows_are_rejects_by_their_number(tmp_path: Path) -> None:
    file = write(tmp_path / "q.json", '[{"text": "a"}, 3, {"text": "b"}, null, [1, 2], {"text": "c"}, {"text": ')
    found = queries_of(file, tmp_path / "run")
    assert [row["text"] for row in found.rows] == ["a", "b", "c"]
    assert found.reasons == [("not an object", 2), ("not an object", 4), ("not an object", 5), ("JSON syntax error", 7)]


@pytest.mark.parametrize("name", ["q.json", "q.jsonl", "q.ndjson"])
def test_the_ending_does_not_decide(tmp_path: Path, name: str) -> None:
    (row,) = queries_of(write(tmp_path / name, '\n [{"text": "a"}]\n'), tmp_path / "run").rows
    assert row["text"] == "a"


def test_beside_other_files_json_is_about_them(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", '{"text": "a"}\n')
    write(tmp_path / "in" / "schema.json", '{"fields": []}')
    found = documents_of(tmp_path / "in", tmp_path / "run")
    assert len(found.rows) == 1
    assert found.reasons == [("not a document format", None)]


OBJECTS = st.lists(st.dictionaries(st.sampled_from('ab"\\'), VALUES, min_size=1, max_size=3), min_size=1, max_size=4)


@given(OBJECTS, st.sampled_from([1, "\t"]), st.integers(1, 7), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_the_lines_are_the_objects(values: list[object], indent: int | str, size: int, between: str) -> None:
    data = between.join(json.dumps(value, indent=indent) for value in values).encode()
    assert is_pretty_printed(data)
    assert not is_array(data)
    made = b"".join(objects(iter(data[at : at + size] for at in range(0, len(data), size))))
    assert [json.loads(line) for line in made.splitlines() if line] == values


BROKEN_LINES = ['{"a": 1,\n{"b": 2}', '{"a": "x\n{"b": 1}\n', '{"a": [\n{"b": 2}\n{"c": 3}', '{"a":\n{"b": 2}\n{"c']


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', '{"a": 1}\n{"b": 2}', *BROKEN_LINES, "{", "\n{\n", "x"])
def test_other_files_are_not_pretty_printed(text: str) -> None:
    assert not is_pretty_printed(text.encode())


@given(OBJECTS, st.booleans(), st.data())
def test_an_object_may_go_on_past_the_head(values: list[object], ascii_only: bool, data: st.DataObject) -> None:
    text = json.dumps(
        {"rows": [{"values": [*values, -1.5e-7, True, "é😀"]}]}, indent=2, ensure_ascii=ascii_only
    ).encode()
    assert is_pretty_printed(text[: data.draw(st.integers(5, len(text)))])


def test_an_object_larger_than_the_head_is_read(tmp_path: Path) -> None:
    rows = [{"id": f"d{n}", "text": "long text. " * 120_000} for n in range(2)]
    file = write(tmp_path / "docs.json", "\n".join(json.dumps(row, indent=2) for row in rows))
    found = documents_of(file, tmp_path / "run")
    assert [row["doc_id"] for row in found.rows] == ["d0", "d1"]
    assert found.rejects == []


def test_a_folder_of_pretty_printed_objects_is_read(tmp_path: Path) -> None:
    rows = [{"id": f"d{n}", "text": f'a "text" {{ {n}\n'} for n in range(5)]
    for row in rows:
        write(tmp_path / "docs" / f"{row['id']}.json", json.dumps(row, indent=4))
    found = documents_of(tmp_path / "docs", tmp_path / "run")
    assert [(row["doc_id"], row["text"]) for row in found.rows] == [(row["id"], row["text"]) for row in rows]
    assert found.rejects == []
    several = write(tmp_path / "q.json", "\n".join(json.dumps({"text": text}, indent=2) for text in ("one", "two")))
    assert [row["text"] for row in queries_of(several, tmp_path / "other").rows] == ["one", "two"]
