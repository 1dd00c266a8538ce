"""Files of a size that trainers like: the same bytes however the rows come, and each row once on every rank."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.artifacts.packing import GROUP_ROWS, Packing
from darklode.schemas.tables import TRIPLETS
from helpers.runs import REPOSITORY

ROWS = 11_000
STAGE = Stage("packing", 1, (), ("triplets",))


def numbered(rows: int = ROWS) -> pa.Table:
    return pa.table({"n": pa.array(range(rows)), "text": [f"text {number * 7919 % 10007}" for number in range(rows)]})


def packed(pieces: Iterator[pa.Table], file_bytes: int) -> list[bytes]:
    files: list[bytes] = []
    packing = Packing(lambda data, _rows: files.append(data), file_bytes)
    for piece in pieces:
        packing.write(piece)
    packing.close()
    return files


@pytest.mark.parametrize("step", [1000, GROUP_ROWS, 9_999, ROWS])
def test_the_same_rows_make_the_same_files_however_they_come(step: int) -> None:
    rows = numbered()
    files = packed((rows.slice(start, step) for start in range(0, ROWS, step)), 30_000)
    assert files == packed(iter([rows]), 30_000)
    assert len(files) > 1
    assert pa.concat_tables([pq.read_table(pa.BufferReader(data)) for data in files]).equals(rows)
    groups = [pq.ParquetFile(pa.BufferReader(data)).metadata for data in files]
    assert {one.row_group(0).num_rows for one in groups[:-1]} == {GROUP_ROWS}


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
    monkeypatch.setattr("darklode.pipeline.base.artifacts.packing.FILE_BYTES", 1)

    def work(_tables: Tables, output: Output) -> None:
        with output.packed("triplets", "train", "validation") as take:
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


def test_rows_of_another_schema_are_refused(run: Run) -> None:
    def work(_tables: Tables, output: Output) -> None:
        with output.packed("triplets", "train") as take:
            take(numbered(), "train")

    with pytest.raises(ValueError, match="do not have the schema"):
        run.execute(run.plan(STAGE, {}), work)


def example(number: int) -> str:
    """One of the loaders of docs/data.md, as it stands there."""
    section = (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8").partition("### Many trainers")[2]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]


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
