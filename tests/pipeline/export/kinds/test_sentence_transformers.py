from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import config, load_dataset

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ExportError
from darklode.pipeline.export.formats import export
from darklode.schemas.tables import TRIPLETS
from helpers.finished_run import QUERY_TEXTS, finished_run
from helpers.runs import put


@pytest.fixture
def datasets_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    return str(tmp_path / "cache")


def triplets(counts: list[int]) -> pa.Table:
    """One training row for each count of negatives."""
    names = [f"t{row:03}" for row in range(len(counts))]
    negatives = [[f"{name} n{place}" for place in range(count)] for name, count in zip(names, counts, strict=True)]
    columns = dict.fromkeys(("triplet_id", "query_id", "query", "positive_id", "positive"), names)
    same = {"tenant": ["t"] * len(counts), "source": ["pooled"] * len(counts), "split": ["train"] * len(counts)}
    scores = [[0.1] * count for count in counts]
    lists = {"negative_ids": negatives, "negatives": negatives, "negative_scores": scores}
    return TRIPLETS.rows(columns | same | lists)


def test_datasets_loads_the_columns_in_order(tmp_path: Path, datasets_home: str) -> None:
    export(finished_run(str(tmp_path / "run")), "sentence-transformers", tmp_path / "out")
    files = {split: str(tmp_path / "out" / "triplet" / f"{split}.parquet") for split in ("train", "validation")}
    loaded = load_dataset("parquet", data_files=files, cache_dir=datasets_home)
    assert {split: rows.column_names for split, rows in loaded.items()} == {
        "train": ["anchor", "positive", "negative"],
        "validation": ["anchor", "positive", "negative"],
    }
    assert {split: rows.num_rows for split, rows in loaded.items()} == {"train": 8, "validation": 6}
    first = {"anchor": QUERY_TEXTS[0], "positive": "one\n\n- a list\ttab", "negative": 'He said "no"'}
    assert loaded["train"][0] == first
    assert loaded["train"][1] == first | {"negative": "plain"}

    tuples = load_dataset(str(tmp_path / "out"), "n-tuple", cache_dir=datasets_home)
    assert tuples["train"].column_names == ["anchor", "positive", "negative_1"]
    assert {split: rows.num_rows for split, rows in tuples.items()} == {"train": 4, "validation": 4}


@pytest.mark.parametrize(
    ("counts", "width", "kept"),
    [
        ([3] * 9 + [1], 3, 9),
        ([3] * 8 + [1, 1], 1, 10),
        ([2] * 18 + [16] * 81 + [1], 2, 99),
        ([4] + [0] * 50, 4, 1),
    ],
)
def test_n_tuples_are_as_wide_as_nine_rows_in_ten(
    counts: list[int], width: int, kept: int, run: Run, tmp_path: Path
) -> None:
    put(run, "triplets", triplets(counts))
    export(run, "sentence-transformers", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "n-tuple" / "train.parquet")
    assert table.column_names == ["anchor", "positive", *(f"negative_{place + 1}" for place in range(width))]
    assert table.num_rows == kept
    assert all(row[f"negative_{width}"] == f"{row['anchor']} n{width - 1}" for row in table.to_pylist())
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf8")
    short = sum(0 < count < width for count in counts)
    assert f"negative_1 to negative_{width}" in readme
    assert f"{short} of {sum(count > 0 for count in counts)} rows have fewer" in readme


def test_every_negative_is_a_row_hardest_first(run: Run, tmp_path: Path) -> None:
    put(run, "triplets", triplets([3, 0, 2]))
    files = export(run, "sentence-transformers", tmp_path / "out")
    assert [file.name for file in files] == ["README.md", "train.parquet", "train.parquet"]
    rows = pq.read_table(tmp_path / "out" / "triplet" / "train.parquet")["negative"].to_pylist()
    assert rows == ["t000 n0", "t000 n1", "t000 n2", "t002 n0", "t002 n1"]


def test_triplets_without_any_negative_are_refused(run: Run, tmp_path: Path) -> None:
    put(run, "triplets", triplets([0, 0]))
    with pytest.raises(ExportError, match="no triplet with a negative"):
        export(run, "sentence-transformers", tmp_path / "out")
