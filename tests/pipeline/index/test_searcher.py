"""The way in: a folder is opened, texts or vectors are asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from darklode.flows.jobs.build_index import build_index
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.index.searcher import VectorSearcher
from helpers.adapted import model_in
from helpers.indexed import IDS, clustered, copied, put_vectors, settings_in


def test_a_text_is_found_by_its_own_vector(indexed: Path) -> None:
    vectors = clustered()
    with VectorSearcher(str(indexed / "index")) as searcher:
        found = searcher.search(vectors[:30] * 3, 5)
        nothing = searcher.search(np.zeros((1, 32), np.float32), 5)
    assert [found.ids(query)[0] for query in range(30)] == IDS[:30]
    np.testing.assert_allclose(found.scores[:, 0], 1, atol=0.01)
    assert nothing.ids(0) == []
    assert (nothing.rows == -1).all()


def test_vectors_of_another_encoder_are_refused(indexed: Path) -> None:
    """The test's model gives 8 numbers, and the file of vectors had 32."""
    with (
        VectorSearcher(str(indexed / "index")) as searcher,
        pytest.raises(DoesNotFit, match=r"query vectors of 32 numbers, got shape \(1, 8\)"),
    ):
        searcher.search(["a text"])


@pytest.mark.parametrize("width", [31, 33, 64])
def test_query_vectors_of_another_length_are_refused(indexed: Path, width: int) -> None:
    """Longer ones are not cut: their first numbers mean something else."""
    with (
        VectorSearcher(str(indexed / "index")) as searcher,
        pytest.raises(DoesNotFit, match="query vectors of 32 numbers"),
    ):
        searcher.search(np.ones((2, width), np.float32))


def test_a_query_vector_that_is_not_finite_is_refused(indexed: Path) -> None:
    vectors = clustered(3)
    vectors[1, 4] = np.nan
    with (
        VectorSearcher(str(indexed / "index")) as searcher,
        pytest.raises(DoesNotFit, match="query vector 2 has a NaN"),
    ):
        searcher.search(vectors)


def test_queries_of_a_cut_index_are_as_long_as_the_encoders_or_the_indexs(tmp_path: Path) -> None:
    vectors = clustered(200)
    source = put_vectors(tmp_path / "v.parquet", IDS[:200], vectors)
    settings = settings_in(tmp_path) | {"index": {"kind": "flat", "tuning_queries": 20, "truncate_dim": 8}}
    build_index(source, model_in(tmp_path).model, str(tmp_path / "index"), settings)
    with VectorSearcher(str(tmp_path / "index")) as searcher:
        whole, cut = searcher.search(vectors[:5], 3), searcher.search(vectors[:5, :8], 3)
        assert whole.rows.tolist() == cut.rows.tolist()
        with pytest.raises(DoesNotFit, match="query vectors of 8 or 32 numbers"):
            searcher.search(vectors[:5, :16])


def test_a_cut_index_whose_record_has_only_its_own_dimensions_takes_its_encoder(shipped: Path, tmp_path: Path) -> None:
    """The length of the encoder's vectors is no fact of `index.json`."""
    settings = {"index": {"kind": "flat", "tuning_queries": 20, "truncate_dim": 4}}
    build_index(str(shipped / "run"), "tiny", str(tmp_path / "index"), settings)
    file = tmp_path / "index" / "index.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in facts.items() if name != "encoder dimensions"}))
    with VectorSearcher(str(tmp_path / "index")) as searcher:
        assert facts["dimensions"] == 4
        assert len(searcher.search(["how"], 3).ids(0)) == 3


def test_lists_longer_than_the_index_end_early(indexed: Path) -> None:
    with VectorSearcher(str(indexed / "index")) as searcher:
        found = searcher.search(clustered()[:2], 2000)
    assert found.rows.shape == (2, 2000)
    assert len(set(found.ids(0))) == len(found.ids(0)) <= len(IDS)


def test_what_is_not_finished_is_not_searched(indexed: Path, tmp_path: Path) -> None:
    folder = copied(indexed / "index", tmp_path / "index")
    record = (folder / "index.json").read_text()
    (folder / "index.json").write_text(record.replace('"count"', '"n"').replace('"texts": "', '"texts": "0'))
    with pytest.raises(ArtifactError, match="is unfinished"):
        VectorSearcher(str(folder))
    (folder / "index.json").unlink()
    with pytest.raises(ArtifactError, match="contains no finished index"):
        VectorSearcher(str(folder))
