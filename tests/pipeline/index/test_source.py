"""Files of vectors: read, kept in the cache once, and refused where they are none."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import ArtifactError, InputError
from darklode.pipeline.index import source as given
from darklode.pipeline.index.source import FileSource, StoredVectors, truncate_and_normalize
from darklode.schemas.settings import CacheSettings
from helpers.adapted import model_in
from helpers.indexed import IDS, clustered, put_vectors


def of_file(path: Path, root: Path, dimensions: int | None = None) -> FileSource:
    return FileSource(
        str(path), "acme", StoredVectors(model_in(root), CacheSettings(root=str(root / "cache")), dimensions)
    )


def test_vectors_come_back_cut_and_scaled(tmp_path: Path) -> None:
    vectors = clustered(50)
    put_vectors(tmp_path / "v.parquet", IDS[:50][::-1], vectors[::-1])
    source = of_file(tmp_path / "v.parquet", tmp_path, 8)
    rows = source.rows()
    assert rows["text_id"].to_pylist() == IDS[:50]
    np.testing.assert_array_equal(source.stored_vectors.take(rows["content_hash"]), truncate_and_normalize(vectors, 8))
    parts = list(source.stored_vectors.blocks(rows["content_hash"], 20))
    assert [(start, len(block)) for start, block in parts] == [(0, 20), (20, 20), (40, 10)]


def test_vectors_that_were_pruned_are_missed_until_they_are_computed_again(tmp_path: Path) -> None:
    """The cache stays open between reads."""
    stored = StoredVectors(model_in(tmp_path), CacheSettings(root=str(tmp_path / "cache")), None)
    name, hashes = stored.encoder.encoder_id(), pa.array([f"{number:032x}" for number in range(10)])
    vectors = np.random.default_rng(0).standard_normal((10, 8)).astype(np.float32)
    for half in (slice(0, 5), slice(5, 10)):
        stored.memory().append(name, hashes.take(pa.array(range(10)[half])), vectors[half])
    before = stored.take(hashes[:5])
    stored.memory().prune()
    with pytest.raises(ArtifactError, match="were pruned while in use; run the command again"):
        stored.take(hashes[5:])
    stored.memory().append(name, hashes, vectors)
    np.testing.assert_array_equal(stored.take(hashes)[:5], before)


def test_an_array_has_its_row_numbers_for_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", clustered(12))
    rows = of_file(tmp_path / "v.npy", tmp_path).rows()
    assert rows["text_id"].to_pylist() == [f"{number:02}" for number in range(12)]


def test_equal_vectors_are_kept_once(tmp_path: Path) -> None:
    put_vectors(tmp_path / "v.parquet", IDS[:4], clustered(2)[[0, 1, 0, 1]])
    source = of_file(tmp_path / "v.parquet", tmp_path)
    assert len(set(source.rows()["content_hash"].to_pylist())) == 2
    shards = source.stored_vectors.open()
    assert shards is not None
    assert len(shards) == 2
    assert source.content() == of_file(tmp_path / "v.parquet", tmp_path).content()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text_id": ["a"]}, "no column vector"),
        ({"text_id": ["a", "a"], "vector": [[1.0], [2.0]]}, "text_id a occurs twice"),
        ({"text_id": ["a", "b"], "vector": [[1.0], [2.0, 3.0]]}, "row 2, text_id b: the vector has 2 numbers"),
        ({"text_id": ["a"], "vector": ["1.0 2.0"]}, "must hold lists of numbers, but is of type string"),
        ({"text_id": ["a"], "vector": [["1.0"]]}, "must hold lists of numbers"),
        ({"text_id": ["a", None], "vector": [[1.0], [2.0]]}, "row 2, text_id None: text_id is null"),
        ({"text_id": ["a", "b"], "vector": [[1.0], None]}, "row 2, text_id b: vector is null"),
        ({"text_id": ["a"], "vector": pa.array([[]], pa.list_(pa.float32()))}, "text_id a: the vector has no numbers"),
        ({"text_id": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32()))}, "contains no vectors"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=said):
        of_file(tmp_path / "v.parquet", tmp_path).rows()


def put_lists(path: Path, vectors: list[list[float]]) -> None:
    column = pa.array(vectors, pa.list_(pa.float64()))
    pq.write_table(pa.table({"text_id": IDS[: len(vectors)], "vector": column}), path, row_group_size=32)


def test_rows_of_other_lengths_are_refused_where_all_together_have_the_right_number(tmp_path: Path) -> None:
    """One number more in row 11 and one less in row 21 leave the sum of lengths as it should be."""
    vectors = clustered(64).astype(float).tolist()
    vectors[10].append(0.5)
    vectors[20].pop()
    put_lists(tmp_path / "v.parquet", vectors)
    with pytest.raises(
        InputError, match=rf"v\.parquet, row 11, text_id {IDS[10]}: the vector has 33 numbers, .* 32 \(1"
    ):
        of_file(tmp_path / "v.parquet", tmp_path).rows()


def test_all_batches_have_vectors_of_one_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "VECTORS_PER_BLOCK", 32)  # as `iter_batches` is told
    vectors = clustered(64).astype(float).tolist()
    put_lists(tmp_path / "v.parquet", [*vectors[:32], *(one[:30] for one in vectors[32:])])
    with pytest.raises(
        InputError, match=f"row 33, text_id {IDS[32]}: the vector has 30 numbers, the first row of the file 32"
    ):
        of_file(tmp_path / "v.parquet", tmp_path).rows()


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (np.nan, "NaN or infinite"),
        (-np.inf, "NaN or infinite"),
        (0.0, "only zeros"),
        (1e9, "float16 .cache.vector_dtype."),
    ],
)
def test_a_vector_without_direction_is_refused_by_its_row(
    tmp_path: Path, number: float, said: str, suffix: str
) -> None:
    vectors = clustered(8)
    vectors[5] = number
    file, name = tmp_path / f"v.{suffix}", IDS[5] if suffix == "parquet" else "5"
    np.save(file, vectors) if suffix == "npy" else put_vectors(file, IDS[:8], vectors)
    cache = CacheSettings(root=str(tmp_path / "cache"), vector_dtype="float16")
    source = FileSource(str(file), "acme", StoredVectors(model_in(tmp_path), cache, None))
    with pytest.raises(InputError, match=rf"v\.{suffix}, row 6, text_id {name}: .*{said}"):
        source.rows()
    assert source.vectors.open() is None, "nothing of the file was cached"


def test_a_null_in_a_vector_is_refused(tmp_path: Path) -> None:
    put_lists(tmp_path / "v.parquet", [[1.0, 2.0], [1.0, None]])  # type: ignore[list-item]
    with pytest.raises(InputError, match=f"row 2, text_id {IDS[1]}: the vector has a null"):
        of_file(tmp_path / "v.parquet", tmp_path).rows()


@pytest.mark.parametrize("array", [np.zeros(3, np.float32), np.full((2, 2), "a"), np.zeros((2, 0), np.float32)])
def test_an_array_of_another_form_is_refused(tmp_path: Path, array: Any) -> None:
    np.save(tmp_path / "v.npy", array)
    with pytest.raises(InputError, match=r"expected numbers of shape \(n, dimensions\), got"):
        of_file(tmp_path / "v.npy", tmp_path).rows()


@pytest.mark.server
def test_a_file_on_s3_is_read_and_another_content_is_noticed(tmp_path: Path, bucket: str) -> None:
    """Both files have the same size; only a row in the middle differs."""
    vectors = clustered(50)
    url, keys = f"{bucket}/vectors.parquet", []
    for changed in (False, True):
        mine = vectors.copy()
        mine[25] = -mine[25] if changed else mine[25]
        Store(bucket).write("vectors.parquet", Path(put_vectors(tmp_path / "v.parquet", IDS[:50], mine)).read_bytes())
        source = FileSource(
            url, "acme", StoredVectors(model_in(tmp_path), CacheSettings(root=str(tmp_path / "cache")), None)
        )
        assert source.rows()["text_id"].to_pylist() == IDS[:50]
        keys += [source.content(), source.content()]
    assert keys[0] == keys[1] != keys[2] == keys[3]
