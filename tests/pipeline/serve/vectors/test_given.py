"""Files of vectors: read, kept in the cache once, and refused where they are none."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darklode.pipeline.base.errors import ArtifactError, InputError
from darklode.pipeline.serve.vectors.given import Kept, OfFile, scaled
from darklode.schemas.settings import CacheSettings
from helpers.adapted import model_in
from helpers.indexed import IDS, clustered, put_vectors


def of_file(path: Path, root: Path, dimensions: int | None = None) -> OfFile:
    return OfFile(str(path), "acme", Kept(model_in(root), CacheSettings(root=str(root / "cache")), dimensions))


def test_vectors_come_back_cut_and_scaled(tmp_path: Path) -> None:
    vectors = clustered(50)
    put_vectors(tmp_path / "v.parquet", IDS[:50][::-1], vectors[::-1])
    given = of_file(tmp_path / "v.parquet", tmp_path, 8)
    rows = given.rows()
    assert rows["text_id"].to_pylist() == IDS[:50]
    np.testing.assert_array_equal(given.kept.take(rows["content_hash"]), scaled(vectors, 8))
    parts = list(given.kept.blocks(rows["content_hash"], 20))
    assert [(start, len(block)) for start, block in parts] == [(0, 20), (20, 20), (40, 10)]


def test_an_array_has_its_row_numbers_for_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", clustered(12))
    rows = of_file(tmp_path / "v.npy", tmp_path).rows()
    assert rows["text_id"].to_pylist() == [f"{number:02}" for number in range(12)]


def test_equal_vectors_are_kept_once(tmp_path: Path) -> None:
    put_vectors(tmp_path / "v.parquet", IDS[:4], clustered(2)[[0, 1, 0, 1]])
    given = of_file(tmp_path / "v.parquet", tmp_path)
    assert len(set(given.rows()["content_hash"].to_pylist())) == 2
    shards = given.kept.opened()
    assert shards is not None
    assert len(shards) == 2
    assert given.content() == of_file(tmp_path / "v.parquet", tmp_path).content()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text_id": ["a"]}, "no column vector"),
        ({"text_id": ["a", "a"], "vector": [[1.0], [2.0]]}, "text_id a comes twice"),
        ({"text_id": ["a", "b"], "vector": [[1.0], [2.0, 3.0]]}, "a vector of 1 numbers"),
        ({"text_id": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32()))}, "holds no vector"),
    ],
)
def test_what_is_no_file_of_vectors_is_refused(tmp_path: Path, columns: dict[str, object], said: str) -> None:
    pq.write_table(pa.table(columns), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=said):
        of_file(tmp_path / "v.parquet", tmp_path).rows()


def test_a_vector_of_nothing_is_refused_by_the_cache(tmp_path: Path) -> None:
    put_vectors(tmp_path / "v.parquet", ["a"], np.zeros((1, 4), np.float32))
    with pytest.raises(ArtifactError, match="a vector with only 0"):
        of_file(tmp_path / "v.parquet", tmp_path).rows()
