"""Files of a size that trainers like: the same bytes however the rows come, and each row once on every rank."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.artifacts.parquet_writer import GROUP_ROWS, TABLE_GROUP_ROWS, Packing, encode
from darklode.schemas.mined_tables import LOG_QUERIES
from darklode.schemas.tables import TRIPLETS
from helpers.runs import REPOSITORY

ROWS = 11_000
STAGE = Stage("packing", 1, (), ("triplets",))


def numbered(rows: int = ROWS) -> pa.Table:
    return pa.table({"n": pa.array(range(rows)), "text": [f"text {number * 7919 % 10007}" for number in range(rows)]})


def packed(pieces: Iterator[pa.Table], file_bytes: int) -> list[bytes]:
    files: list[bytes] = []
    packing = Packing(lambda data, *_, **__: files.append(bytes(data)), group_rows=GROUP_ROWS, file_bytes=file_bytes)
    for piece in pieces:
        packing.write(piece)
    packing.close()
    return files


@pytest.mark.parametrize("step", [1000, GROUP_ROWS, 9_999, ROWS])
def test_the_same_rows_make_the_same_files_however_they_come(step: int) -> None:
    rows = numbered()
    files = packed((rows.slice(start, step) for start in range(0, ROWS, step)), 12_000)
    assert files == packed(iter([rows]), 12_000)
    assert len(files) > 1
    assert pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in files]).equals(rows)
    groups = [pq.ParquetFile(pa.BufferReader(data)).metadata for data in files]
    assert {one.row_group(0).num_rows for one in groups[:-1]} == {GROUP_ROWS}


def test_only_repetitive_columns_have_a_dictionary() -> None:
    rows = numbered().append_column("side", pa.array(["left", "right"] * (ROWS // 2)))
    group = pq.ParquetFile(pa.BufferReader(encode(rows))).metadata.row_group(0)
    has_dictionary = {
        group.column(number).path_in_schema: group.column(number).has_dictionary_page
        for number in range(group.num_columns)
    }
    assert has_dictionary == {"n": False, "text": False, "side": True}


@pytest.mark.parametrize("count", [10, ROWS])
def test_lists_and_structs_keep_their_dictionaries(count: int) -> None:
    """A name of the table's column does not name the Parquet column below it."""
    lists = pa.array([["a repeated text", "another"]] * count)
    columns = {
        "large": lists.cast(pa.large_list(pa.large_string())),
        "list": lists,
        "nested": pa.array([[["a repeated text"]]] * count),
        "none": pa.nulls(count),
        "pair": pa.array([{"side": "left", "kinds": ["one"]}] * count),
        "code": pa.array(["x"] * count).dictionary_encode(),
    }
    rows = numbered().slice(0, count)
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    file = pq.ParquetFile(pa.BufferReader(encode(rows)))
    group = file.metadata.row_group(0)
    has_dictionary = {
        group.column(number).path_in_schema: "RLE_DICTIONARY" in group.column(number).encodings
        for number in range(group.num_columns)
    }
    is_small = count < ROWS
    assert has_dictionary == {
        "n": is_small,
        "text": is_small,
        "large.list.element": True,
        "list.list.element": True,
        "nested.list.element.list.element": True,
        "none": has_dictionary["none"],
        "pair.side": True,
        "pair.kinds.list.element": True,
        "code": True,
    }
    assert file.read().equals(rows)


def test_a_file_ends_once_it_is_large_enough_and_nothing_makes_none() -> None:
    assert len(packed(iter([numbered()]), 1)) == -(-ROWS // GROUP_ROWS)
    assert len(packed(iter([numbered()]), 1 << 30)) == 1
    assert packed(iter([numbered(0)]), 1) == []
    assert packed(iter([]), 1) == []


def triplets(rows: int, split: str) -> pa.Table:
    names = [f"{split}{number}" for number in range(rows)]
    empty: list[list[Any]] = [[]] * rows
    same = {"tenant": ["t"] * rows, "source": ["pooled"] * rows, "split": [split] * rows}
    ids = {"triplet_id": names, "query_id": names, "query": names, "positive_id": names, "positive": names}
    lists = {"negative_ids": empty, "negatives": empty, "negative_scores": empty}
    return TRIPLETS.rows(same | ids | lists)


@pytest.fixture
def run_of_triplets(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with many small files of training triplets."""
    monkeypatch.setattr("darklode.pipeline.base.artifacts.output.FILE_BYTES", 1)

    def work(_tables: Tables, output: Output) -> None:
        with output.packed_writer("triplets", "train", "validation") as take:
            for start in range(0, 6 * GROUP_ROWS, 1000):
                take(triplets(min(1000, 6 * GROUP_ROWS - start), f"train{start}-").set_column(
                    TRIPLETS.schema.get_field_index("split"), TRIPLETS.schema.field("split"),
                    pa.array(["train"] * min(1000, 6 * GROUP_ROWS - start)),
                ), "train")  # fmt: skip
            take(triplets(10, "validation"), "validation")

    run.execute(run.plan(STAGE, {}), work)
    return run


def test_a_stage_packs_its_folders_and_its_parts_are_read_like_others(run_of_triplets: Run) -> None:
    parts = run_of_triplets.parts()["triplets"]
    assert [part.rows for part in parts] == [GROUP_ROWS] * 6 + [10]
    assert {part.file.split("/")[2] for part in parts} == {"train", "validation"}
    assert run_of_triplets.tables("triplets").rows("triplets") == 6 * GROUP_ROWS + 10


DATED = Stage("packing", 1, (), ("log_queries",))


def asked(first: int, rows: int) -> pa.Table:
    names = [f"query {number * 7919 % 100_003}" for number in range(first, first + rows)]
    same = {"tenant": ["t"] * rows, "date": [date(2026, 3, 1 + first % 2)] * rows}
    return LOG_QUERIES.rows(same | {"query_id": names, "text": names, "normal_form": names})


def test_pieces_of_any_size_make_the_files_that_whole_parts_make(run: Run) -> None:
    rows, most = asked(1, 2 * TABLE_GROUP_ROWS + 5), TABLE_GROUP_ROWS + 1000

    def whole(_tables: Tables, output: Output) -> None:
        for start in range(0, rows.num_rows, most):
            output.write("log_queries", rows.slice(start, most))

    def pieces(_tables: Tables, output: Output) -> None:
        with output.row_group_writer("log_queries", most) as take:
            for start in range(0, rows.num_rows, 7001):
                take(rows.slice(start, 7001))

    made = [run.execute(run.plan(DATED, {}), work).outputs["log_queries"] for work in (whole, pieces)]
    assert made[0] == made[1]
    assert [(part.rows, part.day) for part in made[1]] == [(most, "2026-03-02"), (rows.num_rows - most, "2026-03-02")]


def test_an_answer_of_many_rows_is_never_held_as_a_part(run: Run) -> None:
    query = """SELECT 't' AS tenant, md5(CAST(i AS VARCHAR)) AS query_id, 'text' AS text, md5(CAST(i + 1 AS VARCHAR))
               AS normal_form, DATE '2026-03-01' AS date, CAST(NULL AS VARCHAR) AS session_split
               FROM range(400000) t(i)"""
    held = []

    def work(_tables: Tables, output: Output) -> None:
        before = pa.total_allocated_bytes()
        with duckdb.connect() as connection, mock.patch.object(Packing, "write", autospec=True) as watched:
            watched.side_effect = lambda packing, rows: (write(packing, rows), held.append(pa.total_allocated_bytes()))
            output.write_answer("log_queries", connection, query, {})
        held[:] = [after - before for after in held]

    write = Packing.write
    parts = run.execute(run.plan(DATED, {}), work).outputs["log_queries"]
    assert [part.rows for part in parts] == [400_000]
    assert max(held) - parts[0].size < 0.5 * 400_000 * 80  # bytes of a row: 64 of hashes, and what goes with them


def test_a_folder_of_a_day_notes_the_day(run: Run) -> None:
    folder = "tenant-t/date-2026-03-01/source-pooled/split-train"
    rows = triplets(10, "train").set_column(
        TRIPLETS.schema.get_field_index("date"), TRIPLETS.schema.field("date"), pa.array([date(2026, 3, 1)] * 10)
    )

    def work(_tables: Tables, output: Output) -> None:
        with output.packed_writer("triplets", folder) as take:
            take(rows, folder)

    (part,) = run.execute(run.plan(STAGE, {}), work).outputs["triplets"]
    assert part.day == "2026-03-01"
    assert run.tables("triplets").read("triplets")["date"].to_pylist() == [date(2026, 3, 1)] * 10


def test_rows_of_another_schema_are_refused(run: Run) -> None:
    def work(_tables: Tables, output: Output) -> None:
        with output.packed_writer("triplets", "train") as take:
            take(numbered(), "train")

    with pytest.raises(ValueError, match="do not have the schema"):
        run.execute(run.plan(STAGE, {}), work)


def example(number: int) -> str:
    """One of the loaders of docs/guides/export.md, as it stands there."""
    section = (
        (REPOSITORY / "docs" / "guides" / "export.md").read_text(encoding="utf-8").partition("## Many trainers")[2]
    )
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["datasets", "by file"])
def test_all_ranks_together_read_each_row_once(run_of_triplets: Run, number: int) -> None:
    folder = Path(run_of_triplets.store.url, "tables", "triplets", "train")
    seen: list[str] = []
    for rank in range(2):
        given: dict[str, Any] = {}
        exec(example(number), given)
        mine = [row["triplet_id"] for row in given["rows_of"](str(folder), rank, 2)]
        assert len(mine) == 3 * GROUP_ROWS
        seen += mine
    assert len(set(seen)) == len(seen) == 6 * GROUP_ROWS
